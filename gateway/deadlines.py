"""Many deadlines on one timer of the event loop: deadlines almost never expire, so they should cost almost nothing.

Setting and cancelling a timer of the loop takes 2 to 5 µs, and a tool call needs two. Here deadlines are grouped in
steps of a twentieth of a second, and one timer waits for the next step: a deadline expires up to a step late, and never
early. One that is nearer than a step is not late: it has a timer of its own.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

STEP: Final = 0.05
"""Seconds."""


class Deadline:
    """Something to be done at a time, unless it is cancelled before then. It may be set again."""

    __slots__ = ("_step", "when")

    _step: "set[Deadline]"
    """The deadlines of the same step. It is one of them from when it is set until it expires or is cancelled."""
    when: float
    """By the loop's clock."""

    def expire(self) -> None:
        """Do what is due: the time is over."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Cancel it; does nothing if it has expired. It must have been set."""
        self._step.discard(self)

    def set(self, step: "set[Deadline]", when: float) -> None:
        """Join a step. Called by `Deadlines` only."""
        self._step, self.when = step, when
        step.add(self)


class _Call(Deadline):
    """A function to be called. It is released as soon as it was called or cancelled, to break a reference cycle."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], object]) -> None:
        self._call: Callable[[], object] | None = call

    def expire(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call()

    def cancel(self) -> None:
        super().cancel()
        self._call = None


class Deadlines:
    """The deadlines of one event loop."""

    def __init__(self) -> None:
        """May be created before there is a loop; it uses the loop that runs when the first deadline is set."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._steps: dict[int, set[Deadline]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._next = 0

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that runs the timer."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def after(self, seconds: float, call: Callable[[], object]) -> Deadline:
        """Call a function after this many seconds, unless it is cancelled before then."""
        deadline = _Call(call)
        self.set(deadline, seconds)
        return deadline

    def set(self, deadline: Deadline, seconds: float) -> None:
        """Let a deadline expire after this many seconds, unless it is cancelled before then."""
        loop = self._loop or self.loop
        when = loop.time() + seconds
        if seconds < STEP:
            near = set[Deadline]()
            deadline.set(near, when)
            loop.call_at(when, _expire_all, near)
            return
        number = int(when / STEP) + 1
        step = self._steps.get(number)
        if step is None:
            step = self._steps[number] = set()
            if self._timer is None or number < self._next:
                self._wait(loop, number)
        deadline.set(step, when)

    def _wait(self, loop: asyncio.AbstractEventLoop, number: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = number
        self._timer = loop.call_at(number * STEP, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run what is due, and wait for the next step. Steps in which everything was cancelled need no timer."""
        self._timer = None
        now = loop.time()
        try:
            for number in sorted(number for number in self._steps if number * STEP <= now):
                _expire_all(self._steps[number])
        finally:
            self._steps = {number: step for number, step in self._steps.items() if step}
            if self._steps:
                self._wait(loop, min(self._steps))


def _expire_all(step: set[Deadline]) -> None:
    while step:
        step.pop().expire()


# The time limit of one call: when it is over, the task inside is cancelled and gets a TimeoutError.
#
# Like `asyncio.timeout`, at a fraction of the cost. It can be paused, and extended up to a cap.


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
