"""One connection as a reader of bytes: however they are cut, and whatever they are."""

import asyncio
import gzip
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.address import Origin
from gateway.http1.connection import Connection, header_lines
from gateway.proxy.transport.transport_interface import LinkLost, NoAnswer

PLACES = st.lists(st.integers(0, 5000), max_size=12)
BODIES = st.lists(st.binary(min_size=1, max_size=200), max_size=5)


class Pipe(asyncio.Transport):
    """The far end of nothing: what is written is kept, what is closed stays closed."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.unsent = 0
        self.closed = False
        self.paused = False

    def write(self, data: bytes) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.written += data

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def get_write_buffer_size(self) -> int:
        return self.unsent


def asked() -> tuple[Connection, Pipe]:
    connection, pipe = Connection(Origin(False, "a", 80), lambda write, data: write(data)), Pipe()
    connection.connection_made(pipe)
    connection.send("POST", "/x", b"host: a\r\n", b"{}")
    return connection, pipe


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(edges) if a < b]


def outcome(pieces: list[bytes]) -> object:
    """Status, headers, body and whether it can be used again, once it has ended; or what kind of failure it was."""
    connection, pipe = asked()
    for piece in pieces:
        if not pipe.closed:
            connection.data_received(piece)
    connection.connection_lost(None)

    async def read() -> object:
        await connection.head()
        return connection.status, dict(connection.headers), await connection.read(10**6), connection.usable

    try:
        return asyncio.run(read())
    except (LinkLost, NoAnswer) as error:
        return type(error)


def chunked(parts: list[bytes]) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nA: 1\r\na:  2 \r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\nTrailer: x\r\n\r\n"


def test_request_goes_out_in_one_piece():
    _, pipe = asked()

    assert pipe.written == b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}"


def test_request_on_a_connection_that_broke_meanwhile_is_not_written():
    later: list[tuple[Any, bytes]] = []
    connection, pipe = Connection(Origin(False, "a", 80), lambda write, data: later.append((write, data))), Pipe()
    connection.connection_made(pipe)
    connection.send("POST", "/x", b"host: a\r\n", b"{}")
    connection.fail("it broke")
    for write, data in later:
        write(data)

    assert (len(later), pipe.written) == (1, b"")


@given(BODIES, PLACES)
def test_body_in_chunks_is_whole_however_its_bytes_are_cut(parts, places):
    headers = {b"a": b"1, 2", b"transfer-encoding": b"chunked"}

    assert outcome(cut(chunked(parts), places)) == (200, headers, b"".join(parts), True)


@given(st.binary(max_size=300), PLACES)
def test_body_of_a_told_length_is_whole_however_its_bytes_are_cut(body, places):
    data = b"HTTP/1.1 404 No\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)

    assert outcome(cut(data, places)) == (404, {b"content-length": b"%d" % len(body)}, body, True)


@given(BODIES, st.integers(0, 3000))
def test_answer_that_is_cut_off_is_a_lost_link_and_never_half_an_answer(parts, place):
    data = chunked(parts)

    assert outcome([data[: place % len(data)]]) is LinkLost


@given(st.binary(max_size=300), PLACES)
def test_garbage_is_a_failure_and_no_other_exception(data, places):
    assert outcome(cut(data, places)) in (LinkLost, NoAnswer)


@given(BODIES, st.binary(min_size=1, max_size=50), PLACES)
def test_bytes_behind_the_answer_never_change_it_and_end_the_connection(parts, more, places):
    data = chunked(parts)
    connection, pipe = asked()
    for piece in cut(data + more, places):
        if not pipe.closed:
            connection.data_received(piece)

    assert pipe.closed or connection.complete
    assert not connection.usable


def test_headers_behind_the_bound_are_left_out_though_they_all_have_one_name() -> None:
    connection, _ = asked()
    connection.data_received(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 1000 + b"content-length: 0\r\n\r\n")

    assert connection.complete
    assert connection.headers == {b"a": b", ".join([b"b"] * 256)}


def test_head_of_just_the_bound_may_go_on_and_one_more_byte_ends_it() -> None:
    part = b"HTTP/1.1 200 OK\r\na: " + b"x" * (64 * 1024 - 20)
    fits, stands = asked()
    for piece in (part, b"\r\ncontent-length: 0\r\n\r\n"):
        fits.data_received(piece)
    over, ended = asked()
    over.data_received(part + b"x")

    assert (fits.complete, stands.closed) == (True, False)
    assert (over.complete, ended.closed) == (False, True)


def test_reader_that_lets_more_wait_than_its_bound_makes_the_server_wait() -> None:
    connection, pipe = asked()
    connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n" + b"x" * 256 * 1024)
    waits_at_the_bound = pipe.paused
    connection.data_received(b"x")

    assert (waits_at_the_bound, pipe.paused) == (False, True)
    assert len(asyncio.run(connection.chunk())) == 256 * 1024 + 1
    assert not pipe.paused
    connection.data_received(b"x" * 256 * 1024)
    waits_at_the_bound = pipe.paused
    connection.data_received(b"x")
    assert (waits_at_the_bound, pipe.paused) == (False, True)


def test_headers_of_an_announcement_take_no_place_from_those_of_the_answer() -> None:
    connection, _ = asked()
    connection.data_received(b"HTTP/1.1 103 Early Hints\r\n" + b"a: b\r\n" * 256 + b"\r\n")
    connection.data_received(b"HTTP/1.1 200 OK\r\nc: d\r\ncontent-length: 0\r\n\r\n")

    assert connection.headers == {b"c": b"d", b"content-length": b"0"}


def test_a_connection_whose_request_is_not_sent_to_its_end_is_not_used_again() -> None:
    connection, pipe = asked()
    pipe.unsent = 1
    connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    assert connection.complete
    assert not connection.usable
    pipe.unsent = 0
    assert connection.usable


def test_request_on_a_connection_that_has_ended_is_lost_at_once() -> None:
    connection, pipe = asked()
    connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    pipe.closed = True
    connection.connection_lost(None)
    written = pipe.written

    async def ask_again() -> bool:
        connection.send("POST", "/x", b"host: a\r\n", b"{}")
        async with asyncio.timeout(20):
            try:
                await connection.head()
            except LinkLost as error:
                return error.sent
        return True

    assert asyncio.run(ask_again()) is False
    assert pipe.written == written


def test_rest_of_an_answer_is_thrown_away_once_and_the_connection_is_used_again() -> None:
    connection, pipe = asked()
    drained: list[bool] = []
    connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 300000\r\n\r\n" + b"x" * 290_000)
    connection.drain(lambda: drained.append(connection.usable))
    connection.data_received(b"x" * 10_000)

    assert (drained, pipe.paused, connection.usable) == ([True], False, True)
    connection.send("GET", "/", b"", b"")
    connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\ny")
    assert (asyncio.run(connection.read(10)), drained) == (b"y", [True])


def test_rest_of_an_answer_that_is_long_is_not_waited_for() -> None:
    connection, pipe = asked()
    connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
    connection.drain(lambda: None)
    connection.data_received(b"x" * 64 * 1024)
    waits_at_the_bound = not pipe.closed
    connection.data_received(b"x")

    assert (waits_at_the_bound, pipe.closed) == (True, True)


def test_length_is_sent_with_a_body_and_with_every_post() -> None:
    def sent(method: str, body: bytes) -> bytes:
        connection, pipe = Connection(Origin(False, "a", 80), lambda write, data: write(data)), Pipe()
        connection.connection_made(pipe)
        connection.send(method, "/x", b"", body)
        return pipe.written

    assert sent("POST", b"") == b"POST /x HTTP/1.1\r\ncontent-length: 0\r\n\r\n"
    assert sent("PUT", b"a") == b"PUT /x HTTP/1.1\r\ncontent-length: 1\r\n\r\na"
    assert sent("GET", b"") == b"GET /x HTTP/1.1\r\n\r\n"


def test_trailers_of_just_the_bound_may_go_on_and_one_more_byte_ends_them() -> None:
    def fed(size: int) -> Pipe:
        connection, pipe = asked()
        connection.data_received(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx")
        connection.data_received(b"\r\n0\r\na: " + b"x" * (size - 8))
        return pipe

    assert (fed(512 * 1024).closed, fed(512 * 1024 + 1).closed) == (False, True)


def test_body_is_read_up_to_the_bound_whether_its_length_is_told_or_not() -> None:
    async def read(data: bytes, bound: int, encoding: str = "") -> bytes | None:
        connection, _ = asked()
        connection.data_received(data)
        await connection.head()
        if encoding:
            connection.decode()
        return await connection.read(bound)

    told = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nabcd"
    packed = gzip.compress(b"abcd")
    squeezed = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n%s" % (len(packed), packed)
    for data in (told, chunked([b"ab", b"cd"])):
        assert [asyncio.run(read(data, bound)) for bound in (3, 4)] == [None, b"abcd"]
    assert asyncio.run(read(squeezed, 100, "gzip")) == b"abcd"


@given(BODIES, PLACES)
def test_reader_who_waits_gets_each_part_when_it_has_come(parts: list[bytes], places: list[int]) -> None:
    async def read() -> tuple[int, bytes]:
        connection, _ = asked()
        for piece in cut(chunked(parts), places):
            asyncio.get_running_loop().call_soon(connection.data_received, piece)
        async with asyncio.timeout(20):
            await connection.head()
            status, body = connection.status, b""
            while data := await connection.chunk():
                body += data
        return status, body

    assert asyncio.run(read()) == (200, b"".join(parts))


def test_reader_who_waits_is_told_at_once_why_nothing_more_comes() -> None:
    async def told(end: Callable[[Connection], None], begun: bytes = b"") -> tuple[str, bool]:
        connection, pipe = asked()
        if begun:
            connection.data_received(begun)
        asyncio.get_running_loop().call_soon(end, connection)
        async with asyncio.timeout(20):
            try:
                await connection.head()
                await connection.read(10**6)
            except (LinkLost, NoAnswer) as error:
                return f"{type(error).__name__}: {error}", pipe.closed
        return "", pipe.closed

    head = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n"
    lost = "LinkLost: the connection ended"
    for end, begun, expected in (
        (lambda it: it.fail("it was slow"), b"", ("LinkLost: it was slow", True)),
        (lambda it: it.fail("it was slow"), head, ("LinkLost: it was slow", True)),
        (lambda it: it.connection_lost(None), b"", (f"{lost} before it answered", False)),
        (lambda it: it.connection_lost(None), head, (f"{lost} in the middle of its answer", False)),
        (lambda it: it.connection_lost(OSError("cut")), head, (f"{lost} in the middle of its answer: cut", False)),
        (lambda it: it.data_received(b"\0"), b"", ("NoAnswer: its answer is not valid HTTP/1.1", True)),
        (
            lambda it: it.data_received(b"HTTP/1.1 200 OK\r\na: " + b"x" * 65536),
            b"",
            ("NoAnswer: the head of its answer is over 65536 bytes", True),
        ),
        (
            lambda it: it.data_received(b"1;" + b"x" * 524288),
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            ("NoAnswer: the chunk headers or trailers of its answer are over 524288 bytes", True),
        ),
    ):
        assert asyncio.run(told(end, begun)) == expected


def test_first_reason_for_a_failure_is_the_one_told() -> None:
    connection, _ = asked()
    connection.fail("it was slow")
    connection.connection_lost(None)

    async def head() -> None:
        await connection.head()

    with pytest.raises(LinkLost, match=r"^it was slow$"):
        asyncio.run(head())


def test_reader_that_went_away_leaves_the_connection_to_the_next() -> None:
    async def read() -> bytes | None:
        connection, _ = asked()
        first = asyncio.ensure_future(connection.head())
        await anyio.lowlevel.checkpoint()
        first.cancel()
        await asyncio.wait([first])
        connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx")
        return await connection.read(9)

    assert asyncio.run(read()) == b"x"


def test_body_without_a_length_ends_with_its_connection_unless_that_broke() -> None:
    async def read(error: Exception | None) -> bytes | None:
        connection, _ = asked()
        connection.data_received(b"HTTP/1.1 200 OK\r\n\r\nab")
        connection.connection_lost(error)
        return await connection.read(9)

    assert asyncio.run(read(None)) == b"ab"
    with pytest.raises(LinkLost, match="middle of its answer: cut"):
        asyncio.run(read(OSError("cut")))


def test_part_of_an_answer_is_there_for_a_reader_who_waits_before_the_rest_comes() -> None:
    async def read() -> bytes:
        connection, _ = asked()
        connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n")
        asyncio.get_running_loop().call_soon(connection.data_received, b"a")
        async with asyncio.timeout(20):
            return await connection.chunk()

    assert asyncio.run(read()) == b"a"


def test_head_whose_lines_end_with_a_line_feed_alone_is_read() -> None:
    connection, _ = asked()
    connection.data_received(b"HTTP/1.1 200 OK\ncontent-length: 1\n\nx")

    assert (connection.status, asyncio.run(connection.read(9))) == (200, b"x")


@pytest.mark.parametrize("data", [b"HTTP/1.1 408 Timeout\r\n\r\n", b"\r\n", b"\0"])
def test_bytes_that_nobody_asked_for_end_the_connection(data: bytes) -> None:
    connection, pipe = Connection(Origin(False, "a", 80), lambda write, data: write(data)), Pipe()
    connection.connection_made(pipe)
    assert (connection.complete, connection.usable) == (True, False)
    connection.data_received(data)

    assert pipe.closed


def test_second_answer_ends_the_connection_and_changes_nothing_of_the_first() -> None:
    answer = b"HTTP/1.1 %d X\r\ncontent-length: 1\r\n\r\n%s"
    connection, pipe = asked()
    connection.data_received(answer % (200, b"a") + answer % (500, b"b"))

    assert (connection.status, asyncio.run(connection.read(9)), pipe.closed) == (200, b"a", True)


def test_connection_whose_server_ends_it_is_not_used_again() -> None:
    ended, pipe = asked()
    ended.data_received(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
    kept, _ = asked()
    kept.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    unread, _ = asked()
    unread.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx")

    assert [each.usable for each in (ended, kept, unread)] == [False, True, False]
    ended.close()
    assert pipe.closed


def test_request_in_the_middle_of_another_s_answer_has_a_state_of_its_own() -> None:
    connection, _ = asked()
    connection.data_received(b"HTTP/1.1 200 OK\r\na: b\r\ncontent-length: 0\r\n\r\n")
    connection.send("GET", "/", b"", b"")

    assert (connection.status, connection.headers, connection.complete, connection.usable) == (0, {}, False, False)
    connection.data_received(b"HTTP/1.1 204 X\r\n\r\n")
    assert (connection.status, connection.header("a"), connection.usable) == (204, "", True)


def test_request_through_a_proxy_names_the_whole_address_and_signs_in_there() -> None:
    connection = Connection(
        Origin(False, "a", 80),
        lambda write, data: write(data),
        via=b"http://a",
        with_headers=b"proxy-authorization: x\r\n",
    )
    pipe = Pipe()
    connection.connection_made(pipe)
    connection.send("GET", "/x", b"host: a\r\n", b"")

    assert (connection.guarded, connection.transport) == (False, pipe)
    assert pipe.written == b"GET http://a/x HTTP/1.1\r\nhost: a\r\nproxy-authorization: x\r\n\r\n"


def test_cookies_are_told_apart_though_they_hold_commas() -> None:
    connection, _ = asked()
    connection.data_received(b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1, 2\r\nset-cookie: b\r\nx: 1\r\nx: 2\r\n\r\n")

    assert (connection.header("set-cookie"), connection.header("x")) == ("a=1, 2\nb", "1, 2")


def test_value_of_a_header_can_not_begin_a_second_line() -> None:
    assert header_lines({"a": "b", "c": "\udcff"}) == b"a: b\r\nc: \xff\r\n"
    for bad in ("b\nc: d", "b\r", "b\0", "b\r\nc: d"):
        with pytest.raises(NoAnswer, match="header 'x' contains a line break or a NUL, so nothing was sent"):
            header_lines({"a": "b", "x": bad})
    with pytest.raises(NoAnswer, match=r"header 'x\\n"):
        header_lines({"x\n" + "y" * 200: "b"})
