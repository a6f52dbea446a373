"""The transport over HTTP against a server that answers byte for byte as the test says."""

import asyncio
import json
from typing import Any

import anyio
import brotli
import pytest

from gateway.config.model import UpstreamConfig
from gateway.http1.origin import Origin
from gateway.observe.logs import get_logger
from gateway.proxy.transport.http.http_transport import open_http, open_http_client
from gateway.proxy.transport.server_link import (
    LinkLost,
    MaybeForgotten,
    NoAnswer,
    PeerError,
    SessionForgotten,
    Transport,
)

from .raw_server import Asked, Reply, raw_server

pytestmark = pytest.mark.anyio
HANDSHAKE = "2025-11-25"
MODERN = "2026-07-28"
OK = b"HTTP/1.1 200 OK\r\ncontent-type: "


async def call(transport: Transport, *args: Any, **arguments: Any) -> dict[str, Any]:
    with anyio.fail_after(20):
        return await transport.request("tools/call", {"name": "x", "arguments": arguments}, *args)


async def shake(transport: Transport) -> None:
    transport.use_version(HANDSHAKE)
    with anyio.fail_after(20):
        await transport.request("initialize", {})


async def friendly(asked: Asked, reply: Reply) -> None:
    """Gives a session, offers no stream of its own, and says `{}` to every request."""
    if asked.method == "GET":
        await reply.whole(405)
    elif asked.method == "DELETE" or "id" not in asked.message or "method" not in asked.message:
        await reply.whole(202)
    elif asked.message["method"] == "initialize":
        await reply.result(asked, {}, mcp_session_id="s-1")
    else:
        await reply.result(asked, {})


async def test_handshake_request_carries_the_session_and_the_version_once_there_are_any(opened):
    async with raw_server(friendly) as server, opened(server.url, headers={"X-Key": "k"}) as transport:
        await shake(transport)
        await call(transport)

    opening, calling, _ = server.asked
    assert (opening.method, opening.target) == ("POST", "/mcp")
    assert "mcp-session-id" not in opening.headers
    assert "mcp-protocol-version" not in opening.headers
    for asked in (opening, calling):
        assert asked.headers["accept"] == "application/json, text/event-stream"
        assert asked.headers["content-type"] == "application/json"
        assert asked.headers["accept-encoding"] == "identity"
        assert asked.headers["host"] == f"127.0.0.1:{server.port}"
        assert asked.headers["x-key"] == "k"
    assert calling.headers["mcp-session-id"] == "s-1"
    assert calling.headers["mcp-protocol-version"] == HANDSHAKE
    assert calling.message == {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/call",
        "params": {"name": "x", "arguments": {}},
    }


async def test_modern_request_repeats_its_method_and_name_and_knows_no_session(opened):
    async def answer(asked: Asked, reply: Reply) -> None:
        if "id" in asked.message:
            await reply.result(asked, {}, mcp_session_id="s-1")
        else:
            await reply.whole(202)

    async with raw_server(answer) as server, opened(server.url) as transport:
        transport.use_version(MODERN)
        await transport.request("server/discover", {})
        await transport.request("tools/call", {"name": "grüß"}, headers={"Mcp-Param-City": "Ulm"})
        await transport.notify("notifications/x", {})

    discover, calling, notice = (asked.headers for asked in server.asked)
    assert discover["mcp-method"] == "server/discover"
    assert (calling["mcp-method"], calling["mcp-name"]) == ("tools/call", "=?base64?Z3LDvMOf?=")
    assert calling["Mcp-Param-City"] == "Ulm"
    assert notice["mcp-method"] == "notifications/x"
    for headers in (discover, calling, notice):
        assert headers["mcp-protocol-version"] == MODERN
        assert "mcp-session-id" not in headers
    assert "DELETE" not in server.methods


async def test_configuration_sets_headers_but_not_those_of_the_transport(opened):
    mine = {"User-Agent": "me", "Accept": "text/html", "Content-Length": "1", "MCP-Session-Id": "x", "Host": "virtual"}
    async with raw_server(friendly) as server, opened(server.url, headers=mine) as transport:
        await shake(transport)

    (first, *_) = server.asked
    names = [line.split(":")[0].lower() for line in first.lines]
    assert len(names) == len(set(names))
    assert first.headers["user-agent"] == "me"
    assert first.headers["host"] == "virtual"
    assert first.headers["accept"].startswith("application/json")
    assert "mcp-session-id" not in first.headers


async def test_user_and_password_in_the_url_become_an_authorization(opened):
    async with (
        raw_server(friendly) as server,
        opened(server.url.replace("http://", "http://al%40ice:p%3Aw@")) as transport,
    ):
        await shake(transport)

    assert server.asked[0].headers["authorization"] == "Basic YWxAaWNlOnA6dw=="
    assert server.asked[0].headers["host"] == f"127.0.0.1:{server.port}"


async def test_header_that_would_begin_another_line_is_refused_and_nothing_is_sent(opened):
    async with raw_server(friendly) as server, opened(server.url) as transport:
        transport.use_version(MODERN)
        with pytest.raises(NoAnswer, match="'mcp-param-a' contains a line break"):
            await transport.request("tools/call", {"name": "x"}, headers={"mcp-param-a": "1\r\nevil: 2"})

    assert server.asked == []


async def test_params_that_no_json_can_carry_are_not_sent(opened):
    async with raw_server(friendly) as server, opened(server.url) as transport:
        with pytest.raises(NoAnswer, match="was not sent"):
            await call(transport, text="\ud800")

    assert server.asked == []


async def test_answer_comes_as_it_was_sent(opened):
    result = {"x": None, "big": 2**70, "content": [{"type": "film"}], "_meta": {"a": None}}

    async def answer(asked: Asked, reply: Reply) -> None:
        await reply.result(asked, result)

    async with raw_server(answer) as server, opened(server.url) as transport:
        assert await call(transport) == result


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    "odd",
    [{"id": "1"}, {"id": 1.0}, {"error": None}, {"method": None}, {"jsonrpc": 2.0}, {"jsonrpc": None, "id": "1"}],
)
async def test_answer_in_a_form_that_official_clients_take_is_taken(opened, odd, streamed):
    async def answer(asked: Asked, reply: Reply) -> None:
        message = {"jsonrpc": "2.0", "id": asked.message["id"], "result": {"a": 1}, **odd}
        if streamed:
            await reply.stream()
            await reply.event(message)
            await reply.end()
        else:
            await reply.message(message)

    async with raw_server(answer) as server, opened(server.url) as transport:
        assert await call(transport) == {"a": 1}


@pytest.mark.parametrize("status", [200, 400, 404, 500])
async def test_error_of_the_server_comes_as_it_was_sent_whatever_the_status(opened, status):
    error = {"code": -32601, "message": "no", "data": {"left": None}, "extra": [1]}

    async def answer(asked: Asked, reply: Reply) -> None:
        await reply.message({"jsonrpc": "2.0", "id": asked.message["id"], "error": error}, status=status)

    async with raw_server(answer) as server, opened(server.url) as transport:
        transport.use_version(MODERN)
        with pytest.raises(PeerError) as refused:
            await call(transport)

    assert refused.value.error == error


async def test_pushes_on_a_requests_stream_go_to_it_and_questions_are_answered(opened, listener, make_listener):
    async def answer(asked: Asked, reply: Reply) -> None:
        if asked.method != "POST" or asked.message.get("method") != "tools/call":
            await friendly(asked, reply)
            return
        await reply.stream()
        for number in range(3):
            await reply.event({"jsonrpc": "2.0", "method": "n", "params": {"n": number}}, "event: message")
        await reply.event({"jsonrpc": "2.0", "method": "other"}, "event: strange")
        for name, method in (("a", "sampling/createMessage"), ("b", "roots/list"), ("c", "ping")):
            await reply.event({"jsonrpc": "2.0", "id": name, "method": method, "params": {}})
        await server.until(lambda: server.methods.count("-") == 3)
        await reply.event({"jsonrpc": "2.0", "id": asked.message["id"], "result": {"done": True}})
        await reply.end()

    mine = make_listener()
    async with raw_server(answer) as server, opened(server.url) as transport:
        await shake(transport)
        assert await call(transport, mine) == {"done": True}

    assert mine.heard == [("n", {"n": 0}), ("n", {"n": 1}), ("n", {"n": 2})]
    assert listener.heard == []
    answers = [asked for asked in server.asked if asked.method == "POST" and "method" not in asked.message]
    told = {asked.message["id"]: asked.message for asked in answers}
    assert told["a"]["result"] == {"method": "sampling/createMessage"}
    assert told["b"]["error"] == {"code": -32601, "message": "no roots"}
    assert told["c"]["result"] == {}
    assert {asked.headers["mcp-session-id"] for asked in answers} == {"s-1"}


async def test_events_that_are_no_messages_harm_nobody(opened, listener):
    async def answer(asked: Asked, reply: Reply) -> None:
        await reply.stream()
        number = asked.message["id"]
        late = b'{"jsonrpc":"2.0","id":99,"result":'
        for data in (b"Welcome!", b"[1]", late + b"{}}", late + b"7}"):
            await reply.chunk(b"data: " + data + b"\n\n")
        await reply.event({"jsonrpc": "2.0", "id": 99, "error": {"code": 1, "message": "x"}})
        await reply.event({"jsonrpc": "2.0", "id": number, "result": {"fine": True}})
        await reply.end()

    async with raw_server(answer) as server, opened(server.url) as transport:
        assert await call(transport) == {"fine": True}

    assert listener.heard == []


async def test_answer_in_an_event_that_nobody_can_use_fails_its_own_request(opened):
    async def answer(asked: Asked, reply: Reply) -> None:
        await reply.stream()
        await reply.event({"jsonrpc": "2.0", "id": asked.message["id"], "result": 7})
        await reply.end()

    async with raw_server(answer) as server, opened(server.url) as transport:
        with pytest.raises(NoAnswer, match="not a JSON-RPC response"):
            await call(transport)


@pytest.mark.parametrize("way", ["event", "body"])
async def test_answer_in_a_batch_is_taken_where_the_version_has_batches_and_else_named(opened, listener, way):
    async def answer(asked: Asked, reply: Reply) -> None:
        note = {"jsonrpc": "2.0", "method": "n", "params": {}}
        batch = json.dumps([{"jsonrpc": "2.0", "id": asked.message["id"], "result": {}}, note])
        if way == "body":
            await reply.whole(200, batch.encode(), "application/json")
            return
        await reply.stream()
        await reply.chunk(f"data: {batch}\n\n".encode())

    async with raw_server(answer) as server, opened(server.url) as wire:
        wire.use_version("2025-03-26")
        assert await call(wire, listener) == {}
        wire.use_version("2025-06-18")
        with pytest.raises(NoAnswer, match="its answer came in a JSON-RPC batch, which MCP 2025-06-18 does not have"):
            await call(wire, listener)

    assert listener.heard == ([("n", {})] if way == "event" else [])


async def test_question_that_the_server_takes_back_is_not_answered(opened, make_listener):
    async def answer(asked: Asked, reply: Reply) -> None:
        if asked.method != "POST" or asked.message.get("method") != "tools/call":
            await friendly(asked, reply)
            return
        await reply.stream()
        await reply.event({"jsonrpc": "2.0", "id": "q", "method": "sampling/createMessage"})
        await reply.event({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "q"}})
        await reply.event({"jsonrpc": "2.0", "id": asked.message["id"], "result": {}})
        await reply.end()

    mine = make_listener()
    mine.release.clear()
    async with raw_server(answer) as server, opened(server.url) as transport:
        await shake(transport)
        await call(transport, mine)
        mine.release.set()
        await anyio.wait_all_tasks_blocked()

    assert "-" not in server.methods
    assert mine.heard == []


async def test_stream_may_come_byte_by_byte(opened):
    async def answer(asked: Asked, reply: Reply) -> None:
        await reply.stream()
        body = json.dumps({"jsonrpc": "2.0", "id": asked.message["id"], "result": {"a": "ü"}}, ensure_ascii=False)
        for byte in f": hello\r\ndata: {body}\r\n\r\n".encode():
            await reply.chunk(bytes([byte]))
        await reply.end()

    async with raw_server(answer) as server, opened(server.url) as transport:
        assert await call(transport) == {"a": "ü"}


async def test_modern_server_that_asks_instead_of_answering_gets_no_post(opened):
    async def answer(asked: Asked, reply: Reply) -> None:
        await reply.stream()
        await reply.event({"jsonrpc": "2.0", "id": "q", "method": "ping"})
        await reply.event({"jsonrpc": "2.0", "id": asked.message["id"], "result": {}})
        await reply.end()

    async with raw_server(answer) as server, opened(server.url) as transport:
        transport.use_version(MODERN)
        await call(transport)
        await anyio.wait_all_tasks_blocked()

    assert server.methods == ["tools/call"]


@pytest.mark.parametrize(
    ("status", "kind", "body", "words"),
    [
        (401, "", b"", "HTTP 401 Unauthorized: .*`headers`, or `oauth`"),
        (
            403,
            "application/json",
            b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}',
            "HTTP 403 Forbidden",
        ),
        (404, "text/html", b"<h1>no</h1>", "HTTP 404 Not Found: check the `url`"),
        (405, "", b"", "HTTP 405 Method Not Allowed: check that the `url`"),
        (413, "text/plain", b"too\x1b[31m large", r"HTTP 413 .*\(too\\x1b\[31m large\)"),
        (502, "text/html", b"<p>", "HTTP 502 Bad Gateway$"),
        (599, "", b"", "HTTP 599$"),
        (202, "", b"", "accepted the request but sent no answer"),
        (200, "text/html", b"<html>", "of type 'text/html'; expected application/json or text/event-stream"),
        (200, "application/json", b"", "not a JSON-RPC response"),
        (200, "application/json", b"[]", "not a JSON-RPC response"),
        (200, "application/json", b'{"jsonrpc":"2.0","id":1,"result":[]}', "not a JSON-RPC response"),
        (200, "application/json", b'{"jsonrpc":"2.0","id":99,"result":{}}', "not a response to this request"),
        (200, "application/json", b'{"jsonrpc":"2.0","method":"n"}', "not a response to this request"),
        (301, "", b"", "HTTP 301"),
    ],
)
async def test_answer_that_nobody_can_use_fails_its_own_request_and_says_what_it_was(opened, status, kind, body, words):
    async def answer(asked: Asked, reply: Reply) -> None:
        if len(server.asked) == 1:
            await reply.whole(status, body, kind)
        else:
            await reply.result(asked, {"fine": True})

    async with raw_server(answer) as server, opened(server.url) as transport:
        with pytest.raises(NoAnswer, match=words):
            await call(transport)
        assert await call(transport) == {"fine": True}
        assert not transport.closed.is_set()


async def test_half_a_surrogate_pair_in_an_answer_becomes_a_replacement_character(opened):
    async def answer(asked: Asked, reply: Reply) -> None:
        await reply.whole(200, rb'{"jsonrpc":"2.0","id":1,"result":{"a":"\ud800"}}', "application/json")

    async with raw_server(answer) as server, opened(server.url) as transport:
        assert await call(transport) == {"a": "\ufffd"}


@pytest.mark.parametrize("way", ["length", "chunks", "event"])
async def test_answer_over_the_bound_fails_its_own_request_and_says_which_limit(opened, way):
    async def answer(asked: Asked, reply: Reply) -> None:
        length = asked.message["params"]["arguments"]["length"]
        body = json.dumps({"jsonrpc": "2.0", "id": asked.message["id"], "result": {"a": "x" * length}}).encode()
        if way == "length":
            await reply.whole(200, body, "application/json")
        elif way == "event":
            await reply.stream()
            await reply.chunk(b"data: " + body + b"\n\n")
            await reply.end()
        else:
            await reply.head(200, {"content-type": "application/json", "transfer-encoding": "chunked"})
            for start in range(0, len(body), 10_000):
                await reply.chunk(body[start : start + 10_000])
            await reply.end()

    async with raw_server(answer) as server, opened(server.url) as transport:
        assert len((await call(transport, length=99_000))["a"]) == 99_000
        with pytest.raises(NoAnswer, match=r"100000 bytes is over the limit \(limits.result_bytes\)"):
            await call(transport, length=1_000_000)
        assert (await call(transport, length=1))["a"] == "x"


ENDLESS = {
    "answer": (b'data: {"jsonrpc":"2.0","id":1,"result":{"a":"', b"x", "100000 bytes is over the limit"),
    "answer of many lines": (b"data: x\n", b"data: xxxxx\n", "100000 bytes is over the limit"),
    "notification": (b'data: {"jsonrpc":"2.0","method":"n","params":{"a":"', b"x", "more than 200000 bytes"),
    "comment": (b":", b"x", "100000 bytes is over the limit"),
    "id": (b"id: ", b"x", "100000 bytes is over the limit"),
    "kind": (b"event: ", b"x", "100000 bytes is over the limit"),
    "pause": (b"retry: ", b"9", "100000 bytes is over the limit"),
}


@pytest.mark.parametrize("what", ENDLESS)
async def test_stream_that_never_comes_to_the_end_of_something_is_left_at_the_bound(opened, what):
    begun, piece, words = ENDLESS[what]
    left = asyncio.Event()

    async def answer(asked: Asked, reply: Reply) -> None:
        if asked.message.get("params", {}).get("arguments"):
            await reply.result(asked, {"fine": True})
            return
        await reply.stream()
        await reply.chunk(begun)
        try:
            while True:
                await reply.chunk(piece * 1000)
        finally:
            left.set()

    async with raw_server(answer) as server, opened(server.url) as transport:
        with pytest.raises(NoAnswer, match=words):
            await call(transport)
        with anyio.fail_after(20):
            await left.wait()
        assert await call(transport, fine=True) == {"fine": True}


@pytest.mark.parametrize(
    "framing", [b"4;" + b"x" * 2_000_000, b"0\r\n" + b"x: y\r\n" * 400_000], ids=["extension", "trailers"]
)
async def test_framing_of_a_body_that_never_ends_is_left_at_a_bound(opened, framing):
    async def answer(asked: Asked, reply: Reply) -> None:
        await reply.head(200, {"content-type": "application/json", "transfer-encoding": "chunked"})
        await reply.chunk(b"{")
        await reply.raw(framing)
        await reply.gone()

    async with raw_server(answer) as server, opened(server.url) as transport:
        with pytest.raises(NoAnswer, match=r"chunk headers or trailers of its answer are over|not valid HTTP/1.1"):
            await call(transport)


async def test_event_that_can_not_be_read_and_answers_the_request_fails_it_at_once(opened):
    async def answer(asked: Asked, reply: Reply) -> None:
        await reply.stream()
        await reply.chunk(b'data: {"jsonrpc":"2.0","id":1,"result":' + b"[" * 40_000 + b"]" * 40_000 + b"}\n\n")
        await reply.gone()

    async with raw_server(answer) as server, opened(server.url) as transport:
        with pytest.raises(NoAnswer, match="nested too deeply"):
            await call(transport)


async def test_long_notification_is_dropped_and_the_answer_behind_it_is_not(opened, listener):
    async def answer(asked: Asked, reply: Reply) -> None:
        await reply.stream()
        await reply.event({"jsonrpc": "2.0", "method": "n", "params": {"a": "x" * 200_000}})
        await reply.event({"jsonrpc": "2.0", "id": asked.message["id"], "result": {}})
        await reply.end()

    async with raw_server(answer) as server, opened(server.url) as transport:
        assert await call(transport) == {}

    assert listener.heard == []


async def test_address_where_nobody_listens_got_nothing(opened):
    async with raw_server(friendly) as server:
        pass
    async with opened(server.url) as transport:
        with pytest.raises(LinkLost, match=f"can't connect to http://127.0.0.1:{server.port}: ") as lost:
            await call(transport)
        assert not lost.value.sent
        await transport.notify("notifications/x")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"", "before it answered"),
        (b"HTTP/1.1 200 OK\r\ncontent-ty", "in the middle"),
        (b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{", "in the middle"),
        (
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n5\r\ndata",
            "in the",
        ),
        (
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n: ends with the connection\n\n",
            "before the answer",
        ),
    ],
)
async def test_connection_that_ends_before_the_answer_loses_the_request_and_not_the_wire(opened, said, words):
    async def answer(asked: Asked, reply: Reply) -> None:
        if len(server.asked) > 1:
            await reply.result(asked, {"fine": True})
            return
        await reply.raw(said)
        reply.drop()

    async with raw_server(answer) as server, opened(server.url) as transport:
        with pytest.raises(LinkLost, match=words) as lost:
            await call(transport)
        assert lost.value.sent
        assert await call(transport) == {"fine": True}


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 101 Go\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: ",
    ],
)
async def test_what_is_no_http_fails_its_own_request(opened, said):
    async def answer(asked: Asked, reply: Reply) -> None:
        await reply.raw(said + b"y" * 70_000 * said.endswith(b"x: "))
        await reply.gone()

    async with raw_server(answer) as server, opened(server.url) as transport:
        with pytest.raises(NoAnswer, match=r"not valid HTTP/1.1|the head of its answer"):
            await call(transport)


async def test_answer_whose_compression_nobody_can_read_is_refused(opened):
    async def answer(asked: Asked, reply: Reply) -> None:
        await reply.result(asked, {}, content_encoding="compress")

    async with raw_server(answer) as server, opened(server.url) as transport:
        with pytest.raises(NoAnswer, match="compressed with 'compress'"):
            await call(transport)


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_answer_in_br_is_read_though_it_was_not_asked_for(opened, kind):
    async def answer(asked: Asked, reply: Reply) -> None:
        text = json.dumps({"jsonrpc": "2.0", "id": asked.message["id"], "result": {"found": "ä" * 5000}})
        body = text if kind == "application/json" else f"data: {text}\n\n"
        await reply.whole(200, brotli.compress(body.encode()), kind, content_encoding="br")

    async with raw_server(answer) as server, opened(server.url) as transport:
        assert await call(transport) == {"found": "ä" * 5000}


async def test_announcement_before_the_answer_is_passed_over(opened):
    async def answer(asked: Asked, reply: Reply) -> None:
        await reply.raw(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n")
        await reply.result(asked, {"fine": True})

    async with raw_server(answer) as server, opened(server.url) as transport:
        assert await call(transport) == {"fine": True}


async def test_body_without_length_ends_with_its_connection(opened):
    async def answer(asked: Asked, reply: Reply) -> None:
        await reply.head(200, {"content-type": "application/json"})
        await reply.raw(b'{"jsonrpc":"2.0","id":1,"result":{"fine":true}}')
        reply.drop()

    async with raw_server(answer) as server, opened(server.url) as transport:
        assert await call(transport) == {"fine": True}


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


@pytest.mark.parametrize("location", ["/mcp/", "http://127.0.0.1:{port}/mcp/"])
async def test_redirect_within_the_origin_is_followed_and_remembered(opened, location):
    async def answer(asked: Asked, reply: Reply) -> None:
        if asked.target == "/mcp":
            await reply.whole(307, location=location.format(port=server.port))
        else:
            await reply.result(asked, {"at": asked.target})

    async with raw_server(answer) as server, opened(server.url) as transport:
        assert await call(transport) == {"at": "/mcp/"}
        assert await call(transport) == {"at": "/mcp/"}

    assert [asked.target for asked in server.asked] == ["/mcp", "/mcp/", "/mcp/"]


@pytest.mark.parametrize(
    "location", ["http://localhost:{port}/mcp/", "https://127.0.0.1:{port}/", "file:///etc/passwd"]
)
async def test_redirect_elsewhere_is_refused_and_nothing_goes_there(opened, location):
    async def answer(asked: Asked, reply: Reply) -> None:
        await reply.whole(307, location=location.format(port=server.port))

    async with (
        raw_server(answer) as server,
        opened(server.url, headers={"authorization": "Bearer s3cret"}) as transport,
    ):
        with pytest.raises(NoAnswer, match="it redirects"):
            await call(transport)

    assert len(server.asked) == 1


async def test_redirects_without_end_are_given_up(opened):
    async def answer(asked: Asked, reply: Reply) -> None:
        await reply.whole(308, location=asked.target + "/")

    async with raw_server(answer) as server, opened(server.url) as transport:
        with pytest.raises(NoAnswer, match=r"it redirects to '/mcp////' \(HTTP 308 .*set the `url`"):
            await call(transport)

    assert len(server.asked) == 4


async def test_redirect_that_would_lose_the_request_says_where_it_leads_and_what_to_do(opened):
    async def answer(_: Asked, reply: Reply) -> None:
        await reply.whole(303, location="/else\x9bwhere" + "/" * 1000)

    words = r"it redirects to '/else.*where/.*\(HTTP 303 .*set the `url`"
    async with raw_server(answer) as server, opened(server.url) as transport:
        with pytest.raises(NoAnswer, match=words) as refused:
            await call(transport)

    assert len(server.asked) == 1
    assert len(str(refused.value)) < 400
    assert str(refused.value).isprintable()


async def test_calls_one_after_the_other_share_one_connection_and_at_once_each_has_its_own(opened):
    async def answer(asked: Asked, reply: Reply) -> None:
        if asked.message["params"]["arguments"].get("stream"):
            await reply.stream()
            await reply.event({"jsonrpc": "2.0", "id": asked.message["id"], "result": {}})
            await anyio.wait_all_tasks_blocked()
            await reply.end()
        else:
            await reply.result(asked, {"n": asked.message["id"]})

    async with (
        raw_server(answer) as server,
        open_http_client() as client,
        opened(server.url, client=client) as transport,
    ):
        for _ in range(5):
            await call(transport)
        assert server.connections == 1
        for _ in range(5):
            await call(transport, stream=True)
            with anyio.fail_after(20):
                while client._draining:
                    await anyio.wait_all_tasks_blocked()
        assert server.connections == 1
        results = await asyncio.gather(*(call(transport) for _ in range(50)))

    assert sorted(result["n"] for result in results) == list(range(11, 61))
    assert server.connections == 50


async def test_connection_that_the_server_closed_while_it_was_idle_is_not_used_again(opened):
    async def answer(asked: Asked, reply: Reply) -> None:
        await reply.result(asked, {})
        reply.drop()

    async with raw_server(answer) as server, opened(server.url) as transport:
        for _ in range(5):
            await call(transport)
            await anyio.wait_all_tasks_blocked()

    assert server.connections == 5


async def test_bytes_that_nobody_asked_for_end_the_connection_and_answer_nobody(opened):
    async def answer(asked: Asked, reply: Reply) -> None:
        body = b'{"jsonrpc":"2.0","id":%d,"result":{"own":true}}' % asked.message["id"]
        smuggled = b'{"jsonrpc":"2.0","id":%d,"result":{"own":false}}' % (asked.message["id"] + 1)
        text = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
        await reply.raw(text % (len(body), body) + text % (len(smuggled), smuggled))

    async with raw_server(answer) as server, opened(server.url) as transport:
        for _ in range(3):
            assert await call(transport) == {"own": True}

    assert server.connections == 3


async def test_slow_reader_makes_the_server_wait():
    async def answer(asked: Asked, reply: Reply) -> None:
        await reply.stream()
        while True:
            await reply.chunk(b": " + b"x" * 100_000 + b"\n")

    async with raw_server(answer) as server, open_http_client() as client:
        connection = await client.take(Origin(False, "127.0.0.1", server.port))
        connection.send("POST", "/", b"", b"{}")
        await connection.head()
        before = -1
        while before != connection._unread:
            before = connection._unread
            await anyio.wait_all_tasks_blocked()
        assert 256 * 1024 < before < 1_000_000
        assert len(await connection.chunk()) == before
        assert await connection.chunk()
        client.give(connection)


async def test_hundred_sessions_leave_no_descriptor_and_no_task(opened, descriptors, soon):
    async with raw_server(friendly) as server:
        async with opened(server.url) as transport:
            await shake(transport)
        await anyio.wait_all_tasks_blocked()
        before, tasks = descriptors(), len(asyncio.all_tasks())
        for _ in range(100):
            async with opened(server.url) as transport:
                await shake(transport)
                await transport.notify("notifications/initialized")

        await soon(lambda: descriptors() <= before)
        await soon(lambda: len(asyncio.all_tasks()) <= tasks)
