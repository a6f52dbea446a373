"""An engine is stuck if it has neither answered nor generated for a while, and not before."""

from time import monotonic

import anyio
import pytest

from gateway.engine.interface import Activity
from gateway.engine.start.engine_health import Pulse
from gateway.errors import EngineRefused, EngineUnavailable

pytestmark = pytest.mark.anyio


class Asked:
    """An engine that hangs, or answers in some way."""

    def __init__(self, answer: Exception | Activity | bool | None) -> None:
        self.answer = answer
        self.told = 0.0
        self.times = 0

    async def ask(self) -> Activity | None:
        self.times += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        if not isinstance(self.answer, bool):
            return self.answer
        await anyio.sleep_forever()
        raise AssertionError

    def pulse(self, seconds: float) -> Pulse:
        return Pulse(self.ask, lambda: self.told, seconds)


@pytest.mark.parametrize("answer", [None, EngineRefused("no such page", 404)])
async def test_engine_that_is_idle_or_does_not_say_is_not_stuck(answer: Exception | None) -> None:
    pulse = Asked(answer).pulse(1e-9)
    assert [await pulse.stuck() for _ in range(3)] == [None] * 3


async def test_engine_that_makes_progress_is_not_stuck() -> None:
    engine = Asked(None)
    pulse = engine.pulse(0)
    for step in range(3):
        engine.answer = Activity((0, step))
        assert await pulse.stuck() is None


async def test_engine_that_answers_but_makes_no_progress_is_stuck_after_a_while() -> None:
    engine = Asked(Activity((0, 7)))
    pulse = engine.pulse(0)
    assert await pulse.stuck() is None
    assert "made no progress with any request" in (await pulse.stuck() or "")
    engine.answer = Activity((0, 8))
    assert await pulse.stuck() is None
    engine.answer = None
    assert [await pulse.stuck() for _ in range(2)] == [None] * 2


async def test_step_with_a_prompt_in_it_may_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Asked(Activity((0, 7), prefills=True))
    pulse = engine.pulse(0)
    assert [await pulse.stuck() for _ in range(3)] == [None] * 3
    assert pulse.prefills
    monkeypatch.setattr("gateway.engine.start.engine_health.PROMPT_STEP", 0.0)
    assert "made no progress" in (await pulse.stuck() or "")
    # One that does not even answer is not at work on a prompt.
    monkeypatch.undo()
    engine.answer = EngineUnavailable("gone")
    assert "has answered nobody" in (await pulse.stuck() or "")
    assert not pulse.prefills


@pytest.mark.parametrize("answer", [False, EngineUnavailable("gone")])
async def test_engine_that_does_not_answer_is_stuck_after_a_while(answer: Exception | bool) -> None:
    assert "is stuck" in (await Asked(answer).pulse(0).stuck() or "")
    assert await Asked(EngineUnavailable("gone")).pulse(1000).stuck() is None


async def test_engine_that_generates_is_not_asked_and_not_stuck() -> None:
    engine = Asked(False)
    pulse = engine.pulse(1.0)
    engine.told = monotonic() + 1000

    assert await pulse.stuck() is None
    assert engine.times == 0
