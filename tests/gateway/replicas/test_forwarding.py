"""A request that another replica answers is answered as if it had been asked there, or its owner is told to be gone."""

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from bench.processes import free_ports
from gateway.errors import OwnerGone
from gateway.replicas import Replica
from gateway.replicas.connected import Connected
from gateway.replicas.forwarder import FORWARDED
from gateway.replicas.sealed_records import HELLO_BYTES, Hello, ReplicaKeys

pytestmark = pytest.mark.anyio

KEYS = ReplicaKeys([b"n" * 32])


@dataclass
class Client:
    """What an ASGI server hands to an app, and what it got."""

    body: bytes = b""
    left: asyncio.Event = field(default_factory=asyncio.Event)
    watched: asyncio.Event = field(default_factory=asyncio.Event)
    status: int = 0
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    parts: list[bytes] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    got: asyncio.Event = field(default_factory=asyncio.Event)
    over: bool = False
    _told: bool = False

    async def receive(self) -> dict[str, Any]:
        if not self._told:
            self._told = True
            return {"type": "http.request", "body": self.body}
        self.watched.set()
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], list(message["headers"])
            self.begun.set()
            return
        self.parts.append(message.get("body", b""))
        self.over = not message.get("more_body", False)
        self.got.set()


def scope(path: str = "/mcp", **more: Any) -> dict[str, Any]:
    headers = [(b"x-one", b"\xe9"), (b"connection", b"close"), (b"authorization", b"Bearer k")]
    about = {"type": "http", "method": "POST", "scheme": "http", "path": path, "query_string": b"a=%20"}
    return {**about, "headers": headers, "client": ("192.0.2.7", 4711), **more}


async def read(receive: Callable[[], Any]) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += message["body"]
        if not message["more_body"]:
            return body


async def answer(send: Callable[[Any], Any], status: int, *parts: bytes, kind: bytes = b"application/json") -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
    for part in parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@dataclass(frozen=True)
class Site:
    """Two replicas: one asks, the other has it."""

    asks: Connected
    owner: Replica

    async def forward(self, client: Client, **more: Any) -> Client:
        with anyio.fail_after(20):
            await self.asks.forward(self.owner, scope(**more), client.receive, client.send)
        return client


@asynccontextmanager
async def site(app: Any) -> AsyncGenerator[Site]:
    async with AsyncExitStack() as stack:
        asks, owner = (Connected(KEYS, "127.0.0.1", port) for port in free_ports(2))
        await stack.enter_async_context(asks.listening(app))
        await stack.enter_async_context(owner.listening(app))
        found = asks.owner("session", owner.name("session", "ann"), "ann", {})
        assert found is not None
        yield Site(asks, found)


@pytest.mark.parametrize("size", [0, 1, 300_000, 3_000_000])
async def test_request_and_answer_come_as_they_were(size: int) -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)
        body = await read(receive)
        await answer(send, 201, body[: size // 2], body[size // 2 :])

    body = bytes(n % 251 for n in range(size))
    async with site(app) as at:
        clients = [await at.forward(Client(body)) for _ in range(3)]

    for client in clients:
        assert (client.status, b"".join(client.parts), client.over) == (201, body, True)
        assert client.headers == [(b"content-type", b"application/json")]
    for told in seen:
        assert (told["method"], told["path"], told["query_string"]) == ("POST", "/mcp", b"a=%20")
        assert told["client"] == ("192.0.2.7", 4711)
        # What belongs to one connection alone stays there.
        assert told["headers"] == [(b"x-one", b"\xe9"), (b"authorization", b"Bearer k")]
        assert FORWARDED in told


async def test_stream_is_passed_on_as_it_comes() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await read(receive)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        await begun.wait()
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await go_on.wait()
        await send({"type": "http.response.body", "body": b"two"})

    client = Client()
    async with site(app) as at, anyio.create_task_group() as tasks:
        tasks.start_soon(at.forward, client)
        with anyio.fail_after(20):
            await client.begun.wait()
            begun.set()
            await client.got.wait()
        assert (client.parts, client.over) == ([b"one"], False)
        go_on.set()

    assert (b"".join(client.parts), client.over) == (b"onetwo", True)


async def test_client_that_leaves_is_gone_for_the_owner_too() -> None:
    here, left = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await read(receive)
        here.set()
        if (await receive())["type"] == "http.disconnect":
            left.set()

    client = Client()
    async with site(app) as at, anyio.create_task_group() as tasks:

        async def ask() -> None:
            with pytest.raises(OwnerGone) as raised:
                await at.forward(client)
            assert raised.value.asked

        tasks.start_soon(ask)
        with anyio.fail_after(20):
            await here.wait()
            client.left.set()
            await left.wait()

    assert client.status == 0


async def test_client_that_is_gone_before_its_request_was_read_asks_nobody() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("nothing may be asked")

    client = Client(_told=True)
    client.left.set()
    async with site(app) as at:
        with pytest.raises(OwnerGone, match="its client disconnected") as raised:
            await at.forward(client)

    assert raised.value.asked


class Parts(Client):
    """A client that sends its body in parts."""

    def __init__(self, *parts: bytes) -> None:
        super().__init__()
        self._parts = list(parts)

    async def receive(self) -> dict[str, Any]:
        if not self._parts:
            return await super().receive()
        return {"type": "http.request", "body": self._parts.pop(0), "more_body": True}


async def test_body_that_comes_in_parts_is_passed_on_and_its_connection_used_again() -> None:
    connections, bodies = set[int](), list[bytes]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        connections.add(id(receive.__self__._link))
        bodies.append(await read(receive))
        await answer(send, 200)

    async with site(app) as at:
        clients = [await at.forward(Parts(b"one", b"", b"two")) for _ in range(3)]

    assert bodies == [b"onetwo"] * 3
    assert [client.status for client in clients] == [200] * 3
    assert len(connections) == 1


async def test_client_that_leaves_in_the_middle_of_its_body_is_gone_for_the_owner_too() -> None:
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while not seen or seen[-1] == "http.request":
            seen.append((await receive())["type"])

    client = Parts(b"one")
    client._told = True
    client.left.set()
    async with site(app) as at:
        with pytest.raises(OwnerGone, match="its client disconnected") as raised:
            await at.forward(client)
        with anyio.fail_after(20):
            while seen[-1:] != ["http.disconnect"]:
                await anyio.lowlevel.checkpoint()

    assert raised.value.asked


async def test_request_that_was_looked_after_is_freed_without_the_garbage_collector() -> None:
    client = Client()
    kept, watched = weakref.ref(client), client.watched

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await read(receive)
        await watched.wait()
        await answer(send, 200, b"x")

    gc.disable()
    try:
        async with site(app) as at:
            await at.forward(client)
            del client
            await anyio.wait_all_tasks_blocked()
            assert kept() is None
    finally:
        gc.enable()


async def test_request_that_goes_on_behind_its_answer_holds_up_nothing_on_its_connection() -> None:
    go_on, ended = asyncio.Event(), list[str]()
    connections = set[int]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await read(receive)
        connections.add(id(receive.__self__._link))
        looking = asyncio.ensure_future(receive())
        await answer(send, 200, b"one", kind=b"text/event-stream")
        if scope["path"] == "/slow":
            await go_on.wait()
            assert (await looking)["type"] == "http.disconnect"
            assert (await receive())["type"] == "http.disconnect"
        looking.cancel()
        ended.append(scope["path"])

    async with site(app) as at:
        clients = [await at.forward(Client(), path=path) for path in ("/slow", "/slow", "/quick", "/quick")]
        before = list(ended)
        go_on.set()
        with anyio.fail_after(20):
            while len(ended) < 4:
                await anyio.lowlevel.checkpoint()
        clients.append(await at.forward(Client(), path="/quick"))

    assert [(client.status, client.parts[0], client.over) for client in clients] == [(200, b"one", True)] * 5
    assert before == ["/quick", "/quick"]
    assert len(connections) == 1


async def test_app_that_still_looks_for_its_client_when_it_has_answered_keeps_the_connection_whole() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await read(receive)
        watching = asyncio.get_running_loop().create_task(receive())
        await anyio.lowlevel.checkpoint()
        await answer(send, 200, b"x")
        watching.cancel()

    async with site(app) as at:
        clients = [await at.forward(Client()) for _ in range(20)]

    assert [client.parts for client in clients] == [[b"x"]] * 20


@pytest.mark.parametrize("when", ["before", "head", "body"])
async def test_owner_that_fails_is_told_of_before_anything_was_sent(when: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await read(receive)
        if when != "before":
            await send({"type": "http.response.start", "status": 200, "headers": []})
        if when == "body":
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise OSError("the process is killed")

    client = Client()
    async with site(app) as at:
        with pytest.raises(OwnerGone) as raised:
            await at.forward(client)

    assert raised.value.asked
    assert (client.status, client.parts) == (0, [])


async def test_stream_whose_owner_fails_ends() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await read(receive)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        raise OSError("the process is killed")

    async with site(app) as at:
        client = await at.forward(Client())

    assert (b"".join(client.parts), client.over) == (b"one", True)


async def test_owner_that_was_started_anew_is_gone() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("nothing may be asked")

    async with site(app) as at:
        with pytest.raises(OwnerGone, match="was restarted") as raised:
            await at.asks.forward(Replica(at.owner.address, b"x" * 8), scope(), Client().receive, Client().send)

    assert not raised.value.asked


async def test_nobody_at_the_owners_address_is_an_owner_that_is_gone() -> None:
    (port,) = free_ports(1)
    with pytest.raises(OwnerGone, match="can't be reached") as raised:
        await Connected(KEYS, "127.0.0.1", port + 1).forward(
            Replica(f"127.0.0.1:{port}", b"x" * 8), scope(), Client().receive, Client().send
        )

    assert not raised.value.asked


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 400 Bad Request\r\n" + b"x" * 100,
        Hello(KEYS.current[0], b"r" * 32).bytes + b"\0\0\0\x20" + b"x" * 32,
        b"",
    ],
    ids=["another protocol", "a forged record", "nothing"],
)
async def test_what_listens_there_and_is_no_replica_gets_nothing_and_is_an_owner_that_is_gone(said: bytes) -> None:
    heard: list[bytes] = []

    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await writer.drain()
        heard.append(await reader.read(100_000))
        writer.close()

    server = await asyncio.start_server(pretend, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        client = Client(b"secret words")
        with pytest.raises(OwnerGone):
            await Connected(KEYS, "127.0.0.1", port + 1).forward(
                Replica(f"127.0.0.1:{port}", b"x" * 8), scope(), client.receive, client.send
            )

    assert client.status == 0
    assert not any(b"Bearer" in each or b"secret" in each for each in heard)


async def test_request_that_was_sent_on_is_not_sent_on_again() -> None:
    one, other = (Connected(KEYS, "127.0.0.1", port) for port in (1, 2))
    name = one.name("session", "ann")

    assert other.owner("session", name, "ann", scope()) is not None
    assert other.owner("session", name, "ann", scope(**{FORWARDED: True})) is None


async def test_strangers_that_say_nothing_do_not_keep_replicas_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.replicas.connected._UNPROVEN", 3)
    monkeypatch.setattr("gateway.replicas.connected._PROOF_TIME", 0.05)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await read(receive)
        await answer(send, 200)

    async with site(app) as at:
        host, _, port = at.owner.address.rpartition(":")
        strangers = [await asyncio.open_connection(host, int(port)) for _ in range(5)]
        with anyio.fail_after(20):
            for reader, _ in strangers:
                assert len(await reader.read()) <= HELLO_BYTES
        client = await at.forward(Client())
        for _, writer in strangers:
            writer.close()

    assert client.status == 200
