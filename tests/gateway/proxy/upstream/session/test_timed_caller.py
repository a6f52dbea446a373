"""The time of a call stands still while its client is asked, and begins anew when its server reports progress."""

import asyncio

import anyio
import anyio.lowlevel
import pytest

from gateway.deadlines import CallClock, Deadlines
from gateway.proxy.caller import Nobody, Principal
from gateway.proxy.upstream.session.in_flight import TimedCaller

pytestmark = pytest.mark.anyio


class Person(Nobody):
    """Answers when told to."""

    def __init__(self) -> None:
        super().__init__(modern=False, principal=Principal("ann"))
        self.capabilities = {"elicitation": {}}
        self.log_level = "error"
        self.thought = asyncio.Event()
        self.heard: list[str] = []

    def notified(self, method, params):
        self.heard.append(method)

    async def asked(self, method, params):
        await self.thought.wait()
        return {"asked": method}


async def asking(pausing: TimedCaller) -> asyncio.Task[dict[str, object]]:
    task = asyncio.create_task(pausing.asked("elicitation/create", {}))
    await anyio.lowlevel.checkpoint()
    return task


async def test_clock_stands_still_until_the_last_of_several_answers_and_goes_on_with_the_time_that_was_left():
    person = Person()
    with CallClock(Deadlines(), 3600) as clock:
        pausing = TimedCaller(person, clock)
        first, second = await asking(pausing), await asking(pausing)
        left = clock.left
        first.cancel()
        await asyncio.wait([first])
        assert clock.left == left
        person.thought.set()
        assert await second == {"asked": "elicitation/create"}
        assert 3500 < clock.left < left


async def test_call_does_not_run_out_of_time_while_its_client_thinks(clock):
    person = Person()

    async def call() -> object:
        with CallClock(Deadlines(), 5.0) as limit:
            answer = await TimedCaller(person, limit).asked("elicitation/create", {})
            await anyio.sleep(3.0)
            return answer

    calling = asyncio.create_task(call())
    await clock.passes(1.0)
    await clock.passes(3600.0)
    person.thought.set()
    await clock.passes(0.0)
    await clock.passes(3.0)

    assert await calling == {"asked": "elicitation/create"}


async def test_call_that_runs_out_of_time_after_the_answer_is_still_ended():
    person = Person()
    person.thought.set()

    async def call() -> None:
        with CallClock(Deadlines(), 0.05) as clock:
            await TimedCaller(person, clock).asked("elicitation/create", {})
            await anyio.sleep_forever()

    with pytest.raises(TimeoutError):
        await call()


async def test_answer_that_comes_after_the_call_is_over_is_still_given():
    person = Person()
    with CallClock(Deadlines(), 3600) as clock:
        question = await asking(TimedCaller(person, clock))
    person.thought.set()

    assert await question == {"asked": "elicitation/create"}


async def test_question_that_comes_after_the_call_is_over_is_still_put():
    person = Person()
    person.thought.set()
    with CallClock(Deadlines(), 3600) as clock:
        pausing = TimedCaller(person, clock)
        await anyio.lowlevel.checkpoint()

    assert await pausing.asked("elicitation/create", {}) == {"asked": "elicitation/create"}


async def test_everything_else_is_as_the_callers():
    person = Person()
    with CallClock(Deadlines(), 3600) as clock:
        pausing = TimedCaller(person, clock)
        pausing.notified("notifications/progress", {})
        await anyio.lowlevel.checkpoint()

    assert person.heard == ["notifications/progress"]
    assert (pausing.modern, pausing.capabilities, pausing.log_level, pausing.principal.name, pausing.session) == (
        False,
        {"elicitation": {}},
        "error",
        "ann",
        None,
    )


async def left_after_progress(clock: CallClock) -> tuple[float, float]:
    """The time that is left before and after a report of progress."""
    caller = TimedCaller(Person(), clock)
    await anyio.sleep(0.002)
    before = clock.left
    caller.notified("notifications/progress", {"progressToken": 1, "progress": 1})
    return before, clock.left


async def test_progress_grants_the_whole_time_again_and_other_notifications_do_not():
    with CallClock(Deadlines(), 3600, 7200) as clock:
        before, after = await left_after_progress(clock)
        TimedCaller(Person(), clock).notified("notifications/message", {})
        assert before < after <= 3600
        assert clock.left <= after
        assert (clock.extended, clock.is_capped) == (True, False)


async def test_progress_while_a_person_thinks_leaves_the_clock_standing():
    with CallClock(Deadlines(), 3600, 7200) as clock:
        await anyio.sleep(0.002)
        clock.pause()
        _, after = await left_after_progress(clock)
        await anyio.sleep(0.002)
        assert clock.left == after == 3600


async def test_progress_extends_no_call_beyond_the_cap_on_all_of_it():
    with CallClock(Deadlines(), 3600, 3600.001) as clock:
        await left_after_progress(clock)
        before, after = await left_after_progress(clock)
        assert after <= before
        assert clock.is_capped


async def test_progress_extends_no_call_that_has_no_cap_or_is_over():
    with CallClock(Deadlines(), 3600) as clock:
        before, after = await left_after_progress(clock)
        assert after <= before
    with CallClock(Deadlines(), 3600, 7200) as clock:
        await anyio.lowlevel.checkpoint()
    clock.extend()
    assert not clock.extended


async def test_call_that_ended_in_time_is_not_cancelled_behind_its_end():
    deadlines, later = Deadlines(), asyncio.Event()
    with CallClock(deadlines, 0.001):
        pass
    deadlines.after(0.002, later.set)

    with anyio.fail_after(30):
        await later.wait()
