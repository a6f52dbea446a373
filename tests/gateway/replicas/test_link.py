"""One connection to another replica: who greets, how much waits, how it ends, and which are kept."""

import asyncio
import errno
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from gateway.errors import OwnerGone, ReplicaBusy
from gateway.replicas import Replica
from gateway.replicas.forwarder import BODY, START
from gateway.replicas.link import Link, LinkPool
from gateway.replicas.sealed_records import FULL, HELLO_BYTES, NoRoom, RecordFault, ReplicaKeys

pytestmark = pytest.mark.anyio

KEYS = ReplicaKeys([b"n" * 32])
GONE = Replica("127.0.0.1:1", b"x" * 8)
"""Nobody listens there."""
QUARTER = bytes(128 * 1024)
"""Four of them may wait."""


class Wire(asyncio.Transport):
    """The socket's part: what a link sends, and what else it asks of a socket, in order."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.asked: list[str] = []

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self

    def setsockopt(self, *_: int) -> None:
        return

    def write(self, data: Any) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return "close" in self.asked or "abort" in self.asked

    def close(self) -> None:
        self.asked.append("close")

    def abort(self) -> None:
        self.asked.append("abort")

    def pause_reading(self) -> None:
        self.asked.append("pause")

    def resume_reading(self) -> None:
        # As one of uvloop.
        assert not self.is_closing()
        self.asked.append("resume")


class Pair:
    """Both sides of a connection that carries bytes when it is told to."""

    def __init__(self, answers: Link | None = None) -> None:
        self.met: list[Link] = []
        self.asks, self.answers = Link(KEYS, "asks"), answers or Link(KEYS, "answers", self.met.append)
        self.asking, self.answering = Wire(), Wire()
        self.asks.connection_made(self.asking)
        self.answers.connection_made(self.answering)

    def carry(self) -> None:
        """Give each side what the other one has sent."""
        for wire, reader in ((self.asking, self.answers), (self.answering, self.asks)):
            data, wire.sent = bytes(wire.sent), bytearray()
            if data:
                reader.data_received(data)
            if wire.is_closing():
                reader.eof_received()

    @classmethod
    def greeted(cls, answers: Link | None = None) -> "Pair":
        pair = cls(answers)
        pair.carry()
        return pair

    def ask(self, *data: bytes) -> None:
        """Send these in a record each, and carry them."""
        self.asks.tell(*((BODY, each) for each in data))
        self.carry()


async def settle() -> None:
    """Let everything go on that can."""
    for _ in range(5):
        await checkpoint()


async def test_side_that_asks_greets_first_and_the_other_one_only_a_whole_greeting() -> None:
    pair = Pair()
    greeting = bytes(pair.asking.sent)
    waiting = [asyncio.ensure_future(each.greeted()) for each in (pair.asks, pair.answers)]
    pair.answers.data_received(greeting[:-1])
    await settle()
    before = (len(greeting), len(pair.answering.sent), [each.done() for each in waiting])
    pair.answers.data_received(greeting[-1:])
    after = len(pair.answering.sent)
    pair.asks.data_received(bytes(pair.answering.sent))
    with anyio.fail_after(20):
        await asyncio.gather(*waiting)

    assert before == (HELLO_BYTES, 0, [False, False])
    assert after == HELLO_BYTES
    assert pair.met == [pair.answers]


async def test_records_that_arrive_with_the_greeting_are_received() -> None:
    pair = Pair()
    pair.answers.data_received(bytes(pair.asking.sent))
    pair.answers.tell((START, b"one"))
    pair.carry()

    with anyio.fail_after(20):
        assert await pair.asks.receive() == (START, b"one")


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        (FULL, NoRoom, "no more connections"),
        (b"HTTP/1.1 400 Bad Request\r\n".ljust(HELLO_BYTES), RecordFault, "not the greeting"),
        (b"", EOFError, "before it had sent its greeting"),
    ],
    ids=["full", "another protocol", "nothing"],
)
async def test_what_comes_in_place_of_a_greeting_is_told(said: bytes, kind: type[Exception], words: str) -> None:
    pair = Pair()
    greeted = asyncio.ensure_future(pair.asks.greeted())
    await settle()
    pair.asks.data_received(said)
    pair.asks.eof_received()

    with anyio.fail_after(20), pytest.raises(kind, match=words):
        await greeted


async def test_what_ended_a_connection_first_is_what_is_told() -> None:
    pair = Pair.greeted()
    pair.asks.connection_lost(ConnectionResetError("cut"))
    pair.asks.eof_received()
    pair.answers.eof_received()
    pair.answers.connection_lost(ConnectionResetError("cut"))

    with anyio.fail_after(20):
        with pytest.raises(ConnectionResetError, match="cut"):
            await pair.asks.receive()
        assert await pair.answers.receive() is None


async def test_records_that_came_before_the_end_are_received_before_it() -> None:
    pair = Pair.greeted()
    pair.ask(b"one", b"two")
    pair.answers.eof_received()

    with anyio.fail_after(20):
        assert [await pair.answers.receive() for _ in range(3)] == [(BODY, b"one"), (BODY, b"two"), None]


async def test_who_waits_for_a_record_goes_on_when_it_comes_and_when_the_connection_ends() -> None:
    pair = Pair.greeted()
    hearing = asyncio.ensure_future(pair.answers.heard())
    receiving = asyncio.ensure_future(pair.answers.receive())
    await settle()
    before = (hearing.done(), receiving.done())
    pair.ask(b"one", b"two")
    with anyio.fail_after(20):
        await hearing
        assert await receiving == (BODY, b"one")
        # What waits already has been heard.
        await pair.answers.heard()
        await pair.answers.receive()
        ended = [asyncio.ensure_future(pair.answers.heard()), asyncio.ensure_future(pair.answers.receive())]
        await settle()
        pair.answers.eof_received()

        assert await asyncio.gather(*ended) == [None, None]
        await pair.answers.heard()
    assert before == (False, False)


async def test_side_that_is_too_fast_is_read_again_once_no_more_than_half_a_mebibyte_waits() -> None:
    pair = Pair.greeted()
    flow = pair.answering.asked
    pair.ask(b"x", QUARTER, QUARTER, QUARTER)
    full = list(flow)
    pair.ask(QUARTER)
    over = list(flow)
    assert await pair.answers.receive() == (BODY, b"x")
    again = list(flow)
    await pair.answers.receive()
    # So much may wait.
    pair.ask(QUARTER)
    for _ in range(4):
        await pair.answers.receive()

    assert (full, over, again) == ([], ["pause"], ["pause", "resume"])
    assert flow == again


async def test_connection_that_was_closed_here_is_not_read_again() -> None:
    pair = Pair.greeted()
    pair.ask(b"x", QUARTER, QUARTER, QUARTER, QUARTER)
    pair.answers.end()
    await pair.answers.receive()

    assert pair.answering.asked == ["pause", "close"]


async def test_bytes_that_no_replica_sent_end_the_connection_and_nothing_after_them_is_read() -> None:
    pair = Pair.greeted()
    pair.ask(b"one")
    for _ in range(2):
        pair.answers.data_received(b"\0\0\0\x20" + bytes(32))
    pair.answers.eof_received()

    with anyio.fail_after(20):
        assert await pair.answers.receive() == (BODY, b"one")
        with pytest.raises(RecordFault):
            await pair.answers.receive()
    assert pair.answering.asked == ["pause"]


async def test_sender_waits_for_the_other_side_to_read() -> None:
    pair = Pair.greeted()
    pair.asks.pause_writing()
    sending = asyncio.ensure_future(pair.asks.send((BODY, b"one")))
    await settle()
    before = sending.done()
    pair.asks.resume_writing()
    with anyio.fail_after(20):
        await sending
        await pair.asks.send((BODY, b"two"))
    pair.carry()

    assert not before
    assert [await pair.answers.receive() for _ in range(2)] == [(BODY, b"one"), (BODY, b"two")]


async def test_sender_waits_no_longer_than_it_was_told_to() -> None:
    pair = Pair.greeted()
    pair.asks.pause_writing()

    with pytest.raises(TimeoutError):
        await pair.asks.send((BODY, b"one"), within=0)


async def test_sender_that_waits_is_told_that_the_connection_was_closed() -> None:
    pair = Pair.greeted()
    pair.asks.pause_writing()
    sending = asyncio.ensure_future(pair.asks.send((BODY, b"one")))
    await settle()
    pair.asks.close()
    pair.asks.connection_lost(None)

    with anyio.fail_after(20), pytest.raises(ConnectionResetError, match="was closed"):
        await sending


async def test_nothing_is_sent_before_the_greeting_or_after_the_end() -> None:
    early, late = Pair(), Pair.greeted()
    late.asks.close()
    for link in (early.asks, late.asks):
        with pytest.raises(ConnectionResetError, match="is closed"):
            link.tell((BODY, b"one"))
        with pytest.raises(ConnectionResetError, match="is closed"):
            await link.send((BODY, b"one"))

    assert (len(early.asking.sent), bytes(late.asking.sent)) == (HELLO_BYTES, b"")


async def test_connection_is_idle_while_it_is_open_and_nothing_unexpected_has_arrived() -> None:
    pairs = [Pair.greeted() for _ in range(4)]
    _, heard, left, closed = pairs
    heard.ask(b"unexpected")
    left.answers.eof_received()
    closed.answers.end()

    assert [pair.answers.is_idle for pair in pairs] == [True, False, False, False]


async def test_refused_connection_says_that_there_is_no_room_and_is_closed_once_that_was_sent() -> None:
    refused, ended, closed = Pair(), Pair(), Pair()
    refused.answers.refuse()
    ended.answers.end()
    closed.answers.close()

    assert [bytes(pair.answering.sent) for pair in (refused, ended, closed)] == [FULL, b"", b""]
    assert [pair.answering.asked for pair in (refused, ended, closed)] == [["close"], ["close"], ["abort"]]


async def test_connection_that_is_not_greeted_is_closed() -> None:
    closed = asyncio.Event()

    async def stranger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x" * HELLO_BYTES)
        await reader.read()
        closed.set()
        writer.close()

    async with await asyncio.start_server(stranger, "127.0.0.1", 0) as server:
        with pytest.raises(RecordFault):
            await Link.connect(*server.sockets[0].getsockname(), KEYS)
        with anyio.fail_after(20):
            await closed.wait()


@asynccontextmanager
async def replica() -> AsyncGenerator[tuple[Replica, list[Link]]]:
    """One that greets on its first connection, and says nothing on the others."""
    links: list[Link] = []

    class Quiet(Link):
        def data_received(self, data: bytes) -> None:
            if self is links[0]:
                super().data_received(data)

    loop = asyncio.get_running_loop()
    async with await loop.create_server(lambda: Quiet(KEYS, "answers", links.append), "127.0.0.1", 0) as server:
        yield Replica(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", b"x" * 8), links
        for link in links:
            link.close()
        await settle()


async def test_idle_connection_is_used_again_by_one_request_at_a_time() -> None:
    pool, pairs = LinkPool(KEYS), [Pair.greeted() for _ in range(2)]
    for pair in pairs:
        pool.keep(GONE, pair.asks)

    assert {await pool.link(GONE), await pool.link(GONE)} == {pair.asks for pair in pairs}
    with pytest.raises(OwnerGone):
        await pool.link(GONE)


async def test_connection_that_ended_while_it_was_idle_is_passed_over_and_closed() -> None:
    pool, alive, ended = LinkPool(KEYS), Pair.greeted(), Pair.greeted()
    pool.keep(GONE, alive.asks)
    pool.keep(GONE, ended.asks)
    ended.asks.eof_received()

    assert await pool.link(GONE) is alive.asks
    assert (alive.asking.asked, ended.asking.asked) == ([], ["abort"])


async def test_idle_connections_to_one_replica_are_64_at_most_and_closed_with_the_pool() -> None:
    pool, pairs = LinkPool(KEYS), [Pair.greeted() for _ in range(65)]
    for pair in pairs:
        pool.keep(GONE, pair.asks)
    kept = [pair.asking.asked for pair in pairs].count([])
    for _ in range(2):
        pool.close()

    assert kept == 64
    assert [pair.asking.asked for pair in pairs] == [["abort"]] * 65


async def test_opening_a_connection_closes_those_to_replicas_that_have_ended() -> None:
    pool, alive, ended = LinkPool(KEYS), Pair.greeted(), Pair.greeted()
    there, gone = Replica("127.0.0.1:2", b""), Replica("127.0.0.1:3", b"")
    pool.keep(there, alive.asks)
    pool.keep(gone, ended.asks)
    ended.asks.eof_received()
    with anyio.fail_after(20):
        async with replica() as (owner, _):
            (await pool.link(owner)).close()

    assert await pool.link(there) is alive.asks
    pool.close()
    assert (alive.asking.asked, ended.asking.asked) == ([], ["abort"])


async def test_replica_that_does_not_greet_in_time_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.replicas.link._CONNECT_TIME", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(OwnerGone, match="can't be reached"):
        await LinkPool(KEYS).link(Replica(f"127.0.0.1:{listener.getsockname()[1]}", b""))


async def test_replica_that_ends_while_others_connect_to_it_is_gone() -> None:
    async with replica() as (owner, links):
        pool = LinkPool(KEYS)
        asking = [asyncio.ensure_future(pool.link(owner)) for _ in range(2)]
        with anyio.fail_after(20):
            (first,), (second,) = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
            while len(links) < 2:
                await checkpoint()
            links[1].close()
            with pytest.raises(OwnerGone):
                await second
        first.result().close()


SHORT = [OSError(number, "short") for number in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.EADDRNOTAVAIL)]
NO_NAMES = [socket.gaierror(number, "short") for number in (socket.EAI_AGAIN, socket.EAI_SYSTEM, socket.EAI_MEMORY)]
AWAY = [
    OSError(errno.ECONNREFUSED, "refused"),
    socket.gaierror(socket.EAI_NONAME, "no name"),
    EOFError(),
    RecordFault(),
]


@pytest.mark.parametrize(
    ("error", "told"),
    [*((error, ReplicaBusy) for error in (*SHORT, *NO_NAMES)), *((error, OwnerGone) for error in AWAY)],
    ids=repr,
)
async def test_machine_that_lacks_something_takes_nobody_for_gone(
    error: Exception, told: type[Exception], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", fail)
    with pytest.raises(told) as raised:
        await LinkPool(KEYS).link(GONE)

    # Clients see no address; the operator sees it, and why.
    assert GONE.address not in str(raised.value)
    assert GONE.address in caplog.text
    assert (str(error) or type(error).__name__) in caplog.text
