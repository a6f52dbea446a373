"""The time limit of one call, kept fair: asking its client costs none of it, and progress of its server extends it."""

import asyncio
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, Self

from gateway.deadlines import Deadline, Deadlines
from gateway.protocol.eras import PROGRESS
from gateway.proxy.caller import Caller, ForwardingCaller

# The time limit of one call: when it is over, the task inside is cancelled and gets a TimeoutError.
#
# Like `asyncio.timeout`, at a fraction of the cost (`gateway.deadlines`). It can be paused, and extended up to a cap.


class CallClock(Deadline):
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


# Keeps the time limit of a call fair: asking its client costs none of it, and progress of its server extends it.
#
# Wraps a caller so that each question to it pauses the call's clock, since a person may be thinking, and the answer
# resumes it with the time that was left. A report of progress shows that the server is at work: it extends the clock.


class TimedCaller(ForwardingCaller):
    """A caller whose questions do not cost the call's time, and whose server's progress extends it."""

    __slots__ = ("_asking", "_clock")

    def __init__(self, caller: Caller, clock: CallClock) -> None:
        """`clock`: the running clock of the call."""
        super().__init__(caller)
        self._clock = clock
        self._asking = 0

    def notified(self, method: str, params: dict[str, Any]) -> None:
        """Pass the notification on; progress extends the clock."""
        if method == PROGRESS:
            self._clock.extend()
        super().notified(method, params)

    async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Pass the question on, with the clock paused."""
        with self.paused():
            return await super().asked(method, params)

    @contextmanager
    def paused(self) -> Generator[None, None, None]:
        """Pause the clock while the context lasts; overlapping questions count as one pause."""
        self._asking += 1
        self._clock.pause()
        try:
            yield
        finally:
            self._asking -= 1
            if self._asking == 0:
                self._clock.resume()


@contextmanager
def all_paused(callers: Iterable[Caller]) -> Generator[None, None, None]:
    """Pause the clocks of all these calls while the context lasts: one of them asks, but it is not known which."""
    with ExitStack() as clocks:
        for caller in callers:
            if isinstance(caller, TimedCaller):
                clocks.enter_context(caller.paused())
        yield
