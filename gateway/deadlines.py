"""Many deadlines for one timer of the loop: what nearly never happens may cost nearly nothing.

A timer of the loop takes 2 to 5 µs to set and to cancel, and a call of a tool needs two. Here deadlines wait together,
in steps of a twentieth of a second, and one timer looks at the next of them: a call comes up to a step late, and never
early. One that is nearer than a step is not late: it has a timer of its own. It knows nobody's reasons.
"""

import asyncio
from collections.abc import Callable
from typing import Final

STEP: Final = 0.05
"""Seconds."""


class Deadline:
    """What is to come at a time, unless it is cancelled before. It may be set again."""

    __slots__ = ("_step", "when")

    _step: "set[Deadline]"
    """Those that come with it, once it is set; without it, once it came or was cancelled."""
    when: float
    """By the loop's clock."""

    def come(self) -> None:
        """Its time is here."""
        raise NotImplementedError

    def cancel(self) -> None:
        """It is not to come; nothing, where it came. To be called only once it was set."""
        self._step.discard(self)

    def set(self, step: "set[Deadline]", when: float) -> None:
        """Used by `Deadlines`."""
        self._step, self.when = step, when
        step.add(self)


class _Call(Deadline):
    """A call to come. It lets go of what it would call as soon as it is over: the two mostly hold each other."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], object]) -> None:
        self._call: Callable[[], object] | None = call

    def come(self) -> None:
        """Call."""
        call, self._call = self._call, None
        if call is not None:
            call()

    def cancel(self) -> None:
        """Call nothing."""
        super().cancel()
        self._call = None


class Deadlines:
    """The deadlines of one event loop."""

    def __init__(self) -> None:
        """May be made before there is a loop; belongs to that of the first deadline."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._steps: dict[int, set[Deadline]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._next = 0

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that they belong to."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def after(self, seconds: float, call: Callable[[], object]) -> Deadline:
        """Call in so many seconds, unless it is cancelled before."""
        deadline = _Call(call)
        self.set(deadline, seconds)
        return deadline

    def set(self, deadline: Deadline, seconds: float) -> None:
        """Have it come in so many seconds, unless it is cancelled before."""
        loop = self._loop or self.loop
        when = loop.time() + seconds
        if seconds < STEP:
            near = set[Deadline]()
            deadline.set(near, when)
            loop.call_at(when, _come, near)
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
        """Call those whose time has come, and wait for the next. Steps in which all were cancelled need no timer."""
        self._timer = None
        now = loop.time()
        try:
            for number in sorted(number for number in self._steps if number * STEP <= now):
                _come(self._steps[number])
        finally:
            self._steps = {number: step for number, step in self._steps.items() if step}
            if self._steps:
                self._wait(loop, min(self._steps))


def _come(step: set[Deadline]) -> None:
    while step:
        step.pop().come()
