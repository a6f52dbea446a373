"""Bytes that are handed over in one turn of the loop, written at once.

Each write wakes whoever reads, which costs both of us more than all else that is done for a call (bench/README.md).
"""

import asyncio
from collections.abc import Callable
from typing import Final

_MOST: Final = 64 * 1024
"""Bytes that wait at most: soon enough to see that nobody reads."""


class Gathered:
    """What was handed over since the loop last came round."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._unsent: list[bytes] = []
        self._size = 0

    def add(self, data: bytes) -> None:
        """Have it written soon."""
        if not self._unsent:
            self._loop.call_soon(self.flush)
        self._unsent.append(data)
        self._size += len(data)
        if self._size > _MOST:
            self.flush()

    def flush(self) -> None:
        """Write it now."""
        unsent, self._unsent, self._size = self._unsent, [], 0
        if unsent:
            self._send(unsent[0] if len(unsent) == 1 else b"".join(unsent))
