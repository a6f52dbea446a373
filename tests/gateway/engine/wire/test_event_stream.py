"""Answers of an engine as lines: whole however the bytes are cut, bounded, and given up when nothing comes."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from itertools import pairwise

import anyio
import pytest
from anyio.abc import SocketStream
from hypothesis import given
from hypothesis import strategies as st

from bench.processes import free_port
from gateway.config.address import Origin
from gateway.engine.wire.connections import Connections
from gateway.engine.wire.event_stream import MAX_LINE, EngineAnswer, LineOverLimit, StreamSilent
from gateway.http1.connection import Connection, LinkLost, NoAnswer
from tests.gateway.engine.engines import listening

pytestmark = pytest.mark.anyio

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@asynccontextmanager
async def answering(handle: Callable[[SocketStream], Awaitable[None]]) -> AsyncGenerator[str]:
    """A server that reads one request and goes on as `handle` says."""

    async def serve(stream: SocketStream) -> None:
        async with stream:
            asked = b""
            while b"\r\n\r\n" not in asked:
                asked += await stream.receive()
            await handle(stream)

    async with listening(serve) as url:
        yield url


async def all_lines(answer: EngineAnswer) -> list[bytes]:
    lines: list[bytes] = []
    while more := await answer.lines():
        lines += more
    return lines


async def anybody(connection: Connection, *, doubted: bool) -> None:
    """Admits every engine."""


def connections(url: str, headers: dict[str, str] | None = None, *, idle: float = 20.0) -> Connections:
    return Connections(url, headers or {}, idle_timeout=idle, admit=anybody, on_loss=lambda: None)


@asynccontextmanager
async def posted(
    url: str, *, idle: float = 20.0, headers: dict[str, str] | None = None
) -> AsyncGenerator[EngineAnswer]:
    pool = connections(url, headers, idle=idle)
    try:
        async with pool.streamed("POST", "/completion", b"{}") as answer:
            yield answer
    finally:
        pool.close()


async def test_request_carries_path_key_and_body():
    seen: list[bytes] = []

    async def handle(stream: SocketStream) -> None:
        await stream.send(HEAD + chunk(b"data: 1\n\n") + b"0\r\n\r\n")

    async def serve(stream: SocketStream) -> None:
        async with stream:
            while not seen or not seen[-1].endswith(b'{"n": 1}'):
                seen.append((seen[-1] if seen else b"") + await stream.receive())
            await handle(stream)

    async with listening(serve) as url:
        there = connections(f"{url}/base", {"authorization": "Bearer k"})
        async with there.streamed("POST", "/completion", b'{"n": 1}') as answer:
            assert answer.status == 200
            assert await all_lines(answer) == [b"data: 1", b""]
    head, _, body = seen[-1].partition(b"\r\n\r\n")
    line, *fields = head.split(b"\r\n")
    assert line == b"POST /base/completion HTTP/1.1"
    assert set(fields) == {
        b"host: " + url.removeprefix("http://").encode(),
        b"content-type: application/json",
        b"authorization: Bearer k",
        b"content-length: 8",
    }
    assert body == b'{"n": 1}'


@given(
    texts=st.lists(st.binary(max_size=20).filter(lambda data: b"\n" not in data), max_size=6),
    cuts=st.lists(st.integers(0, 400), max_size=6),
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=4),
)
async def test_lines_are_the_same_however_the_bytes_are_cut(texts, cuts, sizes):
    body = b"".join(text + b"\n" for text in texts)
    sent, at = HEAD, 0
    while at < len(body):
        size = sizes[at % len(sizes)]
        sent += chunk(body[at : at + size])
        at += size
    sent += b"0\r\n\r\n"
    connection, _ = asked()
    marks = sorted({0, len(sent), *(cut for cut in cuts if cut < len(sent))})
    for begin, end in pairwise(marks):
        connection.data_received(sent[begin:end])
    with EngineAnswer(connection, 20) as answer:
        assert answer.status == 200
        assert await all_lines(answer) == texts


async def test_what_one_read_brought_is_given_at_once():
    async def handle(stream: SocketStream) -> None:
        await stream.send(HEAD + b"".join(chunk(b"data: %d\n\n" % number) for number in range(5)) + b"0\r\n\r\n")

    async with answering(handle) as url, posted(url) as answer:
        with anyio.fail_after(20):
            lines = await answer.lines()
    assert lines == [line for number in range(5) for line in (b"data: %d" % number, b"")]


async def test_last_line_counts_without_its_line_feed():
    async def handle(stream: SocketStream) -> None:
        await stream.send(HEAD + chunk(b"one\ntw") + b"0\r\n\r\n")

    async with answering(handle) as url, posted(url) as answer:
        assert await all_lines(answer) == [b"one", b"tw"]


async def test_body_that_is_cut_is_lost_behind_the_lines_before():
    async def handle(stream: SocketStream) -> None:
        await stream.send(HEAD + chunk(b"one\ntw"))

    async with answering(handle) as url, posted(url) as answer:
        assert await answer.lines() == [b"one"]
        with pytest.raises(LinkLost, match="in the middle"):
            await answer.lines()


async def test_body_of_an_error_is_read_whole():
    async def handle(stream: SocketStream) -> None:
        await stream.send(b'HTTP/1.1 400 Bad Request\r\ncontent-length: 12\r\n\r\n{"error": 1}')

    async with answering(handle) as url, posted(url) as answer:
        assert (answer.status, await answer.body()) == (400, b'{"error": 1}')


async def test_announcement_before_the_head_is_not_the_head():
    async def handle(stream: SocketStream) -> None:
        await stream.send(b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + chunk(b"data: 1\n") + b"0\r\n\r\n")

    async with answering(handle) as url, posted(url) as answer:
        assert (answer.status, await all_lines(answer)) == (200, [b"data: 1"])


class Unplugged(asyncio.Transport):
    """Carries nothing: the test hands the answer's bytes over itself, so that no network is waited for."""

    aborted = False

    def write(self, data: bytes) -> None: ...  # pyright: ignore[reportIncompatibleMethodOverride]

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True


def asked() -> tuple[Connection, Unplugged]:
    connection, transport = Connection(Origin(False, "a", 80), lambda write, data: write(data)), Unplugged()
    connection.connection_made(transport)
    connection.send("POST", "/completion", b"host: a\r\n", b"{}")
    return connection, transport


async def test_silence_is_given_up_once_somebody_waits():
    connection, transport = asked()
    connection.data_received(HEAD + chunk(b"data: 1\n"))
    with EngineAnswer(connection, 0.01) as answer:
        assert await answer.lines() == [b"data: 1"]
        with pytest.raises(StreamSilent, match=r"0\.01"), anyio.fail_after(20):
            await answer.lines()
    assert transport.aborted


async def test_reader_that_takes_its_time_is_no_silence():
    connection, transport = asked()
    connection.data_received(HEAD + chunk(b"data: 1\n"))
    with EngineAnswer(connection, 0.01) as answer:
        # Longer than the silence that is tolerated, but nobody waits for the engine in this time.
        await anyio.sleep(0.05)
        connection.data_received(chunk(b"data: 2\n") + b"0\r\n\r\n")
        assert await all_lines(answer) == [b"data: 1", b"data: 2"]
    assert not transport.aborted


async def test_silence_before_the_answer_is_given_up():
    async def handle(stream: SocketStream) -> None:
        await anyio.sleep_forever()

    async with answering(handle) as url:
        with pytest.raises(StreamSilent), anyio.fail_after(20):
            async with posted(url, idle=0.05):
                pass


@pytest.mark.parametrize("sent", [b"SSH-2.0-OpenSSH\r\n", b""])
async def test_what_is_no_answer_is_lost(sent):
    async def handle(stream: SocketStream) -> None:
        if sent:
            await stream.send(sent)

    async with answering(handle) as url:
        with pytest.raises((LinkLost, NoAnswer)):
            async with posted(url):
                pass


async def test_port_where_nobody_listens_is_lost():
    port = free_port()
    with pytest.raises(LinkLost):
        async with posted(f"http://127.0.0.1:{port}"):
            pass


async def test_server_without_tls_behind_an_https_url_is_lost():
    async def serve(stream: SocketStream) -> None:
        async with stream:
            hello = await stream.receive()
            assert hello.startswith(b"\x16\x03")
            await stream.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with listening(serve) as url:
        with pytest.raises(LinkLost):
            async with posted(url.replace("http:", "https:")):
                pass


async def test_user_and_password_of_the_url_are_sent_and_a_key_comes_before_them():
    seen: list[bytes] = []

    async def serve(stream: SocketStream) -> None:
        async with stream:
            seen.append(await stream.receive())
            await stream.send(HEAD + b"0\r\n\r\n")

    async with listening(serve) as url:
        for headers in ({}, {"authorization": "Bearer k"}):
            async with posted(url.replace("http://", "http://us%40er:pass@"), headers=headers):
                pass
    basic = b64encode(b"us@er:pass")
    assert b"authorization: Basic " + basic + b"\r\n" in seen[0]
    assert basic not in seen[1]
    assert b"authorization: Bearer k\r\n" in seen[1]
    assert b"pass" not in seen[0]


@pytest.mark.parametrize("ended", [True, False])
async def test_line_over_the_limit_is_an_error_behind_the_lines_before(ended):
    async def handle(stream: SocketStream) -> None:
        long = b"x" * (MAX_LINE + 1) + (b"\n" if ended else b"")
        await stream.send(HEAD + chunk(b"data: 1\n"))
        await turn.wait()
        await stream.send(chunk(long))

    turn = anyio.Event()
    async with answering(handle) as url, posted(url) as answer:
        assert await answer.lines() == [b"data: 1"]
        turn.set()
        with pytest.raises(LineOverLimit):
            await answer.lines()


def endless(piece: bytes, head: bytes = HEAD, begin: bytes = b"") -> Callable[[SocketStream], Awaitable[None]]:
    """An answer that goes on until its reader leaves."""

    async def handle(stream: SocketStream) -> None:
        await stream.send(head + (chunk(begin) if begin else b""))
        while True:
            await stream.send(chunk(piece))

    return handle


REFUSED = HEAD.replace(b"200 OK", b"500 Oops")
ENDLESS = {"line": b"x" * 16_384, "event": b"data: {}\n" * 2048, "many small ones": b"\n" * 16_384}


@pytest.mark.parametrize("piece", ENDLESS.values(), ids=ENDLESS.keys())
async def test_body_of_an_error_without_end_is_cut(piece: bytes):
    async with answering(endless(piece, REFUSED)) as url, posted(url) as answer:
        with anyio.fail_after(60):
            cut = await answer.body()
    assert answer.status == 500
    # What one read of the socket brings may be more than the bound, but no more than the connection holds unread.
    assert 64 * 1024 <= len(cut) <= 2**20


@pytest.mark.parametrize("piece", ENDLESS.values(), ids=ENDLESS.keys())
async def test_whole_body_without_end_is_given_up_at_its_bound(piece: bytes):
    async with answering(endless(piece)) as url, posted(url) as answer:
        with pytest.raises(NoAnswer, match="over 200000 bytes"), anyio.fail_after(60):
            await answer.whole(200_000)


async def test_whole_body_of_exactly_its_bound_is_read():
    async def handle(stream: SocketStream) -> None:
        await stream.send(HEAD + chunk(b"y" * 1000) + b"0\r\n\r\n")

    async with answering(handle) as url, posted(url) as answer:
        assert await answer.whole(1000) == b"y" * 1000


@pytest.mark.parametrize("read", ["body", "whole"])
async def test_body_that_comes_byte_by_byte_is_given_up_in_time(read: str):
    async def handle(stream: SocketStream) -> None:
        await stream.send(REFUSED)
        while True:
            await stream.send(chunk(b"y"))
            await anyio.sleep(0.01)

    # More often than the engine may be silent: only the time of all counts.
    async with answering(handle) as url, posted(url, idle=0.3) as answer:
        with pytest.raises(StreamSilent, match=r"not complete after 0\.3 s"), anyio.fail_after(60):
            await (answer.body() if read == "body" else answer.whole(1000_000))


async def test_line_without_end_is_given_up_behind_the_lines_before():
    async with answering(endless(b"x" * 16_384, begin=b"data: 1\n")) as url, posted(url) as answer:
        with anyio.fail_after(60):
            assert (await answer.lines())[0] == b"data: 1"
            with pytest.raises(LineOverLimit):
                await answer.lines()


@pytest.mark.parametrize("piece", ENDLESS.values(), ids=ENDLESS.keys())
async def test_body_that_goes_on_behind_its_last_event_is_not_waited_for(piece: bytes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gateway.engine.wire.event_stream._END_TIME", 0.1)
    async with answering(endless(piece, begin=b"data: 1\n")) as url, posted(url) as answer:
        with anyio.fail_after(60):
            assert (await answer.lines())[0] == b"data: 1"
            answer.saw_end()
            await answer.ended()


async def test_engine_is_made_to_wait_for_a_reader_that_does_not_read():
    stuck, sent = anyio.Event(), 0

    async def handle(stream: SocketStream) -> None:
        nonlocal sent
        piece = chunk(b"y" * 65_535 + b"\n")
        await stream.send(HEAD)
        for _ in range(1024):
            with anyio.move_on_after(0.5) as waiting:
                await stream.send(piece)
                sent += len(piece)
            if waiting.cancelled_caught:
                stuck.set()
                return

    async with answering(handle) as url, posted(url) as answer:
        with anyio.fail_after(60):
            await stuck.wait()
        # What the kernel holds on both ways, and what we hold; the server would have sent 64 MiB.
        assert sent < 32 * 2**20
        read = 0
        # The server leaves in the middle of its answer.
        with suppress(LinkLost):
            while lines := await answer.lines():
                read += sum(len(line) + 1 for line in lines)
    assert read >= sent - 1024 * 16


async def test_answers_that_are_being_read_are_known_and_can_be_given_up():
    reading: set[EngineAnswer] = set()
    connection, transport = asked()
    with EngineAnswer(connection, 20, reading) as answer:
        assert (reading, answer.lost) == ({answer}, False)
        answer.give_up("the engine is gone")
        with pytest.raises(StreamSilent, match="the engine is gone"):
            await answer.headed()
    assert (reading, answer.lost, transport.aborted) == (set(), True, True)


async def test_answer_that_is_given_up_ends_its_connection():
    connection, transport = asked()
    with pytest.raises(TimeoutError), anyio.fail_after(0), EngineAnswer(connection, 20) as answer:
        await answer.headed()
    assert transport.aborted


async def test_answer_that_is_read_to_its_end_leaves_its_connection():
    connection, transport = asked()
    connection.data_received(HEAD + chunk(b"data: 1\n") + b"0\r\n\r\n")
    with EngineAnswer(connection, 20) as answer:
        assert await all_lines(answer) == [b"data: 1"]
    assert not transport.aborted


async def held_answer(stream: SocketStream) -> None:
    """One line of an answer, and the rest never."""
    await stream.send(HEAD + chunk(b"data: 1\n"))
    await anyio.sleep_forever()


@pytest.mark.parametrize(("end", "losses"), [(b"0\r\n\r\n", 0), (b"", 1)])
async def test_connection_is_lost_only_by_an_answer_that_breaks_off(end: bytes, losses: int):
    async def handle(stream: SocketStream) -> None:
        await stream.send(HEAD + chunk(b"data: 1\n") + end)

    lost: list[None] = []
    async with answering(handle) as url:
        pool = Connections(
            url, {}, idle_timeout=20, admit=anybody, on_loss=lambda: lost.append(None), keep_streams=True
        )
        with suppress(LinkLost):
            async with pool.streamed("POST", "/completion", b"{}") as answer:
                await all_lines(answer)
        pool.close()

    assert len(lost) == losses


@pytest.mark.parametrize(("keeps", "made"), [(False, 2), (True, 1)])
async def test_next_connection_is_made_early_only_where_the_engine_ends_this_one(*, keeps: bool, made: int):
    admitted = 0

    async def count(connection: Connection, *, doubted: bool) -> None:
        nonlocal admitted
        admitted += 1

    async with answering(held_answer) as url:
        pool = Connections(url, {}, idle_timeout=20, admit=count, on_loss=lambda: None, keep_streams=keeps)
        async with pool.streamed("POST", "/completion", b"{}"):
            with anyio.fail_after(20):
                while admitted < made:
                    await anyio.lowlevel.checkpoint()
            await anyio.wait_all_tasks_blocked()
        pool.close()

    assert admitted == made


async def test_engine_whose_connections_are_all_in_use_is_well_without_a_question():
    async with answering(held_answer) as url:
        pool = Connections(url, {}, idle_timeout=20, admit=anybody, on_loss=lambda: None, keep_streams=True)
        async with pool.streamed("POST", "/a", b"{}"), pool.streamed("POST", "/b", b"{}"):
            with anyio.fail_after(20):
                assert await pool.refresh() is True
        pool.close()


async def test_connection_that_is_not_admitted_is_closed():
    ended = anyio.Event()

    async def refuse(connection: Connection, *, doubted: bool) -> None:
        raise NoAnswer("another engine")

    async def serve(stream: SocketStream) -> None:
        async with stream:
            with suppress(anyio.EndOfStream):
                await stream.receive()
            ended.set()

    async with listening(serve) as url:
        pool = Connections(url, {}, idle_timeout=20, admit=refuse, on_loss=lambda: None)
        with pytest.raises(NoAnswer, match="another engine"):
            await pool.ask("GET", "/props")
        with anyio.fail_after(20):
            await ended.wait()
        pool.close()


async def test_answer_that_was_read_is_watched_no_more(monkeypatch: pytest.MonkeyPatch):
    watches: list[asyncio.TimerHandle] = []
    loop = asyncio.get_running_loop()
    call_later = loop.call_later

    def noted(delay: float, *given: object) -> asyncio.TimerHandle:
        handle = call_later(delay, *given)  # type: ignore[arg-type]
        if delay == 77.0:
            watches.append(handle)
        return handle

    async def handle(stream: SocketStream) -> None:
        await stream.send(HEAD + chunk(b"data: 1\n\n") + b"0\r\n\r\n")

    monkeypatch.setattr(loop, "call_later", noted)
    async with answering(handle) as url, posted(url, idle=77.0) as answer:
        await all_lines(answer)
    assert watches
    assert all(each.cancelled() for each in watches)
