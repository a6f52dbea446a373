"""How many calls of one server run at a time, and how many may wait for their turn.

First come, first served. A call is refused at once if too many wait already, so that a slow server costs bounded
memory. It knows no calls.
"""

import asyncio
from collections import deque


class Full(Exception):
    """Too many calls are waiting already."""


class Users:
    """Counts users; a context that any number of them may enter at a time."""

    __slots__ = ("_count", "_empty")

    def __init__(self) -> None:
        self._count = 0
        self._empty = asyncio.Event()

    def __bool__(self) -> bool:
        """Whether there are any."""
        return self._count > 0

    def __enter__(self) -> None:
        self._count += 1

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if not self._count:
            self._empty.set()

    async def over(self) -> None:
        """Wait until there are no users."""
        while self._count:
            self._empty = asyncio.Event()
            await self._empty.wait()


class Gate:
    """Lets `limit` calls in, and `queue` calls wait."""

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
        """Take a place if one is free, and return whether it was; each place taken needs one `leave`."""
        if self.inside >= self._limit:
            return False
        self.inside += 1
        return True

    async def enter(self) -> bool:
        """Take a place; every `enter` that returned needs one `leave`. Return whether it had to wait.

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
                # The place was given at the very moment at which the caller was cancelled.
                self.leave()
            elif place in self._waiting:
                # It is not there if `leave` has skipped it in the meantime.
                self._waiting.remove(place)
            raise
        return True

    def leave(self) -> None:
        """Give the place to the call that has waited longest, if any is waiting."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self.inside -= 1
