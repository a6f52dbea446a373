"""Which era is spoken with a server over HTTP that is slow, breaks off or answers late; no session is left there."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gateway.config.gateway_config import UpstreamConfig
from tests.gateway.proxy.transport.over_http.raw_server import Asked, RawServer, Reply, raw_server

pytestmark = pytest.mark.anyio
HANDSHAKE, MODERN = "2025-11-25", "2026-07-28"
DISCOVERED = {"supportedVersions": [MODERN], "capabilities": {"tools": {}}, "resultType": "complete"}
GREETED = {"protocolVersion": HANDSHAKE, "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}
LISTED = {"tools": [], "resultType": "complete"}
Answer = Callable[[Asked, Reply, RawServer], Awaitable[None]]


@pytest.fixture(autouse=True)
def _asks_both_ways_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.proxy.upstream.session.negotiation._PROBE_TIME", 0)


class Slow:
    """A server whose answers to the two questions are the test's."""

    def __init__(self, discover: Answer, initialize: Answer) -> None:
        self.asked = raw_server(self._answer)
        self._by_method = {"server/discover": discover, "initialize": initialize}
        self.server: RawServer

    async def __aenter__(self) -> RawServer:
        self.server = await self.asked.__aenter__()
        return self.server

    async def __aexit__(self, *raised: object) -> None:
        await self.asked.__aexit__(*raised)

    async def _answer(self, asked: Asked, reply: Reply) -> None:
        method = asked.message.get("method") if asked.method == "POST" else asked.method
        if method in self._by_method:
            await self._by_method[method](asked, reply, self.server)
        elif method == "tools/list":
            await reply.result(asked, LISTED)
        elif method == "GET":
            await reply.whole(405)
        else:
            await reply.whole(202)


async def discovered_late(asked: Asked, reply: Reply, server: RawServer) -> None:
    await server.until(lambda: "initialize" in server.methods)
    await reply.result(asked, DISCOVERED)


async def refused_late(asked: Asked, reply: Reply, server: RawServer) -> None:
    await server.until(lambda: "initialize" in server.methods)
    await reply.whole(404)


async def broken_late(_: Asked, reply: Reply, server: RawServer) -> None:
    await server.until(lambda: "initialize" in server.methods)
    reply.drop()


async def broken_at_once(_: Asked, reply: Reply, __: RawServer) -> None:
    reply.drop()


async def never(_: Asked, reply: Reply, __: RawServer) -> None:
    await reply.gone()


async def greeted(asked: Asked, reply: Reply, _: RawServer) -> None:
    await reply.result(asked, GREETED, mcp_session_id="s-1")


async def greeted_last(asked: Asked, reply: Reply, server: RawServer) -> None:
    await server.until(lambda: "tools/list" in server.methods)
    await reply.result(asked, GREETED, mcp_session_id="unused")


def web(server: RawServer) -> UpstreamConfig:
    return UpstreamConfig(name="web", url=server.url)


def sessions_of(server: RawServer, method: str) -> list[str | None]:
    """In which sessions this was asked."""
    return [
        asked.headers.get("mcp-session-id")
        for asked, name in zip(server.asked, server.methods, strict=True)
        if name == method
    ]


async def test_answer_of_the_modern_era_that_comes_late_counts_and_the_session_that_comes_after_it_is_ended(proxy_of):
    async with Slow(discovered_late, greeted_last) as server, proxy_of(web(server)) as proxy:
        (status,) = proxy.statuses()
        await server.until(lambda: "DELETE" in server.methods)

    assert (status.state, status.protocol, status.restarts) == ("up", MODERN, 0)
    assert sessions_of(server, "tools/list") == [None]
    assert sessions_of(server, "DELETE") == ["unused"]
    assert server.asked[server.methods.index("DELETE")].headers["mcp-protocol-version"] == HANDSHAKE


async def test_question_that_is_never_answered_keeps_nobody_from_speaking_and_nobody_from_leaving(proxy_of):
    async with Slow(discovered_late, never) as server, proxy_of(web(server)) as proxy:
        (status,) = proxy.statuses()

    assert (status.state, status.protocol, status.restarts) == ("up", MODERN, 0)
    assert "DELETE" not in server.methods


@pytest.mark.parametrize("discover", [never, broken_late, broken_at_once, refused_late])
async def test_handshake_is_spoken_where_the_first_question_gets_no_answer_whatever_becomes_of_it(proxy_of, discover):
    async with Slow(discover, greeted) as server, proxy_of(web(server)) as proxy:
        (status,) = proxy.statuses()

    assert (status.state, status.protocol, status.restarts) == ("up", HANDSHAKE, 0)
    assert sessions_of(server, "tools/list") == ["s-1"]
    assert sessions_of(server, "DELETE") == ["s-1"]
    # One that nobody waits for is not taken back in a session that it was not asked in.
    assert "notifications/cancelled" not in server.methods


async def test_refusal_of_what_was_asked_before_the_session_says_nothing_of_the_session(proxy_of):
    begun, refused = asyncio.Event(), asyncio.Event()

    async def refused_in_the_middle(_: Asked, reply: Reply, __: RawServer) -> None:
        await begun.wait()
        await reply.whole(404)
        refused.set()

    async def greeted_in_parts(asked: Asked, reply: Reply, server: RawServer) -> None:
        await reply.stream(mcp_session_id="s-1")
        await heard(reply, server, 1)
        begun.set()
        await refused.wait()
        await heard(reply, server, 2)
        await reply.event({"jsonrpc": "2.0", "id": asked.message["id"], "result": GREETED})
        await reply.end()

    async with Slow(refused_in_the_middle, greeted_in_parts) as server, proxy_of(web(server)) as proxy:
        (status,) = proxy.statuses()

    assert (status.state, status.protocol, status.restarts) == ("up", HANDSHAKE, 0)
    assert server.methods.count("initialize") == 1


async def heard(reply: Reply, server: RawServer, count: int) -> None:
    """Return when everything that was sent so far has been read: a ping behind it was answered."""
    await reply.event({"jsonrpc": "2.0", "id": f"ping {count}", "method": "ping"})
    await server.until(lambda: server.methods.count("-") == count)


@pytest.fixture
def one_after_the_other(monkeypatch: pytest.MonkeyPatch, _asks_both_ways_at_once: None) -> None:
    monkeypatch.setattr("gateway.proxy.upstream.session.negotiation._PROBE_TIME", 20)


@pytest.mark.usefixtures("one_after_the_other")
@pytest.mark.parametrize(
    ("supported", "spoken", "asked"), [([MODERN], MODERN, 2), (["2099-01-01"], HANDSHAKE, 1), ("no list", HANDSHAKE, 1)]
)
async def test_version_that_is_refused_is_exchanged_for_one_that_the_server_names(proxy_of, supported, spoken, asked):
    async def refused_at_first(asked: Asked, reply: Reply, server: RawServer) -> None:
        if server.methods.count("server/discover") > 1:
            await reply.result(asked, DISCOVERED)
            return
        data = {"supported": supported, "requested": MODERN}
        error = {"code": -32022, "message": "Unsupported protocol version", "data": data}
        await reply.message({"jsonrpc": "2.0", "id": asked.message["id"], "error": error}, status=400)

    async with Slow(refused_at_first, greeted) as server, proxy_of(web(server)) as proxy:
        (status,) = proxy.statuses()

    assert (status.state, status.protocol) == ("up", spoken)
    assert server.methods.count("server/discover") == asked


@pytest.mark.usefixtures("one_after_the_other")
async def test_version_that_is_refused_again_and_again_is_asked_for_twice(proxy_of):
    async def refused(asked: Asked, reply: Reply, _: RawServer) -> None:
        error = {"code": -32022, "message": "no", "data": {"supported": [MODERN]}}
        await reply.message({"jsonrpc": "2.0", "id": asked.message["id"], "error": error}, status=400)

    async with Slow(refused, greeted) as server, proxy_of(web(server)) as proxy:
        (status,) = proxy.statuses()

    assert status.protocol == HANDSHAKE
    assert server.methods.count("server/discover") == 2
