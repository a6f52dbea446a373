"""The time limit of one call: when it is over, the task inside is cancelled and gets a TimeoutError.

Like `asyncio.timeout`, at a fraction of the cost (`gateway.deadlines`). It can be paused, and extended up to a cap.
"""

import asyncio
from types import TracebackType
from typing import Self

from gateway.deadlines import Deadline, Deadlines


class Clock(Deadline):
    """A context in which its task may spend only a limited time. Enter it once."""

    __slots__ = (
        "_cancelling",
        "_deadlines",
        "_expired",
        "_left",
        "_over",
        "_paused",
        "_spare",
        "_task",
        "extended",
        "limit",
    )

    def __init__(self, deadlines: Deadlines, seconds: float, most: float = 0.0) -> None:
        """`seconds`: the limit, counted from entry or from the last `extend`. `most`: the limit of all extensions
        together, counted from entry."""
        self._deadlines = deadlines
        self._left = seconds
        self.limit = seconds
        """Seconds of the limit, without extensions."""
        self._spare = most - seconds if most > seconds else 0.0
        self.extended = False
        """Whether it has been extended."""
        self._paused = False
        self._expired = False
        self._over = False

    def __enter__(self) -> Self:
        """Start the time."""
        self._task: asyncio.Task[object] = asyncio.current_task(self._deadlines.loop)  # pyright: ignore[reportAttributeAccessIssue]
        self._cancelling = self._task.cancelling()
        self._deadlines.set(self, self._left)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raises TimeoutError if the time is over and nobody else has cancelled the task."""
        self._over = True
        self.cancel()
        if self._expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self._left if self._paused else self.when - self._deadlines.loop.time()

    def pause(self) -> None:
        """Pause the time."""
        if not self._paused:
            self._left = self.left
            self._paused = True
            self.cancel()

    def resume(self) -> None:
        """Resume with the time that was left; does nothing once the call is over."""
        if self._paused and not self._over:
            self._paused = False
            self._deadlines.set(self, self._left)

    def extend(self) -> None:
        """Grant the whole limit again, as far as the cap allows; does nothing once the call is over."""
        if self._over or not self._spare:
            return
        left = self.left
        more = min(self.limit - left, self._spare)
        self._spare -= more
        self._left = left + more
        self.extended = True
        if not self._paused:
            self.cancel()
            self._deadlines.set(self, self._left)

    @property
    def is_capped(self) -> bool:
        """Whether no extension is left."""
        return not self._spare

    def expire(self) -> None:
        """Cancel the task: the time is over."""
        self._over = self._expired = True
        self._task.cancel()
