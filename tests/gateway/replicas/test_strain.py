"""What is slow, silent, crowded or broken between replicas costs no session that lives, and nothing is left."""

import asyncio
import itertools
import os
import resource
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import wait_all_tasks_blocked

from bench.processes import free_ports
from gateway.errors import OwnerGone, ReplicaBusy
from gateway.replicas import Replica
from gateway.replicas.connected import Connected
from gateway.replicas.forwarder import ALIVE, BODY, END, REQUEST, START, head_of
from gateway.replicas.link import Link
from gateway.replicas.sealed_records import RecordFault
from tests.gateway.replicas.test_forwarding import KEYS, Client, answer, read, scope, site

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
    monkeypatch.setattr("gateway.replicas.connected._PROOF_TIME", 0.05)

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
            with pytest.raises(OwnerGone, match="that held it broke") as raised:
                await at.forward(client)
            assert raised.value.asked

    assert (client.parts, client.over) == (([b"half", b""], True) if "stream" in when else ([], False))


@asynccontextmanager
async def pretender(serve: Callable[[Link], Any]) -> AsyncGenerator[Replica]:
    """A replica that has the secret, and says what it likes."""

    async def met(link: Link) -> None:
        await link.greeted()
        await link.receive()
        await serve(link)
        with suppress(OSError, RecordFault):
            while await link.receive() is not None:
                pass
        link.close()
        over.set()

    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    def connected(link: Link) -> None:
        tasks.add(loop.create_task(met(link)))

    server = await loop.create_server(lambda: Link(KEYS, "answers", connected), "127.0.0.1", 0)
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
        link = await Link.connect(host, int(port), KEYS)
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
    looked, seconds = list[int](), list[int]()

    class Seen(Link):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            kept = transport.get_extra_info("socket")
            looked.append(kept.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
            silent, apart, probes = (
                kept.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            )
            seconds.append(silent + apart * probes)

    loop = asyncio.get_running_loop()
    async with await loop.create_server(lambda: Seen(KEYS, "answers"), "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        _, link = await loop.create_connection(lambda: Seen(KEYS, "asks"), host, port)
        with anyio.fail_after(20):
            await link.greeted()
        link.close()

    assert looked == [1, 1]
    assert max(seconds) <= 60


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
        at.asks.stop()

    assert (b"".join(client.parts), client.over) == (b"one", True)


async def test_owner_that_has_no_connection_left_is_not_taken_for_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(b"x")
    async with site(echo) as at:
        with monkeypatch.context() as full:
            full.setattr("gateway.replicas.connected._MOST", 0)
            with pytest.raises(ReplicaBusy, match="try again"):
                await at.forward(client)
        assert client.status == 0
        assert (await at.forward(Client(b"x"))).status == 200


async def test_replica_that_has_no_descriptor_left_takes_nobody_for_gone() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with site(echo) as at:
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free_descriptor(), hard))
        try:
            with pytest.raises(ReplicaBusy):
                await at.forward(Client(b"x"))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert (await at.forward(Client(b"x"))).status == 200


def lowest_free_descriptor() -> int:
    free = os.dup(0)
    os.close(free)
    return free


async def test_who_waits_for_a_turn_in_vain_while_others_have_theirs_is_told_that_it_is_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.replicas.link._OPENING", 1)
    monkeypatch.setattr("gateway.replicas.link._CONNECT_TIME", 2.0)
    greets, links = itertools.count(), list[Link]()

    class Once(Link):
        def data_received(self, data: bytes) -> None:
            # The second one is not greeted.
            if self in links or not next(greets):
                links.append(self)
                super().data_received(data)

    def connected(link: Link) -> None:
        served[link] = asyncio.get_running_loop().create_task(serve(link))

    async def serve(link: Link) -> None:
        await link.greeted()
        await link.receive()
        await link.receive()
        await link.send((START, b'{"status": 200, "headers": []}'), (END, b""))

    served: dict[Link, asyncio.Task[None]] = {}
    asks, first = Connected(KEYS, "127.0.0.1", *free_ports(1)), Client()
    server = await asyncio.get_running_loop().create_server(lambda: Once(KEYS, "answers", connected), "127.0.0.1", 0)
    async with server, asks.listening(echo), anyio.create_task_group() as tasks:
        owner = Replica(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", b"x" * 8)

        async def ask_in_vain() -> None:
            with pytest.raises(ReplicaBusy):
                await asks.forward(owner, scope(), Client().receive, Client().send)
            for link, task in served.items():
                task.cancel()
                link.close()

        # Both want their turn before one of them has had it.
        tasks.start_soon(asks.forward, owner, scope(), first.receive, first.send)
        tasks.start_soon(ask_in_vain)

    assert first.status == 200


@pytest.mark.parametrize("reads", [False, True], ids=["unread", "read"])
async def test_answer_that_does_not_wait_for_the_whole_request_reaches_the_client(reads: bool) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if reads:
            await receive()
        await answer(send, 413, b"too large")

    class Endless(Client):
        async def receive(self) -> dict[str, Any]:
            if self._told:
                try:
                    await anyio.sleep_forever()
                finally:
                    self.left.set()
            self._told = True
            return {"type": "http.request", "body": b"x" * 1_000_000, "more_body": True}

    async with site(app) as at:
        client = await at.forward(Endless())
        # Nobody waits for the rest of it.
        with anyio.fail_after(20):
            await client.left.wait()
        other = await at.forward(Client())

    assert (client.status, b"".join(client.parts)) == (413, b"too large")
    assert other.status == 413


async def test_owner_that_takes_its_time_says_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.replicas.connected._ALIVE", 0.01)
    go_on = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await read(receive)
        await go_on.wait()
        await answer(send, 200, b"late")

    async with site(app) as at:
        host, _, port = at.owner.address.rpartition(":")
        link = await Link.connect(host, int(port), KEYS)
        await link.send((REQUEST, head_of(scope(), at.owner.boot)), (END, b""))
        with anyio.fail_after(20):
            assert [await link.receive() for _ in range(3)] == [(ALIVE, b"")] * 3
            client = Client()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(at.forward, client)
                await link.receive()
                go_on.set()
        link.close()

    assert client.parts == [b"late"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_replica_that_stops_tells_who_waits_for_an_answer_of_another(streamed: bool) -> None:
    here = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await read(receive)
        if streamed:
            await send(STREAM)
            await send({"type": "http.response.body", "body": b"one", "more_body": True})
        here.set()
        await receive()

    client, told = Client(), list[Any]()

    def broken(error: Exception) -> bytes:
        told.append(error)
        return b"broken"

    async def ask() -> None:
        try:
            await at.asks.forward(at.owner, scope(), client.receive, client.send, broken)
        except ReplicaBusy as error:
            told.append(error)

    async with site(app) as at, anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        with anyio.fail_after(20):
            await (client.got if streamed else here).wait()
        at.asks.stop()

    assert "is stopping" in str(told[0])
    assert told[0].asked
    assert client.parts == ([b"one", b"broken"] if streamed else [])


async def test_client_that_takes_its_time_to_read_is_no_owner_that_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.replicas.forwarder._SILENCE", 0.05)
    go_on = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await read(receive)
        await send(STREAM)
        for _ in range(30):
            await send({"type": "http.response.body", "body": b"x" * 200_000, "more_body": True})
        await send({"type": "http.response.body", "body": b"end"})

    class Slow(Client):
        async def send(self, message: Any) -> None:
            await super().send(message)
            await go_on.wait()

    client = Slow()
    async with site(app) as at, anyio.create_task_group() as tasks:
        tasks.start_soon(at.forward, client)
        await client.begun.wait()
        # Longer than an owner may be silent, and until nothing moves any more.
        await anyio.sleep(0.3)
        go_on.set()

    assert len(b"".join(client.parts)) == 30 * 200_000 + 3
