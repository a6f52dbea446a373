"""What a `HttpReply` makes of what is said while a request runs, and of a client that leaves."""

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from gateway.deadlines import Deadlines
from gateway.protocol.messages import encode_notification
from gateway.proxy.caller import ANYBODY
from gateway.serve.mcp.http import HttpReply, HttpRequest

pytestmark = pytest.mark.anyio


class Pushes:
    """A stream that writes down what is done with it."""

    def __init__(self, kept: bool = False) -> None:
        self.ready = asyncio.Event()
        self.detached = asyncio.Event()
        self.over = False
        self.done: list[str] = []
        self._kept = kept
        self._waiting: list[bytes] = []

    @property
    def stream(self) -> "Pushes":
        return self

    def tell(self, method: str, params: Mapping[str, Any], key: Hashable = None) -> None:
        self.put(encode_notification(method, params))

    def offer(self, data: bytes) -> bool:
        self.put(data)
        return True

    def put(self, data: bytes) -> None:
        self._waiting.append(data)
        self.ready.set()

    def finish(self, frame: bytes | None) -> None:
        self.done.append("finished")
        self.over = True
        if frame is not None:
            self._waiting.append(frame)
        self.ready.set()

    def take(self) -> bytes:
        data, self._waiting = b"|".join(self._waiting), []
        return data

    def leave(self) -> bool:
        self.done.append("left")
        self.over = self._kept
        self.ready.set()
        return self._kept

    def detach(self) -> None:
        self.done.append("detached")
        self.detached.set()


class Site:
    """The two sides of one request."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.gone = asyncio.Event()
        self.request = HttpRequest("POST", {}, set(), ANYBODY, None, {}, self._receive, self._send)

    async def _receive(self) -> Any:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            # As ASGI says: who listens on hears that the client is gone.
            self.gone.set()

    @property
    def body(self) -> bytes:
        return b"".join(each.get("body", b"") for each in self.sent)

    def reply(self, opened: Callable[[], Pushes]) -> HttpReply:
        return HttpReply(self.request, opened, Deadlines())


async def test_answer_before_which_nothing_was_pushed_is_json_and_what_comes_behind_it_goes_nowhere() -> None:
    site, opened = Site(), list[Pushes]()
    with site.reply(lambda: opened.append(Pushes()) or opened[0]) as reply:
        await reply.finish(b"{}", 404)
        reply.tell("late", {})
        reply.put(b"late")
        assert not reply.offer(b"late")
    await anyio.wait_all_tasks_blocked()
    assert not opened
    assert (site.sent[0]["status"], site.body) == (404, b"{}")


async def test_answer_in_json_stays_one_though_its_client_reads_it_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.serve.mcp.http._LOOK", 0.0)
    monkeypatch.setattr("gateway.serve.mcp.http.PING", 0.0)
    site, opened, read = Site(), list[Pushes](), asyncio.Event()
    send = site.request.send

    async def send_slowly(message: Any) -> None:
        await read.wait()
        await send(message)

    site.request.send = send_slowly
    with site.reply(lambda: opened.append(Pushes()) or opened[0]) as reply:
        answering = asyncio.create_task(reply.finish(b"{}"))
        # By then it would have been late twice.
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        read.set()
        await answering
    assert not opened
    assert site.body == b"{}"


async def test_what_is_pushed_makes_the_answer_a_stream_that_ends_with_it() -> None:
    site, pushes = Site(), Pushes()
    before = b""
    with site.reply(lambda: pushes) as reply:
        reply.tell("news", {})
        await anyio.wait_all_tasks_blocked()
        before = site.body
        await reply.finish(b"{}")
    await anyio.wait_all_tasks_blocked()
    assert before == encode_notification("news", {})
    assert site.body == before + b"{}"
    assert not site.sent[-1].get("more_body")
    assert pushes.done == ["finished", "detached"]


@pytest.mark.parametrize("begun", [False, True])
async def test_request_of_a_client_that_is_gone_for_good_ends_and_so_does_its_stream(begun: bool) -> None:
    site, pushes = Site(), Pushes()
    passed = False
    with site.reply(lambda: pushes) as reply:
        if begun:
            reply.begin()
            await anyio.wait_all_tasks_blocked()
        site.gone.set()
        await anyio.sleep_forever()
        passed = True
    # The cancellation was the client's going: nobody else is to see it.
    assert not passed
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
    if begun:
        await pushes.detached.wait()
    assert pushes.done == (["left", "finished", "detached"] if begun else [])


async def test_response_that_is_complete_is_not_taken_for_a_client_that_left() -> None:
    site, pushes = Site(), Pushes()
    passed = False
    with site.reply(lambda: pushes) as reply:
        reply.begin()
        await anyio.wait_all_tasks_blocked()
        await reply.finish(b"{}")
        passed = True
    assert passed
    assert pushes.done == ["finished", "detached"]


async def test_request_of_a_client_that_may_come_back_goes_on() -> None:
    site, pushes = Site(), Pushes(kept=True)
    with site.reply(lambda: pushes) as reply:
        reply.begin()
        await anyio.wait_all_tasks_blocked()
        site.gone.set()
        await anyio.wait_all_tasks_blocked()
        assert pushes.done == ["left", "detached"]
        await reply.finish(b"{}")
    assert pushes.done == ["left", "detached", "finished"]


async def test_stream_whose_writer_never_began_is_given_back() -> None:
    site, pushes = Site(), Pushes()
    with site.reply(lambda: pushes) as reply:
        reply.begin()
    await pushes.detached.wait()
    assert pushes.done == ["finished", "detached"]
    assert not site.sent


async def test_cancellation_from_outside_is_not_taken_for_the_client_s_going() -> None:
    site = Site()

    async def wait(opened: Callable[[], Pushes]) -> None:
        with site.reply(opened):
            await anyio.sleep_forever()

    task = asyncio.ensure_future(wait(partial(Pushes)))
    await anyio.wait_all_tasks_blocked()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_cancellation_from_outside_goes_on_though_the_client_went_as_well() -> None:
    site, pushes, going = Site(), Pushes(), asyncio.Event()
    task: asyncio.Task[None]

    def leave() -> bool:
        # In the same turn, before the request hears of either.
        task.cancel()
        going.set()
        return False

    pushes.leave = leave  # type: ignore[method-assign]

    async def wait() -> None:
        with site.reply(lambda: pushes) as reply:
            reply.begin()
            await anyio.sleep_forever()

    task = asyncio.ensure_future(wait())
    await anyio.wait_all_tasks_blocked()
    site.gone.set()
    await going.wait()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_request_that_is_answered_though_its_client_went_leaves_no_cancellation_behind() -> None:
    site = Site()
    with site.reply(Pushes) as reply:
        reply.begin()
        await anyio.wait_all_tasks_blocked()
        site.gone.set()
        with contextlib.suppress(asyncio.CancelledError):
            await anyio.sleep_forever()
        await reply.finish(b"{}")
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


async def test_request_that_was_looked_after_is_freed_without_the_garbage_collector() -> None:
    site, opened = Site(), partial(Pushes)
    kept = weakref.ref(opened)
    gc.disable()
    try:
        with site.reply(opened) as reply:
            reply.look()
            await anyio.wait_all_tasks_blocked()
            await reply.finish(b"{}")
        del reply, opened
        await anyio.wait_all_tasks_blocked()
        assert kept() is None
    finally:
        gc.enable()
