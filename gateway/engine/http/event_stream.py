"""The answer to one request, read as lines, with a bound on how long the engine may be silent.

Turns the pieces of a body into the lines of it, all that one read brought at once. It knows no JSON and no pool. A
reader that is slow makes the engine wait; an engine that says nothing while somebody waits is given up.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Coroutine
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from gateway.http1.connection import Connection
from gateway.http1.faults import LinkLost, NoAnswer

_T = TypeVar("_T")

MAX_LINE: Final = 1 << 20
"""Bytes of one line; the final message of a generation, the longest, echoes the prompt and its settings."""
_ERROR_BODY: Final = 64 * 1024
_END_TIME: Final = 0.5
"""Seconds between the last event and the end of a body."""


class StreamSilent(Exception):
    """Nothing came for too long."""


class LineOverLimit(Exception):
    """A line is longer than `MAX_LINE`."""


class Answer:
    """The answer to the request that was last sent on a connection. Enter it for as long as it is read."""

    def __init__(self, connection: Connection, idle_timeout: float) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._idle = idle_timeout
        self._waits = False
        self._heard = self._loop.time()
        self._silent = False
        self.lost = False
        """Whether the connection ended in the middle of it, or was given up."""
        self._at_end = False
        self._rest = b""
        self._watch: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        """Begin to watch for silence."""
        self._watch = self._loop.call_later(self._idle, self._look)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Watch no longer. An answer that was given up ends its connection; else that stays as it is."""
        if self._watch is not None:
            self._watch.cancel()
        if error is not None:
            self._connection.close()

    @property
    def status(self) -> int:
        """Of the answer, once `headed` has returned."""
        return self._connection.status

    async def headed(self) -> None:
        """Wait for the status. Raises `LinkLost`, `NoAnswer` and `StreamSilent`."""
        await self._heard_of(self._connection.head())

    async def lines(self) -> list[bytes]:
        """The lines that have come, without their line feeds; none at the end of the body.

        Raises:
            LinkLost, NoAnswer, StreamSilent, LineOverLimit: once the lines before have been given.
        """
        while data := await self._chunk():
            whole = self._rest + data
            *lines, self._rest = whole.split(b"\n")
            if len(whole) > MAX_LINE and max(map(len, (*lines, self._rest))) > MAX_LINE:
                raise LineOverLimit
            if lines:
                return lines
        rest, self._rest = self._rest, b""
        return [rest] if rest else []

    def saw_end(self) -> None:
        """Its reader has seen its last event."""
        self._at_end = True

    async def ended(self) -> None:
        """Behind the last event, wait a moment for the end of the body, so that the connection can be used again."""
        if not self._at_end:
            return
        with suppress(TimeoutError, LinkLost, NoAnswer, LineOverLimit):
            async with asyncio.timeout(_END_TIME):
                while await self.lines():
                    pass

    async def body(self) -> bytes:
        """The whole of a short body: what an error says. Cut where it is long. Raises as `lines`."""
        whole = b""
        async with self._in_time():
            while len(whole) < _ERROR_BODY and (data := await self._chunk()):
                whole += data
        return whole

    async def whole(self, bound: int) -> bytes:
        """The whole of a body. Raises as `lines`, and `NoAnswer` where it is over `bound` bytes."""
        parts: list[bytes] = []
        length = 0
        async with self._in_time():
            while data := await self._chunk():
                length += len(data)
                if length > bound:
                    raise NoAnswer(f"its answer is over {bound} bytes")
                parts.append(data)
        return b"".join(parts)

    @asynccontextmanager
    async def _in_time(self) -> AsyncGenerator[None]:
        """A body that is read whole may take as long as silence may, however steadily it drips."""
        try:
            async with asyncio.timeout(self._idle):
                yield
        except TimeoutError:
            raise StreamSilent(f"not at the end of its answer after {self._idle:g} s") from None

    def _chunk(self) -> Coroutine[Any, Any, bytes]:
        return self._heard_of(self._connection.chunk())

    async def _heard_of(self, coming: Awaitable[_T]) -> _T:
        self._waits, self._heard = True, self._loop.time()
        try:
            return await coming
        except LinkLost:
            self.lost = True
            if self._silent:
                raise StreamSilent(f"silent for {self._idle:g} s") from None
            raise
        finally:
            self._waits = False

    def _look(self) -> None:
        """Has it been silent for too long? One timer a stream, moved on only when it rings: a token costs none."""
        left = self._heard + self._idle - self._loop.time()
        if not self._waits or left > 0:
            self._watch = self._loop.call_later(left if self._waits else self._idle, self._look)
            return
        self._silent = True
        self._connection.fail("it was silent for too long")
