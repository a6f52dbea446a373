"""Connections to an engine: used again while they are open and young, checked when they are new, and bounded."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import pytest
from anyio.abc import SocketStream

from gateway.engine.wire.connections import Connections
from gateway.engine.wire.event_stream import StreamSilent
from gateway.errors import EngineUnavailable
from gateway.http1.connection import Connection, LinkLost
from tests.gateway.engine.engines import listening

pytestmark = pytest.mark.anyio

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
MODULE = "gateway.engine.wire.connections"


@dataclass
class Server:
    """Answers each request; notes on which connection it came."""

    answer: bytes = ANSWER
    asked: list[int] = field(default_factory=list[int])
    streams: list[SocketStream] = field(default_factory=list[SocketStream])
    """Those that were made, in order."""
    admitted: list[bool] = field(default_factory=list[bool])
    """Of each check, whether the engine was in doubt."""
    refuses: Exception | None = None
    losses: int = 0
    go: anyio.Event | None = None
    """What answers wait for."""

    async def serve(self, stream: SocketStream) -> None:
        number = len(self.streams)
        self.streams.append(stream)
        async with stream:
            while await stream.receive():
                self.asked.append(number)
                if self.go is not None:
                    await self.go.wait()
                await stream.send(self.answer)

    async def admit(self, connection: Connection, *, doubted: bool) -> None:
        self.admitted.append(doubted)
        if self.refuses is not None:
            raise self.refuses

    def lost(self) -> None:
        self.losses += 1

    async def cut(self) -> None:
        for stream in self.streams:
            await stream.aclose()


@asynccontextmanager
async def pool_of(server: Server, *, keep_streams: bool = False, idle: float = 20.0) -> AsyncGenerator[Connections]:
    async with listening(server.serve) as url:
        pool = Connections(
            url, {}, idle_timeout=idle, admit=server.admit, on_loss=server.lost, keep_streams=keep_streams
        )
        try:
            with anyio.fail_after(20):
                yield pool
        finally:
            pool.close()


async def test_open_connection_is_used_again_and_checked_once() -> None:
    server = Server()
    async with pool_of(server) as pool:
        for _ in range(3):
            assert await pool.ask("GET", "/") == (200, b"{}")

    assert (server.asked, server.admitted, server.losses) == ([0, 0, 0], [False], 0)


async def test_connection_that_was_idle_for_long_is_closed_and_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    async with pool_of(server) as pool:
        await pool.ask("GET", "/")
        monkeypatch.setattr(f"{MODULE}.KEPT_TIME", 0.0)
        await pool.ask("GET", "/")

    assert (server.asked, server.admitted, server.losses) == ([0, 1], [False, False], 0)


@pytest.mark.parametrize(("keeps", "used"), [(True, 1), (False, 3)])
async def test_connection_is_used_again_behind_a_stream_where_servers_keep_it(*, keeps: bool, used: int) -> None:
    server = Server()
    async with pool_of(server, keep_streams=keeps) as pool:
        for _ in range(3):
            async with pool.streamed("POST", "/") as answer:
                assert await answer.whole(8) == b"{}"

    assert len(set(server.asked)) == used


async def test_connection_of_a_stream_that_was_left_is_not_used_again() -> None:
    server = Server(answer=b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{}")
    async with pool_of(server, keep_streams=True) as pool:
        for _ in range(2):
            with pytest.raises(LookupError):
                async with pool.streamed("POST", "/"):
                    raise LookupError

    assert (server.asked, server.losses) == ([0, 1], 0)


async def test_engine_behind_a_connection_that_ended_is_in_doubt_until_one_has_settled_it() -> None:
    server = Server()
    async with pool_of(server) as pool:
        await pool.ask("GET", "/")
        await server.cut()
        await anyio.wait_all_tasks_blocked()
        for _ in range(2):
            await pool.ask("GET", "/")
        assert server.admitted == [False, True]
        assert server.losses >= 1
        await server.streams[-1].aclose()
        await anyio.wait_all_tasks_blocked()
        await pool.ask("GET", "/")
        assert server.admitted == [False, True, True]


async def test_doubt_stays_while_the_engine_is_not_admitted() -> None:
    server = Server()
    async with pool_of(server) as pool:
        await pool.ask("GET", "/")
        await server.cut()
        await anyio.wait_all_tasks_blocked()
        server.refuses = EngineUnavailable("another")
        for _ in range(2):
            with pytest.raises(EngineUnavailable):
                await pool.ask("GET", "/")
        assert server.admitted == [False, True, True]
        assert server.asked == [0]


async def test_no_more_are_in_use_than_allowed_and_later_requests_wait() -> None:
    server = Server(go=anyio.Event())
    async with pool_of(server) as pool:
        pool.allow(1)
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(pool.ask, "GET", "/")
            while len(server.asked) < 3:
                await anyio.lowlevel.checkpoint()
            await anyio.wait_all_tasks_blocked()
            assert len(server.streams) == 3
            # A busy engine is well without a question.
            assert await pool.refresh()
            assert server.go is not None
            server.go.set()
    assert len(server.asked) == 5
    assert len(server.streams) == 3


async def test_request_that_finds_no_place_in_time_is_given_up() -> None:
    server = Server(go=anyio.Event())
    async with pool_of(server, idle=0.2) as pool, anyio.create_task_group() as tasks:

        async def ask() -> None:
            with pytest.raises(StreamSilent):
                await pool.ask("GET", "/")

        for _ in range(2):
            tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(StreamSilent, match=r"waiting for a free connection took more than 0\.2 s|sent nothing"):
            await pool.ask("GET", "/")


async def test_check_that_takes_too_long_is_given_up() -> None:
    server = Server()

    async def hang(connection: Connection, *, doubted: bool) -> None:
        await anyio.sleep_forever()

    server.admit = hang  # type: ignore[method-assign]
    async with pool_of(server, idle=0.05) as pool:
        with pytest.raises(StreamSilent, match=r"the check of a new connection took more than 0\.05 s"):
            await pool.ask("GET", "/")
    assert server.asked == []


@pytest.mark.parametrize("status", [b"200 OK", b"503 Busy"])
async def test_rested_connections_are_kept_open_by_a_question_and_tell_whether_the_engine_is_well(
    monkeypatch: pytest.MonkeyPatch, status: bytes
) -> None:
    server = Server()
    async with pool_of(server) as pool:
        pool.allow(2)
        async with pool.fresh() as one, pool.fresh() as other:
            for connection in (one, other):
                await pool.ask_on(connection, "GET", "/")
        server.asked.clear()
        # None has rested: one is asked all the same.
        assert await pool.refresh()
        assert len(server.asked) == 1
        monkeypatch.setattr(f"{MODULE}._RESTED", 0.0)
        server.asked.clear()
        server.answer = ANSWER.replace(b"200 OK", status)
        well = await pool.refresh()
        assert well is (status == b"200 OK")
        assert sorted(server.asked) == ([0, 1] if well else sorted(server.asked)[:1])


async def test_new_connection_is_given_back_only_by_who_has_checked_it() -> None:
    server = Server()
    async with pool_of(server) as pool:
        with pytest.raises(RuntimeError):
            async with pool.fresh():
                raise RuntimeError
        await pool.ask("GET", "/")
        assert server.asked == [1]
        async with pool.fresh() as connection:
            assert await pool.ask_on(connection, "GET", "/") == (200, b"{}")
        assert server.admitted == [False]


async def test_check_needs_a_single_connection() -> None:
    server = Server(answer=ANSWER.replace(b"content-length", b"connection: close\r\ncontent-length"))
    async with pool_of(server) as pool, pool.fresh() as connection:
        await pool.ask_on(connection, "GET", "/")
        with pytest.raises(LinkLost, match="closed during the check of the engine, which needs a single one"):
            await pool.ask_on(connection, "GET", "/")


async def test_closed_connections_keep_none() -> None:
    server = Server()
    async with pool_of(server) as pool:
        async with pool.fresh() as connection:
            pool.close()
        assert pool.closed
        assert not connection.usable


async def test_connection_that_is_not_made_in_time_is_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    monkeypatch.setattr(f"{MODULE}._CONNECT_TIME", 0.0)
    async with pool_of(server) as pool:
        with pytest.raises(StreamSilent, match="no connection within 0 s"):
            await pool.ask("GET", "/")
    assert server.losses == 1
