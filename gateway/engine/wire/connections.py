"""The connections to one engine: made, admitted, kept and used again.

A connection that ends unexpectedly puts it in doubt which engine later ones reach. A llama.cpp server ends a connection
after each stream, so the next one is made while the stream runs; other servers' connections are kept. Never more are in
use than `allow` says, since a llama.cpp server has a thread for each; later requests wait. It knows neither JSON nor
what is asked.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Final, Protocol

import anyio

from gateway.config.address import read_url
from gateway.engine.wire.event_stream import EngineAnswer, StreamSilent
from gateway.errors import GatewayError
from gateway.http1.connection import KEPT_TIME, Connection, LinkLost, NoAnswer, header_lines

_CONNECT_TIME: Final = 5.0
_RESTED: Final = 1.0
"""Seconds of idleness after which a health check is sent over a connection, to keep it open."""
_SPARE: Final = 2
"""Connections besides those of generations: for the template, the tokenizer and the health check."""
SWAPPED: Final = "/upstream/"
"""What stands before a model's name in the addresses of llama-swap, which starts that model and may end another one."""
_NONE: Final[Mapping[str, str]] = MappingProxyType({})
_BODY: Final = 64 * 1024 * 1024
"""Most bytes of an answer that is read as a whole."""


class Admit(Protocol):
    """Checks which engine answers on a new connection. Raises if it is the wrong one."""

    async def __call__(self, connection: Connection, *, doubted: bool) -> None:
        """`doubted`: whether a connection has ended unexpectedly since the engine was last proven."""
        ...


class Connections:
    """The connections to one engine. Close them with `close`."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        idle_timeout: float,
        admit: Admit,
        on_loss: Callable[[], None],
        keep_streams: bool = False,
        single_use: bool = False,
    ) -> None:
        """Open nothing yet.

        Args:
            url: what stands before the path of every request.
            headers: the headers of every request.
            idle_timeout: seconds of silence that are tolerated.
            admit: checks each new connection before anything is asked on it.
            on_loss: called when a connection has ended unexpectedly.
            keep_streams: whether a connection is used again after a stream; a llama.cpp server closes it then.
            single_use: whether each request has a connection of its own, as each question of a check then has, because
                a server with several models decides with each request which process answers.
        """
        address = read_url(url)
        self._origin = address.origin
        self._prefix = address.path.rstrip("/")
        self._health = self._prefix.partition(SWAPPED)[0] + "/health"
        self._tls = ssl.create_default_context() if address.origin.secure else None
        named = {"host": address.origin.authority, "content-type": "application/json", **headers}
        if address.authorization is not None:
            named.setdefault("authorization", address.authorization)
        if single_use:
            named["connection"] = "close"
        self._lines = header_lines(named)
        self._idle = idle_timeout
        self._admit = admit
        self._on_loss = on_loss
        self._keep_streams = keep_streams or single_use
        self._single_use = single_use
        self._kept: list[Connection] = []
        self._reading: set[EngineAnswer] = set()
        self._room = anyio.Semaphore(_SPARE, fast_acquire=True)
        self._losses = self._settled = 0
        self._settling = anyio.Lock()
        self._next: asyncio.Task[None] | None = None
        """Makes the connection for the next request."""
        self.closed = False

    def allow(self, generations: int) -> None:
        """Allow this many more connections at a time."""
        for _ in range(generations):
            self._room.release()

    def close(self) -> None:
        """Close idle connections; those in use end with their requests. Does not wait."""
        self.closed = True
        if self._next is not None:
            self._next.cancel()
        while self._kept:
            self._kept.pop().close()

    def end_all(self, why: str) -> None:
        """Give up every answer that is waited for or read."""
        for answer in tuple(self._reading):
            answer.give_up(why)

    @asynccontextmanager
    async def streamed(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = _NONE
    ) -> AsyncGenerator[EngineAnswer]:
        """Send a request and wait for the head of its answer. Leaving before the end of the answer ends the connection.

        `headers`: those of this request, in addition to those of all.

        Raises:
            LinkLost, NoAnswer, StreamSilent: there is no answer, or it breaks off.
        """
        async with self._place():
            connection, answer = await self._send(method, self._prefix + path, body, headers)
            if not self._kept and not self._keep_streams:
                self._prepare()
            try:
                with answer:
                    yield answer
                    if self._keep_streams:
                        await answer.ended()
            finally:
                if answer.lost:
                    self._lose()
                if self._keep_streams:
                    self._give(connection)
                else:
                    connection.close()

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Send a request; returns the status and the body of its answer. Raises like `streamed`."""
        return await self._asked(method, self._prefix + path, body)

    async def _asked(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        async with self._place():
            connection, answer = await self._send(method, path, body)
            try:
                return await _whole(answer)
            finally:
                if answer.lost:
                    self._lose()
                self._give(connection)

    async def ask_on(self, connection: Connection, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Like `ask`, on a given connection: for the check that admits it."""
        if connection.status and not connection.usable:
            if self._single_use:
                async with self._opened() as another:
                    answer = await _whole(await self._sent(another, method, self._prefix + path, body))
                another.close()
                return answer
            raise LinkLost(
                "the connection was closed during the check of the engine, which needs a single one: let the engine, "
                "and any proxy in front of it, keep connections open (keep-alive)"
            )
        return await _whole(await self._sent(connection, method, self._prefix + path, body))

    @asynccontextmanager
    async def fresh(self) -> AsyncGenerator[Connection]:
        """A new connection without the check. Leaving without an error means that the caller has checked it."""
        async with self._place(), self._opened() as connection:
            yield connection
            self._give(connection)

    async def refresh(self) -> bool:
        """`GET /health` on every idle connection, which keeps it open. Returns whether all answers were 200.

        Behind llama-swap this is asked of llama-swap itself. A model would be loaded by it, and another one unloaded.
        """
        if self._single_use:
            # Without a check, by which a router would load a model that it has unloaded.
            async with self.fresh() as connection:
                status = (await _whole(await self._sent(connection, "GET", self._health, b"")))[0]
                return status in (200, 404)
        now = asyncio.get_running_loop().time()
        rested = [each for each in self._kept if now - each.idle_since >= _RESTED]
        for connection in rested or [None]:
            if self._room.value == 0:
                # Every connection is in use: the engine is busy, and each generation watches its connection.
                return True
            if connection is not None:
                if connection not in self._kept:
                    continue
                # At the end of the list, it is the next to be taken.
                self._kept.remove(connection)
                self._kept.append(connection)
            status, _ = await self._asked("GET", self._health)
            if status != 200:
                return False
        return True

    @asynccontextmanager
    async def in_time(self, what: str) -> AsyncGenerator[None]:
        """Limit several questions in a row to the time of silence that is tolerated. Raises `StreamSilent`."""
        try:
            async with asyncio.timeout(self._idle):
                yield
        except TimeoutError:
            raise StreamSilent(f"{what} took more than {self._idle:g} s") from None

    @asynccontextmanager
    async def _place(self) -> AsyncGenerator[None]:
        try:
            self._room.acquire_nowait()
        except anyio.WouldBlock:
            await self._wait_for_place()
        try:
            yield
        finally:
            self._room.release()

    async def _wait_for_place(self) -> None:
        async with self.in_time("waiting for a free connection"):
            await self._room.acquire()

    async def _send(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str] = _NONE
    ) -> tuple[Connection, EngineAnswer]:
        kept = self._take()
        if kept is None and self._next is not None:
            # One is being made; a second one would not be ready any sooner.
            await asyncio.wait([self._next])
            kept = self._take()
        if kept is not None:
            try:
                return kept, await self._sent(kept, method, path, body, headers)
            except LinkLost:
                # It ended while it was idle, or the engine did.
                self._lose()
        connection = await self._admitted()
        return connection, await self._sent(connection, method, path, body, headers)

    async def _sent(
        self, connection: Connection, method: str, path: str, body: bytes, headers: Mapping[str, str] = _NONE
    ) -> EngineAnswer:
        with EngineAnswer(connection, self._idle, self._reading) as answer:
            lines = self._lines + header_lines(headers) if headers else self._lines
            connection.send(method, path, lines, body)
            await answer.headed()
        return answer

    def _take(self) -> Connection | None:
        """The idle connection that was used last and is still open, if there is one."""
        now = asyncio.get_running_loop().time()
        while self._kept:
            connection = self._kept.pop()
            if now - connection.idle_since >= KEPT_TIME:
                connection.close()
            elif connection.usable:
                return connection
            else:
                self._lose()
        return None

    def _prepare(self) -> None:
        if self._next is None or self._next.done():
            self._next = asyncio.ensure_future(self._prepared())

    async def _prepared(self) -> None:
        # First pass on what arrived with the head of the answer.
        await anyio.lowlevel.checkpoint()
        try:
            self._give(await self._admitted())
        except LinkLost:
            self._lose()
        except (NoAnswer, StreamSilent, GatewayError):
            # The next request meets the same error, and reports it.
            return

    def _give(self, connection: Connection) -> None:
        if connection.usable and not self.closed:
            connection.idle_since = asyncio.get_running_loop().time()
            self._kept.append(connection)
        else:
            connection.close()

    def _lose(self) -> None:
        self._losses += 1
        self._on_loss()

    async def _admitted(self) -> Connection:
        async with self._opened() as connection:
            async with self.in_time("the check of a new connection"):
                await self._settle(connection)
            if not self._single_use:
                return connection
        connection.close()
        return await self._connect()

    async def _settle(self, connection: Connection) -> None:
        if self._losses == self._settled:
            await self._admit(connection, doubted=False)
            return
        # One connection settles the doubt with a proof; those that waited for it are only compared.
        async with self._settling:
            losses = self._losses
            await self._admit(connection, doubted=losses != self._settled)
            self._settled = losses

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[Connection]:
        """A new connection, which is closed if its first use fails."""
        connection = await self._connect()
        try:
            yield connection
        except BaseException:
            connection.close()
            raise

    async def _connect(self) -> Connection:
        connection = Connection(self._origin, lambda write, data: write(data))
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_TIME):
                await loop.create_connection(lambda: connection, self._origin.host, self._origin.port, ssl=self._tls)
        except TimeoutError as error:
            self._lose()
            raise StreamSilent(f"no connection within {_CONNECT_TIME:g} s") from error
        except OSError as error:
            self._lose()
            raise LinkLost(str(error) or repr(error)) from error
        return connection


async def _whole(answer: EngineAnswer) -> tuple[int, bytes]:
    with answer:
        body = await answer.whole(_BODY)
    return answer.status, body
