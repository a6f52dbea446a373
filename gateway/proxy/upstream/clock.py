"""The time of one call: when it is over, the task inside is cancelled, and told so by a TimeoutError.

As `asyncio.timeout`, for a part of its cost (`gateway.deadlines`), and it can stand still.
"""

import asyncio
from types import TracebackType
from typing import Self, cast

from gateway.deadlines import Deadline, Deadlines


class Clock(Deadline):
    """What its task does inside must not take longer. To be entered once."""

    __slots__ = ("_cancelling", "_deadlines", "_expired", "_left", "_over", "_still", "_task")

    def __init__(self, deadlines: Deadlines, seconds: float) -> None:
        """`seconds`: from when it is entered."""
        self._deadlines = deadlines
        self._left = seconds
        self._still = False
        self._expired = False
        self._over = False

    def __enter__(self) -> Self:
        """The time begins."""
        self._task = cast("asyncio.Task[object]", asyncio.current_task(self._deadlines.loop))
        self._cancelling = self._task.cancelling()
        self._deadlines.set(self, self._left)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raises TimeoutError where the time was over and nobody else cancelled the task."""
        self._over = True
        self.cancel()
        if self._expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    @property
    def left(self) -> float:
        """Seconds, as if it stood still now."""
        return self._left if self._still else self.when - self._deadlines.loop.time()

    def stand_still(self) -> None:
        """No time passes from now on."""
        if not self._still:
            self._left = self.left
            self._still = True
            self.cancel()

    def go_on(self) -> None:
        """The time that was left begins; nothing, once the call is over."""
        if self._still and not self._over:
            self._still = False
            self._deadlines.set(self, self._left)

    def come(self) -> None:
        """The time is over."""
        self._over = self._expired = True
        self._task.cancel()
