"""How an answer leaves: its head and its body in one write.

Turns what uvicorn writes in one turn of the loop into one write to the socket. uvicorn writes an answer's head and body
separately; each write is a system call, and the first wakes the client for half an answer (bench/README.md says what
that costs). It knows no HTTP.
"""

import asyncio
import fcntl
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST: Final = 64 * 1024
"""Bytes beyond which nothing is held back, so that a client that does not read is noticed (`pause_writing`)."""


class NextTurn:
    """Calls to make in the next turn of the loop: one callback of the loop makes all that were added in a turn."""

    def __init__(self) -> None:
        """Start with no calls. May be created before there is a loop."""
        self._calls: list[Callable[[], None]] = []

    def add(self, call: Callable[[], None]) -> None:
        """Have `call` called in the next turn."""
        if not self._calls:
            asyncio.get_running_loop().call_soon(self._make_calls)
        self._calls.append(call)

    def _make_calls(self) -> None:
        calls, self._calls = iter(self._calls), []
        try:
            for call in calls:
                call()
        finally:
            # If one fails, the others are still called, a turn later.
            for call in calls:
                self.add(call)


class GatheredWrites(asyncio.Transport):
    """A transport in front of another one: gathers writes until the loop's next turn, or until they exceed `_MOST`."""

    def __init__(self, inner: asyncio.Transport, turn: NextTurn) -> None:
        """`inner` goes on telling its protocol to pause and resume writing. `turn` may serve many transports."""
        super().__init__()
        self._inner = inner
        self._turn = turn
        self._held: list[bytes] = []
        self._size = 0
        self.handed_over = 0
        """Bytes written in all."""
        self._wanted = True
        self._held_back = False

    def write(self, data: "bytes | bytearray | memoryview[Any]") -> None:
        """See `asyncio.Transport`."""
        if not self._held:
            self._turn.add(self._flush)
        size = len(data)
        self._held.append(bytes(data))
        self._size += size
        self.handed_over += size
        if self._size > _MOST:
            self._flush()

    def writelines(self, list_of_data: "Iterable[bytes | bytearray | memoryview[Any]]") -> None:
        """See `asyncio.Transport`."""
        self.write(b"".join(list_of_data))

    def _flush(self) -> None:
        if held := self._held:
            self._held, self._size = [], 0
            if self._inner.is_closing():
                return
            self._inner.writelines(held)

    def close(self) -> None:
        """Close once everything is written."""
        self._flush()
        self._inner.close()

    def abort(self) -> None:
        """Close now; whatever is not written yet is lost."""
        self._held.clear()
        self._inner.abort()

    def write_eof(self) -> None:
        """See `asyncio.Transport`."""
        self._flush()
        self._inner.write_eof()

    def can_write_eof(self) -> bool:
        """See `asyncio.Transport`."""
        return self._inner.can_write_eof()

    def get_write_buffer_size(self) -> int:
        """Bytes that are held here and in the inner transport."""
        return self._size + self._inner.get_write_buffer_size()

    def unacknowledged(self) -> int:
        """Bytes written that the other machine has not acknowledged, in whichever buffer they are."""
        waiting = bytes(4)
        # A socket that is closing may be gone already.
        with suppress(OSError):
            waiting = fcntl.ioctl(self.get_extra_info("socket").fileno(), termios.TIOCOUTQ, waiting)
        return self.get_write_buffer_size() + int.from_bytes(waiting, sys.byteorder)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See `asyncio.Transport`."""
        self._inner.set_write_buffer_limits(high, low)

    def is_closing(self) -> bool:
        """See `asyncio.Transport`."""
        return self._inner.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See `asyncio.Transport`."""
        return self._inner.get_extra_info(name, default)

    def is_reading(self) -> bool:
        """See `asyncio.Transport`."""
        return self._inner.is_reading()

    def hold_back(self, *, held: bool) -> None:
        """`held`: read nothing, whatever else is called; otherwise read as was last asked for."""
        self._held_back = held
        self._set_reading()

    def pause_reading(self) -> None:
        """See `asyncio.Transport`."""
        self._wanted = False
        self._set_reading()

    def resume_reading(self) -> None:
        """See `asyncio.Transport`."""
        self._wanted = True
        self._set_reading()

    def _set_reading(self) -> None:
        reads = self._wanted and not self._held_back
        if reads == self._inner.is_reading() or self._inner.is_closing():
            return
        if reads:
            self._inner.resume_reading()
        else:
            self._inner.pause_reading()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """See `asyncio.Transport`."""
        self._inner.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """See `asyncio.Transport`."""
        return self._inner.get_protocol()
