"""Servers that speak only the transport before Streamable HTTP (HTTP+SSE, 2024-11-05)."""

import asyncio
import json

import anyio
import pytest

from gateway.proxy.transport.transport_interface import LinkLost, NoAnswer, PeerError, SessionForgotten, Unfit

from .conftest import BOUND
from .raw_server import raw_server
from .test_real_servers import call, serving, shake

pytestmark = pytest.mark.anyio


class StandInOld:
    """A server of that kind, byte for byte: refuses POSTs to its own address, and answers on the one stream."""

    def __init__(self, endpoint: str = "/messages?session=1", refusal: int = 405) -> None:
        self.endpoint, self.refusal = endpoint, refusal
        self.begun, self.over = asyncio.Event(), asyncio.Event()
        self.accepted = 202
        self.answers: dict[str, object] = {}
        self.held: set[str] = set()

    async def __call__(self, asked, reply):
        if asked.method == "GET" or (asked.target == "/mcp" and not self.refusal):
            await reply.stream()
            await reply.chunk(f"event: endpoint\ndata: {self.endpoint}\n\n".encode())
            self.stream = reply
            self.begun.set()
            await self.over.wait()
            await reply.end()
        elif not asked.target.startswith("/messages"):
            await reply.whole(self.refusal, b"no", "text/plain")
        elif self.accepted != 202:
            await reply.whole(self.accepted, b"Could not find session", "text/plain")
        else:
            await reply.whole(202, b"Accepted", "text/plain")
            await self.answer(asked.message)

    async def answer(self, message):
        method = message.get("method")
        if "id" in message and method and method not in self.held:
            result = self.answers.get(method, {"protocolVersion": "2024-11-05"} if method == "initialize" else {})
            await self.say({"jsonrpc": "2.0", "id": message["id"], "result": result})

    async def say(self, message):
        await self.stream.chunk(f"event: message\ndata: {json.dumps(message)}\n\n".encode())


async def ask(transport, method, params=None):
    with anyio.fail_after(20):
        return await transport.request(method, params or {})


async def test_real_server_is_listed_and_called_and_asks(opened, listener):
    async with serving("http_pushes", "sse") as (_, url), opened(url.replace("/mcp", "/sse")) as transport:
        await shake(transport)
        tools = await ask(transport, "tools/list")
        assert await asyncio.gather(*(call(transport, "count", to=n) for n in (0, 3))) == ["counted"] * 2
        assert await call(transport, "change") == "changed"
        await listener.until(lambda: "notifications/tools/list_changed" in dict(listener.heard))
        with pytest.raises(PeerError) as refused:
            await ask(transport, "no/such")

    assert {tool["name"] for tool in tools["tools"]} == {"count", "ask", "change", "part"}
    assert refused.value.error["code"] == -32601


async def test_real_server_that_ends_ends_the_session_and_fails_what_runs(opened):
    async with serving("http_pushes", "sse") as (process, url), opened(url.replace("/mcp", "/sse")) as transport:
        await shake(transport)
        process.kill()
        with anyio.fail_after(20):
            await transport.closed.wait()
        with pytest.raises(LinkLost):
            await ask(transport, "tools/list")


@pytest.mark.parametrize("refusal", [400, 404, 405])
@pytest.mark.parametrize(
    "endpoint",
    [
        "/messages?session=1",
        "messages",
        "./messages?a=b&c=%2F",
        " /messages ",
        "http://127.0.0.1:{port}/messages",
        "HTTP://127.0.0.1:{port}/messages#part",
    ],
)
async def test_messages_go_to_the_address_that_the_server_names(opened, refusal, endpoint):
    old = StandInOld(endpoint, refusal)
    async with raw_server(old) as server:
        old.endpoint = endpoint.format(port=server.port)
        async with opened(server.url, headers={"x-team": "a"}) as transport:
            transport.use_version("2025-11-25")
            assert await ask(transport, "initialize") == {"protocolVersion": "2024-11-05"}
            await transport.notify("notifications/initialized")
            assert await ask(transport, "tools/list") == {}

        assert [asked.method for asked in server.asked] == ["POST", "GET", "POST", "POST", "POST"]
        assert all(asked.headers["x-team"] == "a" for asked in server.asked)
        assert {asked.target.split("?")[0] for asked in server.asked[2:]} == {"/messages"}


async def test_server_that_takes_a_post_for_the_start_of_its_stream_is_reached(opened):
    async with raw_server(StandInOld(refusal=0)) as server, opened(server.url) as transport:
        transport.use_version("2025-11-25")
        assert await ask(transport, "initialize") == {"protocolVersion": "2024-11-05"}
        assert server.methods == ["initialize", "GET", "initialize"]


async def test_server_at_the_usual_path_need_not_answer_a_post(opened):
    async with raw_server(StandInOld()) as server, opened(server.url.replace("/mcp", "/v1/sse?key=a")) as transport:
        transport.use_version("2025-11-25")
        assert await ask(transport, "initialize") == {"protocolVersion": "2024-11-05"}
        assert server.methods == ["GET", "initialize"]


async def test_server_of_today_may_live_at_the_old_path(opened):
    async def answer(asked, reply):
        if asked.method == "GET":
            await reply.whole(405)
        else:
            await reply.result(asked, {"protocolVersion": "2025-11-25"})

    async with raw_server(answer) as server, opened(server.url.replace("/mcp", "/sse")) as transport:
        transport.use_version("2025-11-25")
        assert await ask(transport, "initialize") == {"protocolVersion": "2025-11-25"}


@pytest.mark.parametrize(
    "endpoint",
    ["http://127.0.0.1:1/messages", "https://other.example/x", "//other.example/x", "file:///etc/x"],
)
async def test_address_of_another_server_gets_nothing(opened, endpoint):
    async with raw_server(StandInOld(endpoint)) as server, opened(server.url) as transport:
        with pytest.raises(NoAnswer, match="no address of its own"):
            await ask(transport, "initialize")
        assert server.methods == ["initialize", "GET"]


async def test_server_without_such_a_stream_fails_with_its_own_refusal(opened):
    async def answer(asked, reply):
        await reply.whole(404 if asked.method == "POST" else 405, b"nothing here", "text/plain")

    async with raw_server(answer) as server, opened(server.url) as transport:
        with pytest.raises(NoAnswer, match=r"HTTP 404.*check the `url`"):
            await ask(transport, "initialize")


async def test_server_that_speaks_streamable_http_is_never_asked_for_the_old_stream(opened):
    async def answer(asked, reply):
        await reply.whole(500, b"broken", "text/plain")

    async with raw_server(answer) as server, opened(server.url) as transport:
        with pytest.raises(NoAnswer):
            await ask(transport, "initialize")
        assert server.methods == ["initialize"]


async def test_end_of_the_stream_fails_what_waits_and_ends_the_session(opened):
    old = StandInOld()
    old.held = {"tools/call"}
    async with raw_server(old) as server, opened(server.url) as transport:
        transport.use_version("2025-11-25")
        await ask(transport, "initialize")
        waiting = asyncio.ensure_future(ask(transport, "tools/call", {"name": "x"}))
        await server.until(lambda: server.methods[-1] == "tools/call")
        old.over.set()
        with pytest.raises(LinkLost, match="event stream ended"):
            await waiting
        with anyio.fail_after(20):
            await transport.closed.wait()


async def test_forgotten_session_is_told_apart_from_a_refused_message(opened):
    old = StandInOld()
    async with raw_server(old) as server, opened(server.url) as transport:
        transport.use_version("2025-11-25")
        await ask(transport, "initialize")
        old.accepted = 413
        with pytest.raises(NoAnswer):
            await ask(transport, "tools/list")
        assert not transport.closed.is_set()
        old.accepted = 404
        with pytest.raises(SessionForgotten):
            await ask(transport, "tools/list")
        assert transport.closed.is_set()


async def test_pushes_questions_and_odd_events_reach_their_places(opened, listener):
    old = StandInOld()
    old.held = {"slow"}
    async with raw_server(old) as server, opened(server.url) as transport:
        transport.use_version("2025-11-25")
        await ask(transport, "initialize")
        slow = asyncio.ensure_future(ask(transport, "slow"))
        await server.until(lambda: server.methods[-1] == "slow")
        number = server.asked[-1].message["id"]
        await old.stream.chunk(
            b": a comment\n\nevent: ping\ndata: x\n\ndata: no json\n\nevent: endpoint\ndata: /other\n\n"
        )
        await old.say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": 1}})
        await old.say({"jsonrpc": "2.0", "id": 9, "method": "elicitation/create", "params": {"message": "?"}})
        await old.say({"jsonrpc": "2.0", "id": 77, "result": {"of": "nobody"}})
        await server.until(lambda: server.methods[-1] == "-")
        await old.say({"jsonrpc": "2.0", "id": str(number), "result": {"came": True}})

        assert await slow == {"came": True}
        assert listener.heard == [("notifications/message", {"data": 1})]
        assert server.asked[-1].message["result"]["method"] == "elicitation/create"
        assert {asked.target for asked in server.asked[2:]} == {"/messages?session=1"}


async def test_answer_over_the_bound_fails_its_call_alone(opened):
    old = StandInOld()
    old.answers["big"] = {"text": "x" * (BOUND + 1)}
    async with raw_server(old) as server, opened(server.url) as transport:
        transport.use_version("2025-11-25")
        await ask(transport, "initialize")
        with pytest.raises(Unfit, match=r"limits\.result_bytes"):
            await ask(transport, "big")
        assert await ask(transport, "tools/list") == {}


async def test_call_that_is_given_up_is_cancelled_at_the_server(opened):
    old = StandInOld()
    old.held = {"tools/call"}
    async with raw_server(old) as server, opened(server.url) as transport:
        transport.use_version("2025-11-25")
        await ask(transport, "initialize")
        waiting = asyncio.ensure_future(ask(transport, "tools/call", {"name": "x"}))
        await server.until(lambda: server.methods[-1] == "tools/call")
        waiting.cancel()
        await server.until(lambda: server.methods[-1] == "notifications/cancelled")
        assert await ask(transport, "tools/list") == {}
