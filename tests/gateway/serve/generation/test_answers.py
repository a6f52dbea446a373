"""Answers as they are shown: when a reply is made, and what its stream begins with."""

from typing import Any

import anyio
import pytest
from starlette.types import Message

from gateway.agent.events import AgentEvent, Emit, Finished
from gateway.serve.generation.answers import Answering, ApiForm, StreamedAnswer
from gateway.serve.http.request_layers import EXPIRED
from gateway.toolcalls.stream.output_events import Content


class _Reply:
    """A reply that shows what it was told."""

    def __init__(self, *pings: list[dict[str, Any]]) -> None:
        """`pings`: what it says in silence, before it says no more."""
        self.pings = list(pings)

    def begin(self) -> list[dict[str, Any]]:
        return [{"begins": True}]

    def feed(self, event: AgentEvent) -> list[dict[str, Any]]:
        return [{"says": event.text}] if isinstance(event, Content) else []

    def completion(self) -> dict[str, Any]:
        return {}

    def fail(self, error: Exception) -> list[dict[str, Any]]:
        return [{"fails": str(error)}]

    def ping(self) -> list[dict[str, Any]] | None:
        return self.pings.pop(0) if self.pings else None


class _Run:
    """One answer over ASGI, to a client that stays."""

    def __init__(self) -> None:
        self.made = 0
        self.opened = anyio.Event()
        self.sent: list[bytes] = []

    def new_reply(self) -> _Reply:
        self.made += 1
        self.opened.set()
        return _Reply()

    async def of(self, make: Any) -> list[bytes]:
        async def send(message: Message) -> None:
            self.sent.append(message.get("body", b""))

        form = ApiForm(lambda error: (500, {"fails": str(error)}))
        answer = StreamedAnswer(Answering(make, lambda outcome: None), self.new_reply, form)
        with anyio.fail_after(20):
            await answer({"type": "http"}, anyio.sleep_forever, send)
        return self.sent


pytestmark = pytest.mark.anyio
_END = Finished("stop", 1, 0, 1)


async def test_reply_is_made_once_while_the_engine_works() -> None:
    run = _Run()

    async def make(emit: Emit) -> None:
        await run.opened.wait()
        await emit(Content("Hello"))
        await emit(Content(" there"))
        await emit(_END)

    sent = await run.of(make)

    assert sent == [b"", b'data: {"begins":true}\n\ndata: {"says":"Hello"}\n\n', b'data: {"says":" there"}\n\n', b""]
    assert run.made == 1


async def test_answer_that_is_there_at_once_begins_as_any_other() -> None:
    run = _Run()

    async def make(emit: Emit) -> None:
        await emit(Content("Hello"))

    assert (await run.of(make))[1] == b'data: {"begins":true}\n\ndata: {"says":"Hello"}\n\n'
    assert run.made == 1


async def test_answer_that_fails_before_its_first_event_is_an_error_of_http() -> None:
    run = _Run()

    async def make(emit: Emit) -> None:
        await run.opened.wait()
        raise RuntimeError("the engine is gone")

    assert await run.of(make) == [b"", b'{"fails":"the engine is gone"}']


async def test_answer_that_fails_behind_its_first_event_ends_its_stream_with_the_error() -> None:
    run = _Run()

    async def make(emit: Emit) -> None:
        await emit(Content("Hello"))
        raise RuntimeError("the engine is gone")

    assert (await run.of(make))[2:] == [b'data: {"fails":"the engine is gone"}\n\n']


async def test_stop_before_a_stream_has_begun_for_a_client_that_does_not_read_is_an_error_of_http() -> None:
    waits = anyio.Event()
    sent: list[Message] = []

    async def make(emit: Emit) -> None:
        await emit(Content("Hello"))

    async def send(message: Message) -> None:
        if not waits.is_set():
            waits.set()
            await anyio.sleep_forever()
        sent.append(message)

    form = ApiForm(lambda error: (503, {"fails": str(error)}))
    answer = StreamedAnswer(Answering(make, lambda outcome: None), _Reply, form)
    with anyio.fail_after(20):
        await answer({"type": "http", EXPIRED: waits}, anyio.sleep_forever, send)

    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert sent[0]["status"] == 503


async def test_silent_stream_says_what_its_api_has_for_that_or_a_comment() -> None:
    over = anyio.Event()
    sent: list[bytes] = []

    async def make(emit: Emit) -> None:
        await over.wait()
        await emit(Content("Hello"))

    async def send(message: Message) -> None:
        sent.append(message.get("body", b""))
        if sent[-1].startswith(b":"):
            over.set()

    form = ApiForm(lambda error: (500, {"fails": str(error)}))
    new_reply = lambda: _Reply([{"lives": True}], [])  # noqa: E731
    answer = StreamedAnswer(Answering(make, lambda outcome: None), new_reply, form, silence=0.001)
    with anyio.fail_after(20):
        await answer({"type": "http"}, anyio.sleep_forever, send)

    begins, says = b'data: {"begins":true}\n\ndata: {"lives":true}\n\n', b'data: {"says":"Hello"}\n\n'
    assert sent == [b"", begins, b": still at work\n\n", says, b""]
