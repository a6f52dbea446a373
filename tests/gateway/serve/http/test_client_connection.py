"""The HTTP server's bounds, against raw sockets: what a client may send, hold and leave unread before it is known."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import anyio
import pytest
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from gateway.config.access import ConnectionsConfig
from gateway.observe.exposition import read_counter
from gateway.observe.metrics import Metrics
from gateway.serve.http.client_connection import HttpProtocol
from gateway.serve.http.connection_limits import ClientConnections, TrustedProxies
from gateway.serve.http.http_server import http_server

if TYPE_CHECKING:
    from gateway.serve.http.response_writes import GatheredWrites

pytestmark = pytest.mark.anyio

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST_FOUR = b"POST / HTTP/1.1\r\ncontent-length: 4\r\n\r\n\r\n\r\n"
"""Its body looks like the end of a head."""
SLOW = ConnectionsConfig(head_timeout=600, body_timeout=600, idle_timeout=600, write_timeout=600)
"""No test waits for a limit that is not its own."""


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """The loop that the gateway runs on."""
    return "asyncio", {"use_uvloop": True}


@dataclass
class App:
    """Reads the body and answers with its length and `large` more bytes, when `held` is set."""

    large: int = 0
    reads: bool = True
    asked: int = 0
    clients: list[Any] = field(default_factory=list)
    headers: list[Any] = field(default_factory=list)
    gone: anyio.Event = field(default_factory=anyio.Event)
    held: anyio.Event | None = None
    running: anyio.Event = field(default_factory=anyio.Event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked += 1
        self.clients.append(scope["client"])
        self.headers.append(scope["headers"])
        self.running.set()
        size, more = 0, self.reads
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.gone.set()
                return
            size += len(message["body"])
            more = message["more_body"]
        if self.held is not None:
            await self.held.wait()
        body = b"%d" % size + b" " * self.large
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body, "more_body": self.large > 0})
        if self.large:
            while (await receive())["type"] != "http.disconnect":
                pass
            self.gone.set()


@dataclass
class Site:
    """A running server."""

    port: int
    metrics: Metrics
    connections: ClientConnections
    stack: AsyncExitStack

    async def open(self) -> "Client":
        return await self.stack.enter_async_context(_client(self.port))

    async def until_open(self, count: int) -> None:
        """Until so many connections are open."""
        while len(self.connections) != count:  # noqa: ASYNC110 - the kernel tells, and nobody else
            await anyio.sleep(0.01)

    def ended(self) -> dict[str, float]:
        """Reasons for which connections were ended, with how many."""
        counted = read_counter(self.metrics.connections._ended)
        return {reason: count for reason, count in counted.items() if count}


@dataclass
class Client:
    stream: anyio.abc.SocketStream

    async def send(self, data: bytes) -> None:
        await self.stream.send(data)

    async def answer(self) -> bytes:
        """The head of the next answer."""
        return (await self.until(lambda data: b"\r\n\r\n" in data)).split(b"\r\n\r\n")[0]

    async def send_on(self, data: bytes, pause: float = 0.0) -> None:
        """Send it again and again, until the connection ends."""
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            while True:
                await self.stream.send(data)
                await anyio.sleep(pause)

    async def until(self, found: Callable[[bytes], bool]) -> bytes:
        data = b""
        while not found(data):
            data += await self.stream.receive()
        return data

    async def rest(self) -> bytes:
        """Everything until the connection ends."""
        data = b""
        try:
            while True:
                data += await self.stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return data


@asynccontextmanager
async def _client(port: int) -> AsyncGenerator[Client]:
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        yield Client(stream)


@asynccontextmanager
async def serving(
    app: Any, proxies: tuple[str, ...] = (), files: int | None = None, **limits: Any
) -> AsyncGenerator[Site]:
    metrics = Metrics()
    connections = ClientConnections(
        replace(SLOW, **limits), metrics.connections, proxies=TrustedProxies(proxies), files=files
    )
    metrics.connections.follow(connections.__len__)
    server = http_server(app, connections)
    with socket.create_server(("127.0.0.1", 0)) as listener, anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listener])
            async with AsyncExitStack() as stack:
                yield Site(listener.getsockname()[1], metrics, connections, stack)
            server.should_exit = True


async def test_head_of_just_the_bound_passes_and_one_more_byte_gets_431() -> None:
    app = App()
    async with serving(app, head_bytes=2000) as site:
        for size, status in ((2000, b"200"), (2001, b"431")):
            client = await site.open()
            # Counted are the path, names, values, and four bytes a header.
            plain = len("/") + len("hostx") + 4 + len("long") + 4
            await client.send(b"GET / HTTP/1.1\r\nhost: x\r\nlong: " + b"a" * (size - plain) + b"\r\n\r\n")
            assert status in await client.answer()
        assert "head of more than 2000 bytes" in (await client.rest()).decode() or app.asked == 1
        assert site.ended() == {"head_size": 1}
    assert app.asked == 1


@pytest.mark.parametrize(
    "endless",
    [b"a" * 4096, b"a: b\r\n" * 700],
    ids=["one header", "many headers"],
)
async def test_endless_head_ends_at_the_bound_however_much_is_sent(endless: bytes) -> None:
    app = App()
    async with serving(app) as site:
        client = await site.open()
        await client.send(b"GET / HTTP/1.1\r\nhost: x\r\nx: ")
        await client.send_on(endless)
        assert site.ended() == {"head_size": 1}
    assert app.asked == 0


async def test_endless_path_ends_at_the_bound() -> None:
    app = App()
    async with serving(app) as site:
        client = await site.open()
        await client.send(b"GET /" + b"a" * 70_000)
        assert b"431" in await client.answer()
    assert app.asked == 0


async def test_as_many_headers_as_may_be_pass_and_one_more_gets_431() -> None:
    app = App()
    async with serving(app, head_fields=5) as site:
        for count, status in ((5, b"200"), (6, b"431")):
            client = await site.open()
            await client.send(b"GET / HTTP/1.1\r\n" + b"host: x\r\n" * count + b"\r\n")
            assert status in await client.answer()
        assert site.ended() == {"head_size": 1}
    assert app.asked == 1


@pytest.mark.parametrize("trailer", [b"a" * 4096, b"a: b\r\n" * 700, b"0" * 4096])
async def test_endless_trailer_of_a_chunked_body_ends_at_the_bound(trailer: bytes) -> None:
    async with serving(App()) as site:
        client = await site.open()
        last = b"" if trailer.startswith(b"0") else b"0\r\nx: "
        await client.send(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n" + last)
        await client.send_on(trailer)
        assert set(site.ended()) <= {"head_size", "malformed"}
        assert sum(site.ended().values()) == 1


async def test_body_far_over_the_head_s_bound_is_read_whole() -> None:
    async with serving(App(), head_bytes=1024) as site:
        client = await site.open()
        await client.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3000000\r\n\r\n" + b"a" * 3_000_000)
        assert b"3000000" in await client.until(lambda data: data.endswith(b"3000000"))
        await client.send(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 9999)
        await client.send(b"0\r\n\r\n")
        assert (await client.until(lambda data: b"9999" in data)).startswith(b"HTTP/1.1 200")
        assert site.ended() == {}


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nhost:"], ids=["nothing", "half a head"])
async def test_head_that_does_not_come_ends_the_connection(begun: bytes) -> None:
    async with serving(App(), head_timeout=1) as site:
        client = await site.open()
        if begun:
            await client.send(begun)
        said = await client.rest()
        assert said.startswith(b"HTTP/1.1 408") if begun else said == b""
        assert site.ended() == {"head_time": 1}


async def test_head_that_comes_a_byte_at_a_time_does_not_win_time() -> None:
    async with serving(App(), head_timeout=0.3) as site:
        client = await site.open()
        await client.send(b"GET /")
        await client.send_on(b"a", 0.01)
        assert site.ended() == {"head_time": 1}


async def test_slow_second_head_of_a_kept_connection_ends_it_too() -> None:
    async with serving(App(), head_timeout=2) as site:
        client = await site.open()
        await client.send(GET)
        assert b"200" in await client.answer()
        await client.send(b"GET / HT")
        assert b"408" in await client.rest()
        assert site.ended() == {"head_time": 1}


async def test_silence_in_a_body_ends_the_connection_and_the_request() -> None:
    app = App()
    async with serving(app, body_timeout=0.2) as site:
        client = await site.open()
        await client.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nabc")
        assert (await client.rest()).startswith(b"HTTP/1.1 408")
        await app.gone.wait()
        assert site.ended() == {"body_time": 1}


async def test_server_that_does_not_read_is_not_the_client_s_silence() -> None:
    app = App(reads=False, held=anyio.Event())
    async with serving(app, body_timeout=0.1, write_timeout=0.2) as site:
        client = await site.open()
        await client.send(b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 10\r\n\r\n")
        await app.running.wait()
        await anyio.sleep(0.5)
        assert site.ended() == {}
        assert app.held is not None
        app.held.set()
        assert b"200" in await client.answer()


async def test_rest_of_a_body_after_its_answer_has_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.serve.http.client_connection._LINGER", 0.2)
    async with serving(App(reads=False), write_timeout=0.2) as site:
        client = await site.open()
        await client.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100000000\r\n\r\n")
        assert b"200" in await client.answer()
        await client.send_on(b"a", 0.01)
        assert site.ended() == {"body_time": 1}


async def test_silent_kept_connection_is_closed() -> None:
    async with serving(App(), idle_timeout=0.2, write_timeout=0.2) as site:
        client = await site.open()
        await client.send(GET)
        answer = await client.rest()
        assert answer.startswith(b"HTTP/1.1 200")
        assert answer.endswith(b"0")
        assert site.ended() == {"idle": 1}


@pytest.mark.parametrize("large", [30_000_000, 1_000_000_000 // 16])
async def test_client_that_reads_nothing_is_cut_off_and_its_answer_s_maker_told(large: int) -> None:
    app = App(large=large)
    async with serving(app, write_timeout=0.4) as site:
        client = await site.open()
        await client.send(GET)
        await app.gone.wait()
        assert site.ended() == {"write_time": 1}
        assert len(site.connections) == 0
        assert len(await client.rest()) < large


@dataclass
class Unread:
    """What is written to a client, and how much of it the client's machine has not confirmed."""

    handed_over: int = 1000
    left: int = 1000

    def unacknowledged(self) -> int:
        return self.left


@pytest.mark.parametrize("moves", ["client", "server"])
async def test_a_single_byte_in_time_keeps_a_slow_client(moves: str) -> None:
    connections = ClientConnections(replace(SLOW, write_timeout=60), Metrics().connections)
    config = http_server(App(), connections).config
    config.load()
    protocol, out = HttpProtocol(config, ServerState(), {}, connections=connections), Unread()
    protocol._out = cast("GatheredWrites", out)

    assert not protocol._is_stalled(1000)
    assert not protocol._is_stalled(1059)
    out.left -= moves == "client"
    assert protocol._is_stalled(1060) is (moves == "server")
    # More that is written to it is nothing that it took.
    out.left, out.handed_over = out.left + 50, out.handed_over + 50
    assert protocol._is_stalled(1120)
    out.left = 0
    assert not protocol._is_stalled(5000)


async def test_connections_have_a_bound_in_all_and_the_next_one_gets_503() -> None:
    async with serving(App(), total=3) as site:
        held = [await site.open() for _ in range(3)]
        for client in held:
            await client.send(GET)
            assert b"200" in await client.answer()
        assert (await (await site.open()).rest()).startswith(b"HTTP/1.1 503")
        assert site.ended() == {"total": 1}
        assert b"codec_connections 3.0" in site.metrics.render()
        await held[0].stream.aclose()
        await site.until_open(2)
        again = await site.open()
        await again.send(GET)
        assert b"200" in await again.answer()


async def test_connections_have_a_bound_for_each_address() -> None:
    async with serving(App(), per_address=2) as site:
        held = [await site.open() for _ in range(2)]
        for client in held:
            await client.send(GET)
            assert b"200" in await client.answer()
        assert (await (await site.open()).rest()).startswith(b"HTTP/1.1 503")
        assert site.ended() == {"address": 1}


async def test_descriptors_that_are_kept_back_are_not_given_to_clients() -> None:
    async with serving(App(), files=3) as site:
        assert (await (await site.open()).rest()).startswith(b"HTTP/1.1 503")
        assert site.ended() == {"descriptors": 1}
        assert len(site.connections) == 0


async def test_connections_of_a_trusted_proxy_count_in_all_only() -> None:
    async with serving(App(), proxies=("127.0.0.0/8",), per_address=1, total=3) as site:
        for _ in range(3):
            client = await site.open()
            await client.send(GET)
            assert b"200" in await client.answer()
        assert (await (await site.open()).rest()).startswith(b"HTTP/1.1 503")
        assert site.ended() == {"total": 1}


async def joined(app: App) -> tuple[HttpProtocol, asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the app without a port: its server's side, and its client's."""
    connections = ClientConnections(SLOW, Metrics().connections)
    config = http_server(app, connections).config
    config.load()
    protocol = HttpProtocol(config, ServerState(), {}, connections=connections)
    ours, theirs = socket.socketpair()
    await asyncio.get_running_loop().create_connection(lambda: protocol, sock=ours)
    return protocol, *await asyncio.open_connection(sock=theirs)


async def test_small_heads_that_come_in_one_read_wait_unread_like_others() -> None:
    app, count = App(held=anyio.Event()), 50
    protocol, reader, writer = await joined(app)

    writer.write(b"GET / HTTP/1.1\r\n\r\n" * count)
    with anyio.fail_after(60):
        await app.running.wait()
        assert len(protocol.pipeline) <= 32
        assert not protocol._out.is_reading()
        assert app.held is not None
        app.held.set()
        for _ in range(count):
            await reader.readuntil(b"\r\n\r\n")
    writer.close()


async def test_requests_ahead_of_their_answers_wait_unread_and_are_all_answered_in_turn() -> None:
    app, count = App(held=anyio.Event()), 5000
    numbered = [b"GET / HTTP/1.1\r\nn: %d\r\n\r\n" % n for n in range(count)]
    # Of its body, which looks like ends of heads, a part is read.
    numbered.insert(20, b"POST / HTTP/1.1\r\nn: x\r\ncontent-length: 400\r\n\r\n" + b"\r\n\r\n" * 100)
    protocol, reader, writer = await joined(app)

    writer.write(b"".join(numbered))
    with anyio.fail_after(60):
        await app.running.wait()
        assert app.asked == 1
        assert 16 <= len(protocol.pipeline) <= 32
        assert not protocol._out.is_reading()
        # What is not read nobody is late with.
        assert protocol._awaited(1e9) == ("body_time", 1e9 + SLOW.body_timeout)
        assert app.held is not None
        app.held.set()
        for _ in numbered:
            await reader.readuntil(b"\r\n\r\n")

    assert [dict(headers)[b"n"] for headers in app.headers] == [b"%d" % n for n in range(20)] + [b"x"] + [
        b"%d" % n for n in range(20, count)
    ]
    assert protocol._out.is_reading()
    writer.close()


@pytest.mark.parametrize("step", [1, 5, 64])
async def test_requests_behind_one_another_are_answered_however_they_are_cut(step: int) -> None:
    app = App()
    requests = POST_FOUR * 100
    async with serving(app) as site:
        client = await site.open()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.until, lambda data: data.count(b"\r\n\r\n4") == 100)
            for at in range(0, len(requests), step):
                await client.send(requests[at : at + step])
        assert app.asked == 100
        assert site.ended() == {}


async def test_what_is_no_http_gets_400() -> None:
    async with serving(App()) as site:
        client = await site.open()
        await client.send(b"\x16\x03\x01 hello\r\n\r\n")
        assert (await client.answer()).startswith(b"HTTP/1.1 400")
        assert site.ended() == {"malformed": 1}


async def test_request_for_another_protocol_is_answered_as_http() -> None:
    async with serving(App()) as site:
        client = await site.open()
        await client.send(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
        assert b"200" in await client.answer()


UPGRADE = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAM\r\n"
"""What Java's HTTP client sends with every first request."""


@pytest.mark.parametrize(
    "framing", [b"content-length: 5\r\n\r\nhello", b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"]
)
@pytest.mark.parametrize("step", [1, 7, 10_000])
async def test_request_for_another_protocol_keeps_its_body_and_what_follows_it(framing: bytes, step: int) -> None:
    app = App()
    async with serving(app) as site:
        client = await site.open()
        sent = (b"POST / HTTP/1.1\r\nhost: x\r\n" + UPGRADE + framing) * 2 + GET
        for at in range(0, len(sent), step):
            await client.send(sent[at : at + step])
        said = await client.until(lambda data: data.count(b"HTTP/1.1 200") == 3 and data.endswith(b"0"))
        assert [answer[-1:] for answer in said.split(b"HTTP/1.1")[1:]] == [b"5", b"5", b"0"]
        assert site.ended() == {}
    assert app.asked == 3


async def test_body_of_a_request_for_another_protocol_is_no_request() -> None:
    app = App()
    async with serving(app) as site:
        client = await site.open()
        await client.send(b"POST / HTTP/1.1\r\nhost: x\r\n" + UPGRADE + b"content-length: %d\r\n\r\n" % len(GET))
        await client.send(GET)
        assert (await client.until(lambda data: b"\r\n\r\n" in data)).endswith(b"%d" % len(GET))
    assert app.asked == 1


async def test_old_client_that_asks_for_another_protocol_stays_an_old_client() -> None:
    async with serving(App()) as site:
        client = await site.open()
        await client.send(b"GET / HTTP/1.0\r\nhost: x\r\n" + UPGRADE + b"\r\n")
        assert (await client.rest()).endswith(b"0")


async def test_trailers_are_no_headers() -> None:
    app = App()
    async with serving(app) as site:
        client = await site.open()
        head = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
        await client.send(head + b"1\r\na\r\n0\r\nauthorization: Bearer x\r\nx-forwarded-for: 9.9.9.9\r\n\r\n")
        assert b"200" in await client.answer()
    assert [[name for name, _ in headers] for headers in app.headers] == [[b"host", b"transfer-encoding"]]


@pytest.mark.parametrize("target", [b"CONNECT 127.0.0.1:80", b"CONNECT /", b"GET http://127.0.0.1"])
async def test_target_that_is_not_served_is_said_to_be(target: bytes) -> None:
    app = App()
    async with serving(app) as site:
        client = await site.open()
        await client.send(target + b" HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await client.rest()).startswith(b"HTTP/1.1 400")
        assert site.ended() == {"malformed": 1}
    assert app.asked == 0
