"""The time of a call stands still while its client is asked."""

import asyncio

import anyio
import anyio.lowlevel
import pytest

from gateway.deadlines import Deadlines
from gateway.proxy.caller import Nobody, Principal
from gateway.proxy.upstream.clock import Clock
from gateway.proxy.upstream.pausing_caller import PausingCaller

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


async def asking(pausing: PausingCaller) -> asyncio.Task[dict[str, object]]:
    task = asyncio.create_task(pausing.asked("elicitation/create", {}))
    await anyio.lowlevel.checkpoint()
    return task


async def test_clock_stands_still_until_the_last_of_several_answers_and_goes_on_with_the_time_that_was_left():
    person = Person()
    with Clock(Deadlines(), 3600) as clock:
        pausing = PausingCaller(person, clock)
        first, second = await asking(pausing), await asking(pausing)
        left = clock.left
        first.cancel()
        await asyncio.wait([first])
        assert clock.left == left
        person.thought.set()
        assert await second == {"asked": "elicitation/create"}
        assert 3500 < clock.left < left


async def test_call_that_runs_out_of_time_after_the_answer_is_still_ended():
    person = Person()
    person.thought.set()

    async def call() -> None:
        with Clock(Deadlines(), 0.05) as clock:
            await PausingCaller(person, clock).asked("elicitation/create", {})
            await anyio.sleep_forever()

    with pytest.raises(TimeoutError):
        await call()


async def test_answer_that_comes_after_the_call_is_over_is_still_given():
    person = Person()
    with Clock(Deadlines(), 3600) as clock:
        question = await asking(PausingCaller(person, clock))
    person.thought.set()

    assert await question == {"asked": "elicitation/create"}


async def test_question_that_comes_after_the_call_is_over_is_still_put():
    person = Person()
    person.thought.set()
    with Clock(Deadlines(), 3600) as clock:
        pausing = PausingCaller(person, clock)
        await anyio.lowlevel.checkpoint()

    assert await pausing.asked("elicitation/create", {}) == {"asked": "elicitation/create"}


async def test_everything_else_is_as_the_callers():
    person = Person()
    with Clock(Deadlines(), 3600) as clock:
        pausing = PausingCaller(person, clock)
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
