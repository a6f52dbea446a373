"""What a process writes, heard in portions: one that writes very many lines holds up nobody else.

Turns the bytes of one pipe into calls of `hear`, of few lines each, with the loop's other work between them; the pipe
is not read meanwhile. Bytes of few lines are heard at once. It knows no line by its meaning.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from gateway.protocol.lines import portions


class Output:
    """One pipe that is read."""

    def __init__(self, hear: Callable[[bytes], None]) -> None:
        self._hear = hear
        self._left: deque[bytes] = deque()
        self._behind: list[Callable[[], None]] = []

    def take(self, data: bytes, pipe: asyncio.ReadTransport) -> None:
        """Bytes that came on the pipe."""
        if self._left:
            self._left.extend(portions(data))
            return
        first, *rest = portions(data)
        if rest:
            self._left.extend(rest)
            pipe.pause_reading()
            asyncio.get_running_loop().call_soon(self._go_on, pipe)
        self._hear(first)

    def when_heard(self, then: Callable[[], None]) -> None:
        """Call `then` once all that came is heard: now, if nothing waits."""
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
