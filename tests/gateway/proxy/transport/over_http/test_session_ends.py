"""How a session with an HTTP server ends: forgotten, left, and by callers that went away."""

import asyncio
import itertools

import anyio
import pytest

from gateway.config.gateway_config import UpstreamConfig
from gateway.observe.logs import get_logger
from gateway.proxy.transport.http.http_transport import open_http, open_http_client
from gateway.proxy.transport.transport_interface import (
    LinkLost,
    MaybeForgotten,
    NoAnswer,
    PeerError,
    SessionForgotten,
)
from tests.gateway.proxy.transport.over_http.requests import HANDSHAKE, MODERN, call, friendly, shake

from .raw_server import Asked, Reply, raw_server

pytestmark = pytest.mark.anyio


async def test_server_that_forgot_the_session_ends_the_wire_and_soon_all_that_waits(opened):
    async def answer(asked: Asked, reply: Reply) -> None:
        if asked.method == "POST" and asked.message["method"] == "tools/call":
            if asked.message["params"]["arguments"].get("hang"):
                await reply.gone()
            else:
                error = {"code": -32600, "message": "Session not found"}
                await reply.message({"jsonrpc": "2.0", "id": None, "error": error}, status=404)
        else:
            await friendly(asked, reply)

    async with raw_server(answer) as server, opened(server.url) as transport:
        await shake(transport)
        waiting = asyncio.ensure_future(call(transport, hang=True))
        await server.until(lambda: "tools/call" in server.methods)
        with pytest.raises(SessionForgotten) as forgotten:
            await call(transport)
        assert not forgotten.value.sent
        assert transport.closed.is_set()
        assert not waiting.done()
        with pytest.raises(SessionForgotten):
            await call(transport)

    with pytest.raises(LinkLost, match="forgotten our session") as lost:
        await waiting
    assert lost.value.sent
    assert "DELETE" not in server.methods


async def test_requests_on_their_way_when_a_session_is_forgotten_hear_each_for_itself_whether_they_began(opened):
    late = anyio.Event()

    async def answer(asked: Asked, reply: Reply) -> None:
        if asked.method == "POST" and asked.message["method"] == "tools/call":
            if asked.message["params"]["arguments"].get("hang"):
                await late.wait()
            await reply.message({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "?"}}, status=404)
        else:
            await friendly(asked, reply)

    async with raw_server(answer) as server:
        async with opened(server.url) as transport:
            await shake(transport)
            waiting = asyncio.ensure_future(call(transport, hang=True))
            await server.until(lambda: "tools/call" in server.methods)
            with pytest.raises(SessionForgotten):
                await call(transport)
            asyncio.get_running_loop().call_soon(late.set)
        with pytest.raises(SessionForgotten) as forgotten:
            await waiting

    assert not forgotten.value.sent


async def test_request_under_a_name_that_the_session_had_before_is_sent_again(opened):
    late = anyio.Event()

    async def answer(asked: Asked, reply: Reply) -> None:
        if asked.method != "POST" or asked.message["method"] != "tools/call":
            await friendly(asked, reply)
        elif asked.headers["mcp-session-id"] == "new":
            await reply.result(asked, {"content": []}, mcp_session_id="new")
        elif asked.message["params"]["arguments"].get("hang"):
            await late.wait()
            await reply.message({"error": "a header is missing"}, status=400)
        else:
            await reply.result(asked, {"content": []}, mcp_session_id="new")

    async with raw_server(answer) as server, opened(server.url) as transport:
        await shake(transport)
        waiting = asyncio.ensure_future(call(transport, hang=True))
        await server.until(lambda: "tools/call" in server.methods)
        await call(transport)
        late.set()

        assert (await waiting)["content"] == []


async def test_request_that_is_overtaken_by_new_names_twice_is_sent_twice_more(opened):
    held = {"one": anyio.Event(), "two": anyio.Event()}
    names = iter(held)

    async def answer(asked: Asked, reply: Reply) -> None:
        if asked.method != "POST" or asked.message["method"] != "tools/call":
            await friendly(asked, reply)
        elif not asked.message["params"]["arguments"].get("hang"):
            await reply.result(asked, {"content": []}, mcp_session_id=next(names))
        elif (name := asked.headers["mcp-session-id"]) == "two":
            await reply.result(asked, {"content": []}, mcp_session_id=name)
        else:
            await held["two" if name == "one" else "one"].wait()
            await reply.message({"error": "a header is missing"}, status=400)

    async with raw_server(answer) as server, opened(server.url) as transport:
        await shake(transport)
        waiting = asyncio.ensure_future(call(transport, hang=True))
        for sent, overtaken in ((1, held["one"]), (3, held["two"])):
            await server.until(lambda sent=sent: server.methods.count("tools/call") == sent)
            await call(transport)
            overtaken.set()

        assert (await waiting)["content"] == []


async def test_request_that_was_answered_with_an_error_in_the_session_is_not_sent_again(opened):
    renamed, paid = anyio.Event(), 0

    async def answer(asked: Asked, reply: Reply) -> None:
        nonlocal paid
        if asked.method != "POST" or asked.message["method"] != "tools/call":
            await friendly(asked, reply)
        elif asked.message["params"]["arguments"].get("hang"):
            paid += 1
            await renamed.wait()
            error = {"jsonrpc": "2.0", "id": asked.message["id"], "error": {"code": -32602, "message": "no such card"}}
            await reply.message(error, status=400, mcp_session_id="newer")
        else:
            await reply.result(asked, {"content": []}, mcp_session_id="new")

    async with raw_server(answer) as server, opened(server.url) as transport:
        await shake(transport)
        waiting = asyncio.ensure_future(call(transport, hang=True))
        await server.until(lambda: "tools/call" in server.methods)
        await call(transport)
        renamed.set()

        with pytest.raises(PeerError, match="no such card"):
            await waiting
    assert paid == 1


async def test_refused_request_waits_for_the_answer_that_names_the_session_anew(opened):
    refused, names = anyio.Event(), iter(("one", "two"))

    async def answer(asked: Asked, reply: Reply) -> None:
        if asked.method != "POST" or asked.message["method"] != "tools/call":
            await friendly(asked, reply)
        elif asked.message["params"]["arguments"].get("hang"):
            await refused.wait()
            await reply.result(asked, {"content": []}, mcp_session_id=next(names))
        elif asked.headers["mcp-session-id"] == "two":
            await reply.result(asked, {"content": []}, mcp_session_id="two")
        elif asked.headers["mcp-session-id"] == "one":
            await reply.message({"error": "a header is missing"}, status=400)
            asyncio.get_running_loop().call_later(0.05, refused.set)
        else:
            await reply.result(asked, {"content": []}, mcp_session_id=next(names))

    async with raw_server(answer) as server, opened(server.url) as transport:
        await shake(transport)
        await call(transport)
        waiting = asyncio.ensure_future(call(transport, hang=True))
        await server.until(lambda: server.methods.count("tools/call") == 2)

        assert (await call(transport))["content"] == []
        await waiting


async def test_session_whose_new_name_was_lost_with_an_answer_is_forgotten(opened):
    names = map(str, itertools.count())
    name = "s-1"

    async def answer(asked: Asked, reply: Reply) -> None:
        nonlocal name
        if asked.method != "POST" or asked.message.get("method") != "tools/call":
            await friendly(asked, reply)
        elif asked.headers["mcp-session-id"] != name:
            await reply.message({"error": "a header is missing"}, status=400)
        else:
            name = next(names)
            if asked.message["params"]["arguments"].get("hang"):
                await anyio.sleep_forever()
            await reply.result(asked, {"content": []}, mcp_session_id=name)

    async with raw_server(answer) as server, opened(server.url) as transport:
        await shake(transport)
        await call(transport)
        waiting = asyncio.ensure_future(call(transport, hang=True))
        await server.until(lambda: name == "1")
        waiting.cancel()
        await asyncio.wait([waiting])

        with pytest.raises(SessionForgotten):
            await call(transport)


@pytest.mark.parametrize("words", ["Bad Request: No valid session ID provided", "Bad Request: Server not initialized"])
async def test_server_that_says_400_and_means_its_session_is_understood(opened, words):
    async def answer(asked: Asked, reply: Reply) -> None:
        if asked.method == "POST" and asked.message["method"] == "tools/call":
            error = {"code": -32000, "message": words}
            await reply.message({"jsonrpc": "2.0", "id": None, "error": error}, status=400)
        else:
            await friendly(asked, reply)

    async with raw_server(answer) as server, opened(server.url) as transport:
        with pytest.raises(PeerError):
            await call(transport)
        await shake(transport)
        with pytest.raises(MaybeForgotten):
            await call(transport)


async def test_not_found_without_a_session_is_about_the_request(opened):
    async def answer(asked: Asked, reply: Reply) -> None:
        await reply.whole(404)

    async with raw_server(answer) as server, opened(server.url) as transport:
        transport.use_version(HANDSHAKE)
        with pytest.raises(NoAnswer, match="404"):
            await call(transport)
        assert not transport.closed.is_set()


@pytest.mark.parametrize("session", ["x" * 4097])
async def test_session_id_that_is_too_long_is_refused(opened, session):
    async def answer(asked: Asked, reply: Reply) -> None:
        await reply.result(asked, {}, mcp_session_id=session)

    async with raw_server(answer) as server, opened(server.url) as transport:
        with pytest.raises(NoAnswer, match="session id"):
            await shake(transport)


async def test_leaving_ends_the_session_and_fails_who_still_waits(opened):
    async def answer(asked: Asked, reply: Reply) -> None:
        if asked.method == "POST" and asked.message["method"] == "tools/call":
            await reply.gone()
        else:
            await friendly(asked, reply)

    async with raw_server(answer) as server:
        async with opened(server.url) as transport:
            await shake(transport)
            waiting = asyncio.ensure_future(call(transport))
            await server.until(lambda: "tools/call" in server.methods)
        with pytest.raises(LinkLost, match="the gateway closed"):
            await waiting

    assert server.methods[-1] == "DELETE"
    assert server.asked[-1].headers["mcp-session-id"] == "s-1"


async def test_goodbye_that_nobody_answers_is_given_up(opened, monkeypatch):
    monkeypatch.setattr("gateway.proxy.transport.http.channel._GOODBYE_TIME", 0.1)

    async def answer(asked: Asked, reply: Reply) -> None:
        if asked.method == "DELETE":
            await reply.gone()
        else:
            await friendly(asked, reply)

    with anyio.fail_after(20):
        async with raw_server(answer) as server, opened(server.url) as transport:
            await shake(transport)

    assert "DELETE" in server.methods


class Expiring:
    """Somebody's token, which ends; another may take its place."""

    def __init__(self) -> None:
        self.token: str | None = "first"
        self.next: str | None = None

    async def headers(self):
        if self.token is None:
            raise NoAnswer("the caller's own has expired")
        return {"authorization": f"Bearer {self.token}"}

    async def refused(self, _status, _challenge, _sent):
        self.token = self.next
        return self.token is not None


@pytest.mark.parametrize(
    ("ended", "renewed", "tokens"),
    [(True, None, ["first"]), (False, "second", ["first", "second"]), (False, None, ["first"])],
    ids=["no token any more", "refused and renewed", "refused"],
)
async def test_session_is_ended_though_the_token_of_its_caller_has(listener, ended, renewed, tokens):
    async def answer(asked: Asked, reply: Reply) -> None:
        if asked.method == "DELETE" and asked.headers["authorization"] != f"Bearer {renewed or 'first'}":
            await reply.whole(401)
        else:
            await friendly(asked, reply)

    mine = Expiring()
    async with raw_server(answer) as server, open_http_client() as client:
        config = UpstreamConfig("web", url=server.url)
        log = get_logger("test")
        async with open_http(config, listener, bound=1000, log=log, client=client, authorizer=mine) as transport:
            await shake(transport)
            await call(transport)
            mine.next = renewed
            if ended:
                mine.token = None

    told = [each for each in server.asked if each.method == "DELETE"]
    assert [each.headers["authorization"] for each in told] == [f"Bearer {each}" for each in tokens]
    assert {each.headers["mcp-session-id"] for each in told} == {"s-1"}


async def test_handshake_server_is_told_of_a_caller_that_went_away(opened):
    async def answer(asked: Asked, reply: Reply) -> None:
        if asked.method == "POST" and asked.message["method"] == "tools/call":
            await reply.gone()
        else:
            await friendly(asked, reply)

    async with raw_server(answer) as server, opened(server.url) as transport:
        await shake(transport)
        waiting = asyncio.ensure_future(call(transport))
        await server.until(lambda: "tools/call" in server.methods)
        waiting.cancel()
        await server.until(lambda: "notifications/cancelled" in server.methods)
        with pytest.raises(asyncio.CancelledError):
            await waiting

    (told,) = [asked for asked in server.asked if asked.body and b"cancelled" in asked.body]
    assert told.message["params"]["requestId"] == 2
    assert told.headers["mcp-session-id"] == "s-1"


async def test_initialize_is_never_cancelled(opened):
    async def answer(asked: Asked, reply: Reply) -> None:
        await reply.gone()

    async with raw_server(answer) as server, opened(server.url) as transport:
        waiting = asyncio.ensure_future(shake(transport))
        await server.until(lambda: "initialize" in server.methods)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await anyio.wait_all_tasks_blocked()

    assert server.methods == ["initialize"]


async def test_modern_request_is_cancelled_by_closing_its_stream(opened):
    closed = asyncio.Event()

    async def answer(asked: Asked, reply: Reply) -> None:
        await reply.stream()
        await reply.event({"jsonrpc": "2.0", "method": "n"})
        await reply.gone()
        closed.set()

    async with raw_server(answer) as server, opened(server.url) as transport:
        transport.use_version(MODERN)
        waiting = asyncio.ensure_future(call(transport))
        await server.until(lambda: len(server.asked) == 1)
        waiting.cancel()
        with anyio.fail_after(20):
            await closed.wait()
        await asyncio.gather(waiting, return_exceptions=True)

    assert server.methods == ["tools/call"]
