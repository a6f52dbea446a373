"""Deadlines come in order, none too early, and one that is cancelled never."""

import asyncio
import gc
import weakref

import anyio
import anyio.lowlevel
import pytest

from gateway.deadlines import STEP, CallClock, Deadlines

pytestmark = pytest.mark.anyio


class Waiting:
    """Deadlines that are told apart by a name."""

    def __init__(self) -> None:
        self.deadlines = Deadlines()
        self.came: list[tuple[str, float]] = []
        self._loop = asyncio.get_running_loop()

    def after(self, seconds, name, then=lambda: None):
        return self.deadlines.after(seconds, lambda: (self.came.append((name, self._loop.time())), then()))

    @property
    def names(self):
        return [name for name, _ in self.came]


async def test_deadlines_come_in_the_order_of_their_times_and_not_before():
    began = asyncio.get_running_loop().time()
    over = asyncio.Event()
    waiting = Waiting()
    for steps, name in ((6, "last"), (2, "first"), (4, "second")):
        waiting.after(steps * STEP, name, over.set if name == "last" else lambda: None)
    await over.wait()

    assert waiting.names == ["first", "second", "last"]
    assert all(time - began >= steps * STEP for (_, time), steps in zip(waiting.came, (2, 4, 6), strict=True))


async def test_one_that_is_nearer_than_a_step_comes_before_the_step_is_over_or_not_at_all():
    over = asyncio.Event()
    waiting = Waiting()
    waiting.after(STEP, "step", over.set)
    waiting.after(0.001, "gone").cancel()
    waiting.after(0.002, "near")
    waiting.after(-1.0, "late already")
    await over.wait()

    assert waiting.names == ["late already", "near", "step"]


class Timer:
    """What a loop was asked to call, and when."""

    def __init__(self, when: float, call, arguments) -> None:
        self.when = when
        self.waits = True
        self._call = call
        self._arguments = arguments

    def cancel(self) -> None:
        self.waits = False

    def come(self) -> None:
        self.waits = False
        self._call(*self._arguments)


class Timers:
    """A loop whose clock stands still, and which calls nothing of its own accord."""

    def __init__(self, now: float) -> None:
        self.now = now
        self.asked: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when, call, *arguments):
        self.asked.append(Timer(when, call, arguments))
        return self.asked[-1]

    @property
    def waiting(self) -> list[Timer]:
        return [timer for timer in self.asked if timer.waits]


@pytest.fixture
def timers(monkeypatch):
    timers = Timers(1.01)
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: timers)
    return timers


async def test_one_that_is_nearer_than_a_step_has_a_timer_of_its_own_for_its_very_time(timers):
    came: list[str] = []
    deadlines = Deadlines()

    deadlines.after(STEP / 4, lambda: came.append("near"))
    deadlines.after(STEP / 2, lambda: came.append("gone")).cancel()
    deadlines.after(STEP, lambda: came.append("step"))

    near, gone, step = timers.asked
    assert [round(each.when, 6) for each in (near, gone)] == [round(1.01 + STEP / 4, 6), round(1.01 + STEP / 2, 6)]
    assert abs(step.when / STEP - round(step.when / STEP)) < 1e-6
    near.come()
    gone.come()
    assert came == ["near"]
    timers.now = step.when
    step.come()
    assert came == ["near", "step"]


async def test_one_comes_up_to_a_step_late_and_never_early(timers):
    for parts in range(1, 12):
        timers.asked.clear()
        timers.now = 1 + parts * STEP / 4

        Deadlines().after(3 * STEP, list)

        assert timers.now + 3 * STEP <= timers.asked[0].when <= timers.now + 4 * STEP + 1e-9


async def test_all_have_one_timer_of_the_loop_whichever_comes_first(timers):
    deadlines = Deadlines()
    for steps in (8, 4, 6, 2, 4, 2):
        deadlines.after(steps * STEP, list)

    while timers.waiting:
        (timer,) = timers.waiting
        timers.now = timer.when
        timer.come()

    assert timers.now >= 1.01 + 8 * STEP


async def test_one_that_is_cancelled_waits_in_no_step_any_more():
    deadlines = Deadlines()
    cancelled = deadlines.after(3600, list)
    cancelled.cancel()

    assert not [each for each in gc.get_referrers(cancelled) if isinstance(each, set)]


async def test_one_that_is_cancelled_does_not_come_be_it_by_another_of_the_same_time():
    over = asyncio.Event()
    waiting = Waiting()
    waiting.after(STEP, "gone").cancel()
    both = []
    for name, other in (("a", 1), ("b", 0)):
        both.append(waiting.after(2 * STEP, name, lambda other=other: both[other].cancel()))
    waiting.after(5 * STEP, "end", over.set)
    await over.wait()

    assert len(waiting.names) == 2
    assert waiting.names[0] in "ab"


async def test_one_that_raises_does_not_keep_the_others_from_coming():
    over = asyncio.Event()
    waiting = Waiting()
    told = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(str(context["exception"])))
    waiting.deadlines.after(STEP, {}.popitem)
    waiting.after(STEP, "same time")
    waiting.after(3 * STEP, "end", over.set)
    await over.wait()

    assert waiting.names == ["same time", "end"]
    assert told == ["'popitem(): dictionary is empty'"]


async def test_a_later_deadline_does_not_put_off_an_earlier_one_and_an_earlier_one_comes_first():
    over = asyncio.Event()
    waiting = Waiting()
    waiting.after(3600, "never")
    waiting.after(STEP, "soon", over.set)
    waiting.after(60, "later")
    await over.wait()

    assert waiting.names == ["soon"]


async def test_what_is_over_is_freed_without_the_garbage_collector():
    class Owner:
        def __init__(self, deadlines, seconds):
            self.deadline = deadlines.after(seconds, self.called)

        def called(self): ...

    gc.disable()
    try:
        waiting = Waiting()
        over = asyncio.Event()
        cancelled, came = Owner(waiting.deadlines, 3600), Owner(waiting.deadlines, STEP)
        waiting.after(3 * STEP, "end", over.set)
        await over.wait()
        cancelled.deadline.cancel()
        gone = weakref.ref(cancelled), weakref.ref(came)
        del cancelled, came

        assert [each() for each in gone] == [None, None]
    finally:
        gc.enable()


async def test_task_that_somebody_else_cancels_too_is_cancelled_and_not_late():
    async def call():
        with CallClock(Deadlines(), STEP):
            try:
                await anyio.sleep_forever()
            finally:
                asyncio.current_task().cancel()
                await anyio.lowlevel.checkpoint()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(call())


async def test_task_that_is_late_can_go_on_behind_its_clock():
    with pytest.raises(TimeoutError), CallClock(Deadlines(), STEP):
        await anyio.sleep_forever()

    assert asyncio.current_task().cancelling() == 0
    await anyio.lowlevel.checkpoint()
