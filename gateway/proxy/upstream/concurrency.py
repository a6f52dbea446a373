"""How many calls of one server run at a time, and how many may wait for that.

First come, first served; one that would wait behind too many is refused at once, so that a slow server costs bounded
memory. It knows no call.
"""

import asyncio
from collections import deque


class Full(Exception):
    """Too many calls wait already."""


class Users:
    """Counts who is inside; a context that any number may enter at a time."""

    __slots__ = ("_count", "_empty")

    def __init__(self) -> None:
        self._count = 0
        self._empty = asyncio.Event()

    def __enter__(self) -> None:
        self._count += 1

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if not self._count:
            self._empty.set()

    async def over(self) -> None:
        """Wait until nobody is inside."""
        while self._count:
            self._empty = asyncio.Event()
            await self._empty.wait()


class Gate:
    """`limit` calls inside, `queue` calls before it."""

    def __init__(self, limit: int, queue: int) -> None:
        self._limit = limit
        self._queue = queue
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.inside = 0
        """Calls that run now."""

    @property
    def waiting(self) -> int:
        """Calls that wait now."""
        return len(self._waiting)

    def enter_at_once(self) -> bool:
        """Take a place if one is free, and say so; one that was taken needs one `leave`."""
        if self.inside >= self._limit:
            return False
        self.inside += 1
        return True

    async def enter(self) -> bool:
        """Take a place; every `enter` that returned needs one `leave`. Returns whether it had to wait.

        Raises:
            Full: `queue` calls wait already.
        """
        if self.enter_at_once():
            return False
        if len(self._waiting) >= self._queue:
            raise Full
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                # The place was given in the very moment in which its caller went away.
                self.leave()
            elif place in self._waiting:
                # Unless `leave` came first and passed over it.
                self._waiting.remove(place)
            raise
        return True

    def leave(self) -> None:
        """Give the place to whoever has waited longest, if anyone waits."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self.inside -= 1
