"""The transport over HTTP against a server that answers byte for byte as the test says."""

import asyncio
import json

import anyio
import brotli
import pytest

from gateway.config.address import Origin
from gateway.proxy.transport.http.http_transport import open_http_client
from gateway.proxy.transport.transport_interface import (
    NoAnswer,
    PeerError,
)
from tests.gateway.proxy.transport.over_http.requests import HANDSHAKE, MODERN, call, friendly, shake

from .raw_server import Asked, Reply, raw_server

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\ncontent-type: "


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
