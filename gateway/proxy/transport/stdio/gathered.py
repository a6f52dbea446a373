"""Gathers the bytes of one iteration of the event loop and writes them together.

Each write wakes the reader, which costs both sides more than everything else that is done for a call (bench/README.md).
"""

import asyncio
from collections.abc import Callable
from typing import Final

_MOST: Final = 64 * 1024
"""Bytes that may be gathered before they are written: few enough to notice soon that nobody reads."""


class Gathered:
    """The bytes that were handed over in this iteration of the loop."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._unsent: list[bytes] = []
        self._size = 0

    def add(self, data: bytes) -> None:
        """Write these bytes soon."""
        if not self._unsent:
            self._loop.call_soon(self.flush)
        self._unsent.append(data)
        self._size += len(data)
        if self._size > _MOST:
            self.flush()

    def flush(self) -> None:
        """Write what was gathered now."""
        unsent, self._unsent, self._size = self._unsent, [], 0
        if unsent:
            self._send(unsent[0] if len(unsent) == 1 else b"".join(unsent))
