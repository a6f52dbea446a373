"""Answers of HTTP servers that nobody can use: each fails its own request and says what it was, within bounds."""

import asyncio
import json

import anyio
import pytest

from gateway.proxy.transport.transport_interface import (
    LinkLost,
    NoAnswer,
)
from tests.gateway.proxy.transport.over_http.requests import call, friendly

from .raw_server import Asked, Reply, raw_server

pytestmark = pytest.mark.anyio


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
