"""The answer to one request, read as lines, with a bound on how long the engine may be silent.

Turns the pieces of a body into its lines, all that one read gave at once. It knows no JSON and no pool. A slow reader
makes the engine wait; an engine that sends nothing while somebody waits is given up.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Coroutine
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from gateway.http1.connection import Connection, LinkLost, NoAnswer

_T = TypeVar("_T")

MAX_LINE: Final = 1 << 20
"""Bytes of one line; the final message of a generation, the longest, echoes the prompt and its settings."""
_ERROR_BODY: Final = 64 * 1024
_END_TIME: Final = 0.5
"""Seconds that may pass between the last event and the end of a body."""


class StreamSilent(Exception):
    """The engine sent nothing for too long."""


class LineOverLimit(Exception):
    """A line is longer than `MAX_LINE`."""


class EngineAnswer:
    """The answer to the last request sent on a connection. Use it as a context while it is read."""

    def __init__(self, connection: Connection, idle_timeout: float, reading: "set[EngineAnswer] | None" = None) -> None:
        """`reading`: the answers that are being read, this one too while it is."""
        self._connection = connection
        self._reading: set[EngineAnswer] = set() if reading is None else reading
        self._loop = asyncio.get_running_loop()
        self._idle = idle_timeout
        self._waits = False
        self._heard = self._loop.time()
        self._abandoned = ""
        """Why it was given up, if it was."""
        self.lost = False
        """Whether the connection ended in the middle of it, or was given up."""
        self._at_end = False
        self._rest = b""
        self._watch: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        """Start watching for silence."""
        self._watch = self._loop.call_later(self._idle, self._look)
        self._reading.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop watching. Leaving with an error closes the connection."""
        self._reading.discard(self)
        if self._watch is not None:
            self._watch.cancel()
        if error is not None:
            self._connection.close()

    @property
    def status(self) -> int:
        """The status of the answer, once `headed` has returned."""
        return self._connection.status

    def give_up(self, why: str) -> None:
        """End the answer now: whoever waits for it, or reads on, gets `StreamSilent`."""
        self._abandoned = why
        self._connection.fail(why)

    async def headed(self) -> None:
        """Wait for the status. Raises `LinkLost`, `NoAnswer` and `StreamSilent`."""
        await self._heard_of(self._connection.head())

    async def lines(self) -> list[bytes]:
        """The lines that have arrived, without their line feeds; none at the end of the body.

        Raises:
            LinkLost, NoAnswer, StreamSilent, LineOverLimit: after all lines before the fault were returned.
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
        """Note that the reader has seen the last event."""
        self._at_end = True

    async def ended(self) -> None:
        """After the last event, wait a moment for the end of the body, so that the connection can be used again."""
        if not self._at_end:
            return
        with suppress(TimeoutError, LinkLost, NoAnswer, LineOverLimit):
            async with asyncio.timeout(_END_TIME):
                while await self.lines():
                    pass

    async def body(self) -> bytes:
        """The body of an error, cut if it is long. Raises like `lines`."""
        whole = b""
        async with self._in_time():
            while len(whole) < _ERROR_BODY and (data := await self._chunk()):
                whole += data
        return whole

    async def whole(self, bound: int) -> bytes:
        """The whole body. Raises like `lines`, and `NoAnswer` if it is over `bound` bytes."""
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
        """Limit the reading of a whole body to the time of silence that is tolerated, even if bytes keep arriving."""
        try:
            async with asyncio.timeout(self._idle):
                yield
        except TimeoutError:
            raise StreamSilent(f"its answer was not complete after {self._idle:g} s") from None

    def _chunk(self) -> Coroutine[Any, Any, bytes]:
        return self._heard_of(self._connection.chunk())

    async def _heard_of(self, coming: Awaitable[_T]) -> _T:
        self._waits, self._heard = True, self._loop.time()
        try:
            return await coming
        except LinkLost:
            self.lost = True
            if self._abandoned:
                raise StreamSilent(self._abandoned) from None
            raise
        finally:
            self._waits = False

    def _look(self) -> None:
        """Check for silence. There is one timer per stream, reset only when it fires, so that tokens need no timer."""
        left = self._heard + self._idle - self._loop.time()
        if not self._waits or left > 0:
            self._watch = self._loop.call_later(left if self._waits else self._idle, self._look)
            return
        self.give_up(f"it sent nothing for {self._idle:g} s")
