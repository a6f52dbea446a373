"""A stop waits for what is running, refuses what is new, and does not wait for streams that never end."""

import anyio
import anyio.lowlevel
import httpx2
import pytest
from starlette.types import Receive, Scope, Send

from gateway.app.process import stopping
from gateway.serve.http.middleware import EXPIRED, LATE, Drain

pytestmark = pytest.mark.anyio


class Slow:
    """An app whose requests end when the test says so; `/fails` raises instead."""

    def __init__(self) -> None:
        self.begun = anyio.Event()
        self.may_end = anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            self.begun.set()
            return
        self.begun.set()
        await self.may_end.wait()
        if scope["path"] == "/fails":
            raise RuntimeError("broken app")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})


def client_of(app: Drain) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app, raise_app_exceptions=False), base_url="http://here")


def nothing() -> None:
    """There is nothing else to end."""


async def test_idle_app_is_drained_at_once():
    assert await Drain(Slow(), stopping).drained(60, nothing) == 0


async def test_running_request_finishes_and_a_new_one_is_refused():
    slow = Slow()
    app = Drain(slow, stopping)
    answers: dict[str, int] = {}
    left: list[int] = []

    async def ask(name: str) -> None:
        async with client_of(app) as client:
            answers[name] = (await client.post("/")).status_code

    async def drain() -> None:
        left.append(await app.drained(60, nothing))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, "running")
            await slow.begun.wait()
            tasks.start_soon(drain)
            await anyio.wait_all_tasks_blocked()
            await ask("late")
            assert left == []
            slow.may_end.set()

    assert answers == {"running": 200, "late": 503}
    assert left == [0]


async def test_refusal_tells_when_to_ask_again():
    app = Drain(Slow(), stopping)
    await app.drained(0, nothing)
    async with client_of(app) as client:
        answer = await client.post("/")

    assert answer.headers["retry-after"] == "2"
    error = answer.json()["error"]
    assert (error["type"], error["code"], "stopping" in error["message"]) == ("server_error", "stopping", True)


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
async def test_client_of_mcp_is_refused_in_json_rpc(path):
    app = Drain(Slow(), stopping)
    await app.drained(0, nothing)
    async with client_of(app) as client:
        answer = await client.post(path, json={"jsonrpc": "2.0", "id": 1, "method": "ping"})

    assert (answer.status_code, answer.headers["connection"]) == (503, "close")
    assert answer.headers["retry-after"]
    body = answer.json()
    assert (body["jsonrpc"], body["id"]) == ("2.0", None)
    assert body["error"]["message"] == "the gateway is stopping; try again"


async def test_request_that_outlasts_the_time_is_counted_as_left():
    slow = Slow()
    app = Drain(slow, stopping)

    async def ask() -> None:
        async with client_of(app) as client:
            await client.post("/")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await slow.begun.wait()
        assert await app.drained(0, nothing) == 1
        tasks.cancel_scope.cancel()


async def test_request_that_outlasts_the_time_is_told_and_can_say_its_last_word():
    begun = anyio.Event()
    expired: list[str] = []

    async def waits_until_told(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await scope[EXPIRED].wait()
        await send({"type": "http.response.start", "status": 503, "headers": []})
        await send({"type": "http.response.body", "body": b"stopping"})

    app = Drain(waits_until_told, stopping)
    answers: list[bytes] = []

    async def ask() -> None:
        async with client_of(app) as client:
            answers.append((await client.post("/")).content)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await begun.wait()
            assert await app.drained(0, lambda: expired.append("upstreams")) == 1

    assert answers == [b"stopping"]
    assert expired == ["upstreams"]


async def test_request_that_fails_is_over_too():
    slow = Slow()
    app = Drain(slow, stopping)

    async def ask() -> None:
        async with client_of(app) as client:
            await client.post("/fails")

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await slow.begun.wait()
            slow.may_end.set()
            assert await app.drained(60, nothing) == 0


async def test_stream_that_a_client_keeps_open_is_not_waited_for():
    slow = Slow()
    app = Drain(slow, stopping)

    async def listen() -> None:
        async with client_of(app) as client:
            await client.get("/mcp")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listen)
        await slow.begun.wait()
        with anyio.fail_after(20):
            assert await app.drained(60, nothing) == 0
        tasks.cancel_scope.cancel()


async def test_app_that_refuses_itself_gets_what_comes_late_and_is_told_so():
    late: list[object] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        late.append(scope.get(LATE))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    drain = Drain(app, stopping, app_refuses=lambda scope: scope["path"] == "/mcp")
    async with client_of(drain) as client:
        before = await client.post("/mcp")
        await drain.drained(0, nothing)
        after = [(await client.post(path)).status_code for path in ("/mcp", "/v1/models")]

    assert (before.status_code, after) == (200, [200, 503])
    assert late == [None, True]


async def test_what_waits_for_its_client_is_waited_for_and_counted_as_left():
    waiting = [True]
    drain = Drain(Slow(), stopping, waits=lambda: bool(waiting))
    left: list[int] = []

    async def stop() -> None:
        left.append(await drain.drained(60, nothing))

    with anyio.fail_after(20):
        assert await Drain(Slow(), stopping, waits=lambda: True).drained(0, nothing) == 1
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stop)
            await anyio.lowlevel.checkpoint()
            assert left == []
            waiting.clear()

    assert left == [0]
