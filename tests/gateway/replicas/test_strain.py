"""What is slow, silent, crowded or broken between replicas costs no session that lives, and nothing is left."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import wait_all_tasks_blocked

from gateway.errors import OwnerGone
from gateway.replicas import Replica
from gateway.replicas.connected import Connected
from gateway.replicas.link import Link
from gateway.replicas.messages import BODY, FORWARDED, REQUEST, START
from gateway.serve.mcp.frames import FramedMcp
from tests.gateway.replicas.test_forwarding import KEYS, Client, answer, free_ports, read, scope, site

pytestmark = pytest.mark.anyio

STREAM = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}


async def echo(scope: Any, receive: Any, send: Any) -> None:
    await answer(send, 200, await read(receive))


@pytest.fixture(autouse=True)
async def unhandled() -> AsyncGenerator[list[dict[str, Any]]]:
    """What nobody caught in a task or a callback; there must be none."""
    found: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: found.append(context))
    yield found
    assert found == []


async def test_client_that_sends_its_body_slowly_is_no_stranger_to_the_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.replicas.listener._PROOF_TIME", 0.05)

    async with site(echo) as at:

        class Slow(Client):
            async def receive(self) -> dict[str, Any]:
                # As long as a connection that says nothing is let be.
                host, _, port = at.owner.address.rpartition(":")
                reader, writer = await asyncio.open_connection(host, int(port))
                await reader.read()
                writer.close()
                return await super().receive()

        client = await at.forward(Slow(b"late"))

    assert (client.status, client.parts) == (200, [b"late"])


async def test_crowd_that_comes_at_once_is_let_in() -> None:
    clients = [Client(b"%d" % n) for n in range(400)]
    async with site(echo) as at, anyio.create_task_group() as tasks:
        for client in clients:
            tasks.start_soon(at.forward, client)

    assert [client.parts for client in clients] == [[b"%d" % n] for n in range(400)]


@pytest.mark.parametrize("when", ["before it answers", "in the middle of an answer", "in the middle of a stream"])
async def test_owner_that_falls_silent_is_gone(monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    monkeypatch.setattr("gateway.replicas.forwarder._SILENCE", 0.05)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await read(receive)
        if when != "before it answers":
            await send(STREAM if "stream" in when else {**STREAM, "headers": []})
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
        await anyio.sleep_forever()

    client = Client()
    async with site(app) as at:
        if "stream" in when:
            await at.forward(client)
        else:
            with pytest.raises(OwnerGone, match="broke off"):
                await at.forward(client)

    assert (client.parts, client.over) == (([b"half", b""], True) if "stream" in when else ([], False))


@asynccontextmanager
async def pretender(serve: Callable[[Link], Any]) -> AsyncGenerator[Replica]:
    """A replica that has the secret, and says what it likes."""

    async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = await Link.open(reader, writer, KEYS, "answers")
        await link.receive()
        await serve(link)
        with suppress(OSError):
            await reader.read()
        writer.close()
        over.set()

    over = asyncio.Event()
    server = await asyncio.start_server(met, "127.0.0.1", 0)
    async with server:
        yield Replica(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", b"x" * 8)
        with anyio.fail_after(20):
            await over.wait()


async def test_owner_that_takes_nothing_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.replicas.forwarder._SILENCE", 0.05)
    client, over = Client(b"x" * 30_000_000), asyncio.Event()

    async def serve(link: Link) -> None:
        await over.wait()

    async with pretender(serve) as owner:
        with anyio.fail_after(20), pytest.raises(OwnerGone):
            await Connected(KEYS, "127.0.0.1", 1).forward(owner, scope(), client.receive, client.send)
        over.set()


@pytest.mark.parametrize("said", [b"[" * 500_000, b"{}", b"\xff", b'{"status": [], "headers": []}', b'{"status": 200}'])
async def test_answer_that_can_not_be_read_is_an_owner_that_is_gone(said: bytes) -> None:
    async def serve(link: Link) -> None:
        await link.send((START, said))

    client = Client()
    async with pretender(serve) as owner:
        with anyio.fail_after(20), pytest.raises(OwnerGone):
            await Connected(KEYS, "127.0.0.1", 1).forward(owner, scope(), client.receive, client.send)

    assert client.status == 0


async def test_stream_that_is_broken_ends_and_is_not_told_of_after_it_has_begun() -> None:
    async def serve(link: Link) -> None:
        headers = [["content-type", "text/event-stream"]]
        await link.send((START, b'{"status": 200, "headers": %s}' % str(headers).replace("'", '"').encode()))
        await link.send((BODY, b"one"), (START, b"again"))

    client = Client()
    async with pretender(serve) as owner:
        with anyio.fail_after(20):
            await Connected(KEYS, "127.0.0.1", 1).forward(owner, scope(), client.receive, client.send)

    assert (b"".join(client.parts), client.over) == (b"one", True)


@pytest.mark.parametrize(
    "said", [b"[" * 500_000, b"{}", b'{"client": null, "method": "GET", "scheme": "x", "path": 1}']
)
async def test_request_that_can_not_be_read_ends_its_connection_and_nothing_else(said: bytes) -> None:
    async with site(echo) as at:
        host, _, port = at.owner.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        link = await Link.open(reader, writer, KEYS, "asks")
        await link.send((REQUEST, said))
        with anyio.fail_after(20):
            assert await link.receive() is None
        link.close()
        client = await at.forward(Client(b"x"))

    assert client.parts == [b"x"]


async def test_replica_that_stops_ends_what_it_still_answers_and_what_rests() -> None:
    here, ended = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if await read(receive) == b"quick":
            await answer(send, 200)
            return
        here.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    async def ask(at: Any) -> None:
        with pytest.raises(OwnerGone):
            await at.forward(Client())

    async with anyio.create_task_group() as tasks:
        async with site(app) as at:
            await at.forward(Client(b"quick"))
            tasks.start_soon(ask, at)
            with anyio.fail_after(20):
                await here.wait()
        # Before anything that it needs is taken from it.
        assert ended.is_set()


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_connections_to_replicas_that_have_ended_are_not_kept() -> None:
    asks, *owners = (Connected(KEYS, "127.0.0.1", port) for port in free_ports(7))
    files: list[int] = []
    async with asks.listening(echo):
        for owner in owners:
            async with owner.listening(echo):
                found = asks.owner("session", owner.name("session", "ann"), "ann", {})
                assert found is not None
                client = Client()
                with anyio.fail_after(20):
                    await asks.forward(found, scope(), client.receive, client.send)
            await wait_all_tasks_blocked()
            files.append(open_files())

    assert files[-1] <= files[1]


async def test_machine_that_vanishes_is_noticed_by_both_sides_however_long_nothing_is_said() -> None:
    looked: list[int] = []

    async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await Link.open(reader, writer, KEYS, "answers")
        looked.append(writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
        await reader.read()
        writer.close()
        over.set()

    over = asyncio.Event()
    async with await asyncio.start_server(met, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        await Link.open(reader, writer, KEYS, "asks")
        looked.append(writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
        writer.close()
        with anyio.fail_after(20):
            await over.wait()

    assert looked == [1, 1]


async def test_replica_that_stops_ends_the_streams_that_it_passes_on() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await read(receive)
        await send(STREAM)
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await receive()

    client = Client()
    async with site(app) as at, anyio.create_task_group() as tasks:
        tasks.start_soon(at.forward, client)
        with anyio.fail_after(20):
            await client.got.wait()
        at.asks.end_streams()

    assert (b"".join(client.parts), client.over) == (b"one", True)


async def test_frames_that_the_query_asks_for_are_made_once_and_stream() -> None:
    go_on = asyncio.Event()
    there: list[Any] = []

    async def endpoint(scope: Any, receive: Any, send: Any) -> None:
        if FORWARDED not in scope:
            await there[0].asks.forward(there[0].owner, scope, receive, send)
            return
        await read(receive)
        await send(STREAM)
        await send({"type": "http.response.body", "body": b'data: {"a": 1}\n\n', "more_body": True})
        await go_on.wait()
        await send({"type": "http.response.body", "body": b'data: {"b": 2}\n\n'})

    framed = FramedMcp(endpoint, {}, 1000, lambda map_id: None)
    client = Client()

    async def ask(scope: Any) -> None:
        await framed(scope, client.receive, client.send)

    async with site(framed) as at, anyio.create_task_group() as tasks:
        there.append(at)
        asking = scope(query_string=b"stream_format=msgpack")
        tasks.start_soon(ask, asking)
        with anyio.fail_after(20):
            await client.got.wait()
        assert client.parts == [b"\0\0\0\x04\x81\xa1a\x01"]
        go_on.set()

    assert b"".join(client.parts).endswith(b"\x81\xa1b\x02")
