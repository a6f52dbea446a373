"""Clients that leave in the middle, or don't read what they asked for: nobody else may notice."""

import socket
from urllib.parse import urlsplit

import anyio
import pytest

pytestmark = pytest.mark.anyio

MiB = 1024 * 1024


@pytest.fixture(scope="module")
def gateway(tmp_path_factory, run_gateway, faulty):
    """One for all: each of these clients must leave it as it was."""
    with run_gateway(tmp_path_factory.mktemp("clients"), {"bad": faulty(), "good": faulty()}) as running:
        yield running


def unread(url: str, request: bytes) -> socket.socket:
    """A connection whose request went out and whose answer nobody reads; its buffers are small."""
    parts = urlsplit(url)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((parts.hostname, parts.port))
    connection.sendall(request)
    return connection


def as_bytes(client, method, params) -> bytes:
    """A POST as it goes over the wire."""
    message = client.message(method, params)
    body = message["content"].encode()
    headers = {**message["headers"], "host": "localhost", "content-length": str(len(body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_client_that_does_not_read_its_stream_loses_notifications_and_holds_up_nobody(
    gateway, client_of, memory_of, era
):
    lost = gateway.metric("codec_notifications_dropped_total", reason="slow_client")
    before = memory_of(gateway.process.pid)
    order = {"name": "bad__do", "arguments": {"act": "flood", "count": 20_000}, "_meta": {"progressToken": 1}}
    with anyio.fail_after(60):
        async with client_of(gateway, era) as slow, client_of(gateway, era) as other:
            connection = unread(gateway.url, as_bytes(slow, "tools/call", order))
            answers = [(await other.call("good__do", text=str(number))).text for number in range(50)]
            same = await other.call("bad__do", text="the same server, after the flood")
            dropped = gateway.metric("codec_notifications_dropped_total", reason="slow_client") - lost
            connection.close()

    assert answers == [str(number) for number in range(50)]
    assert same.text == "the same server, after the flood"
    assert dropped > 1000
    assert memory_of(gateway.process.pid) - before < 32 * MiB


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_client_that_leaves_in_the_middle_of_a_call_lets_the_server_hear_of_it(gateway, client_of, told, era):
    with anyio.fail_after(30):
        async with client_of(gateway, era) as client, client_of(gateway, era) as other:
            calls, cancels = len(heard(gateway, "called hang")), len(heard(gateway, "cancelled"))
            connection = unread(gateway.url, as_bytes(client, "tools/call", hang()))
            await told(gateway, "called hang", calls + 1)
            connection.close()
            await told(gateway, "cancelled", cancels + 1)
            after = await other.call("bad__do")

    assert after.text == "done"
    assert gateway.metric("codec_upstream_in_flight", server="bad") == 0


async def test_session_that_is_deleted_in_the_middle_of_its_calls_ends_them_all(gateway, client_of, told):
    with anyio.fail_after(30):
        async with client_of(gateway, "handshake") as client:
            calls, cancels = len(heard(gateway, "called hang")), len(heard(gateway, "cancelled"))
            answers = []

            async def call() -> None:
                answers.append(await client.call("bad__do", act="hang"))

            async with anyio.create_task_group() as tasks:
                for _ in range(5):
                    tasks.start_soon(call)
                await told(gateway, "called hang", calls + 5)
                tasks.start_soon(client.close)
            await told(gateway, "cancelled", cancels + 5)

    assert [answer.failed for answer in answers] == [True] * 5
    assert gateway.metric("codec_upstream_in_flight", server="bad") == 0


async def test_hundred_connections_that_say_nothing_keep_nobody_out(gateway, client_of):
    silent = [unread(gateway.url, b"POST /mcp HTTP/1.1\r\ncontent-length: 100\r\n") for _ in range(100)]
    with anyio.fail_after(30):
        async with client_of(gateway, "modern") as client:
            answer = await client.call("good__do")
    for connection in silent:
        connection.close()

    assert answer.text == "done"


def hang() -> dict[str, object]:
    return {"name": "bad__do", "arguments": {"act": "hang"}}


def heard(gateway, words: str) -> list[str]:
    return [entry["line"] for entry in gateway.log.events("upstream stderr") if words in entry["line"]]
