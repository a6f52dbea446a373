"""Gathered writes: what a turn of the loop writes leaves at once, and nothing is held for longer."""

import asyncio
import socket
from collections.abc import Iterable
from typing import Any

import anyio
import pytest

from gateway.serve.http.response_writes import GatheredWrites, NextTurn

pytestmark = pytest.mark.anyio


class Recorder(asyncio.Transport):
    """A transport that notes what reaches it, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[bytes | str] = []

    def write(self, data: Any) -> None:
        self.seen.append(bytes(data))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        self.seen.append("closed")

    def abort(self) -> None:
        self.seen.append("aborted")

    def write_eof(self) -> None:
        self.seen.append("eof")

    def get_write_buffer_size(self) -> int:
        return 5

    def is_closing(self) -> bool:
        return bool(self.seen) and self.seen[-1] in ("closed", "aborted")

    reads = True

    def is_reading(self) -> bool:
        return self.reads

    def pause_reading(self) -> None:
        self.reads = False
        self.seen.append("paused")

    def resume_reading(self) -> None:
        self.reads = True
        self.seen.append("resumed")


def gathering() -> tuple[GatheredWrites, Recorder]:
    inner = Recorder()
    return GatheredWrites(inner, NextTurn()), inner


async def test_writes_of_one_turn_of_the_loop_leave_as_one() -> None:
    transport, inner = gathering()
    transport.write(b"head ")
    transport.writelines([b"bo", bytearray(b"dy")])

    assert inner.seen == []
    assert transport.get_write_buffer_size() == 5 + 9
    await anyio.lowlevel.checkpoint()
    assert inner.seen == [b"head body"]
    assert transport.get_write_buffer_size() == 5


async def test_each_turn_of_the_loop_has_a_write_of_its_own() -> None:
    transport, inner = gathering()
    for word in (b"one", b"two"):
        transport.write(word)
        await anyio.lowlevel.checkpoint()

    assert inner.seen == [b"one", b"two"]


async def test_connections_that_share_a_turn_are_all_written_to_even_if_a_write_fails() -> None:
    class Broken(Recorder):
        def write(self, data: Any) -> None:
            raise RuntimeError("broken")

    turn, failures = NextTurn(), list[str]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(str(context["exception"])))
    inners = [Recorder(), Broken(), Recorder(), Broken(), Recorder()]
    for inner in inners:
        GatheredWrites(inner, turn).write(b"answer")

    await anyio.lowlevel.checkpoint()
    assert [inner.seen for inner in inners] == [[b"answer"], [], [], [], []]
    for _ in inners:
        await anyio.lowlevel.checkpoint()
    assert [inner.seen for inner in inners] == [[b"answer"], [], [b"answer"], [], [b"answer"]]
    assert failures == ["broken", "broken"]


async def test_what_is_asked_for_in_a_turn_is_done_by_one_call_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    turn, done, loop = NextTurn(), list[int](), asyncio.get_running_loop()
    asked: list[object] = []
    call_soon = loop.call_soon
    monkeypatch.setattr(
        loop, "call_soon", lambda call, *rest, **more: asked.append(call) or call_soon(call, *rest, **more)
    )
    for n in range(3):
        turn.add(lambda n=n: done.append(n))
    assert (len(asked), done) == (1, [])

    monkeypatch.undo()
    await anyio.lowlevel.checkpoint()
    assert done == [0, 1, 2]


async def test_much_is_not_held_so_that_a_slow_reader_is_noticed() -> None:
    transport, inner = gathering()
    transport.write(b"a" * 60_000)
    assert inner.seen == []
    transport.write(b"b" * 6_000)

    assert inner.seen == [b"a" * 60_000 + b"b" * 6_000]
    await anyio.lowlevel.checkpoint()
    assert len(inner.seen) == 1


async def test_a_write_of_just_the_bound_is_held_until_the_next_turn() -> None:
    transport, inner = gathering()
    transport.write(b"a" * 64 * 1024)
    assert inner.seen == []
    await anyio.lowlevel.checkpoint()

    assert inner.seen == [b"a" * 64 * 1024]
    assert transport.handed_over == 64 * 1024
    transport.write(b"b")
    assert transport.handed_over == 64 * 1024 + 1


async def test_reading_is_paused_and_resumed_once_however_often_it_is_asked_for() -> None:
    transport, inner = gathering()
    transport.resume_reading()
    transport.pause_reading()
    transport.pause_reading()
    transport.resume_reading()
    transport.resume_reading()

    assert inner.seen == ["paused", "resumed"]


async def test_connection_that_is_held_back_reads_nothing_and_then_does_what_was_last_asked_for() -> None:
    transport, inner = gathering()
    transport.hold_back(held=True)
    transport.pause_reading()
    transport.resume_reading()
    assert inner.seen == ["paused"]
    transport.hold_back(held=False)
    assert inner.seen == ["paused", "resumed"]

    transport.hold_back(held=True)
    transport.pause_reading()
    transport.hold_back(held=False)
    assert inner.seen == ["paused", "resumed", "paused"]


async def test_everything_else_is_the_inner_transport_s() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        loop, protocol, later = asyncio.get_running_loop(), asyncio.Protocol(), asyncio.Protocol()
        real, _ = await loop.create_connection(lambda: protocol, sock=ours)
        transport = GatheredWrites(real, NextTurn())
        assert transport.get_protocol() is protocol
        transport.set_protocol(later)
        transport.set_write_buffer_limits(high=9, low=3)

        assert real.get_protocol() is transport.get_protocol() is later
        assert real.get_write_buffer_limits() == (3, 9)
        assert (transport.can_write_eof(), transport.is_reading(), transport.is_closing()) == (True, True, False)
        assert transport.get_extra_info("nothing", 5) == 5
        transport.abort()
        assert transport.is_closing()


async def test_reading_of_a_closed_connection_is_left_as_it_is() -> None:
    transport, inner = gathering()
    transport.close()
    transport.pause_reading()

    assert inner.seen == ["closed"]


async def test_close_comes_after_what_was_written() -> None:
    transport, inner = gathering()
    transport.write(b"last words")
    transport.close()

    assert inner.seen == [b"last words", "closed"]


async def test_eof_comes_after_what_was_written() -> None:
    transport, inner = gathering()
    transport.write(b"last words")
    transport.write_eof()

    assert inner.seen == [b"last words", "eof"]


async def test_abort_loses_what_was_not_written_yet() -> None:
    transport, inner = gathering()
    transport.write(b"never")
    transport.abort()
    await anyio.lowlevel.checkpoint()

    assert inner.seen == ["aborted"]


async def test_what_is_written_to_a_closed_connection_goes_nowhere() -> None:
    transport, inner = gathering()
    transport.close()
    transport.write(b"too late")
    await anyio.lowlevel.checkpoint()

    assert inner.seen == ["closed"]


async def test_bytes_that_change_afterwards_leave_as_they_were() -> None:
    transport, inner = gathering()
    data = bytearray(b"before")
    transport.write(data)
    data[:] = b"after!"
    await anyio.lowlevel.checkpoint()

    assert inner.seen == [b"before"]


async def test_a_real_socket_s_reader_gets_everything_in_order() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.setblocking(False)
        loop = asyncio.get_running_loop()
        real, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
        transport = GatheredWrites(real, NextTurn())
        transport.write(b"1")
        transport.write(b"2")
        assert transport.get_extra_info("socket") is not None
        with anyio.fail_after(20):
            assert await loop.sock_recv(theirs, 10) == b"12"
            transport.write(b"3")
            assert transport.unacknowledged() >= 1
            transport.close()
            assert await loop.sock_recv(theirs, 10) == b"3"
            assert await loop.sock_recv(theirs, 10) == b""
        assert transport.is_closing()
