"""Passes on what a process writes in portions, so that a process that writes very many lines holds up nothing else.

Turns the bytes of one pipe into calls of `hear` with few lines each, and lets the loop do other work between them; the
pipe is not read meanwhile. Bytes of few lines are passed on at once. It does not know what lines mean.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from gateway.protocol.lines import portions


class Output:
    """The reading side of one pipe."""

    def __init__(self, hear: Callable[[bytes], None]) -> None:
        self._hear = hear
        self.taken = 0
        """Bytes that were read from the pipe."""
        self._left: deque[bytes] = deque()
        self._behind: list[Callable[[], None]] = []

    def take(self, data: bytes, pipe: asyncio.ReadTransport) -> None:
        """Take bytes that were read from the pipe."""
        self.taken += len(data)
        if self._left:
            self._left.extend(portions(data))
            return
        first, *rest = portions(data)
        if rest:
            self._left.extend(rest)
            pipe.pause_reading()
            asyncio.get_running_loop().call_soon(self._go_on, pipe)
        self._hear(first)

    @property
    def is_behind(self) -> bool:
        """Whether bytes wait to be passed on, and the pipe is not read."""
        return bool(self._left)

    def when_heard(self, then: Callable[[], None]) -> None:
        """Call `then` when everything that was read has been passed on; at once, if nothing is waiting."""
        if self._left:
            self._behind.append(then)
        else:
            then()

    def _go_on(self, pipe: asyncio.ReadTransport) -> None:
        portion = self._left.popleft()
        if self._left:
            asyncio.get_running_loop().call_soon(self._go_on, pipe)
        elif not pipe.is_closing():
            pipe.resume_reading()
        self._hear(portion)
        if not self._left:
            behind, self._behind = self._behind, []
            for then in behind:
                then()
