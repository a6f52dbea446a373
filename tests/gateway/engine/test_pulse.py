"""An engine is stuck if it has neither answered nor generated for a while, and not before."""

from time import monotonic

import anyio
import pytest

from gateway.engine.pulse import Pulse
from gateway.errors import EngineRefused, EngineUnavailable

pytestmark = pytest.mark.anyio


class Asked:
    """An engine that hangs, or answers in some way."""

    def __init__(self, answer: Exception | bool) -> None:
        self.answer = answer
        self.told = 0.0
        self.times = 0

    async def ask(self) -> bool:
        self.times += 1
        if self.answer is True:
            return True
        if isinstance(self.answer, Exception):
            raise self.answer
        await anyio.sleep_forever()
        raise AssertionError

    def pulse(self, seconds: float) -> Pulse:
        return Pulse(self.ask, lambda: self.told, seconds)


@pytest.mark.parametrize("answer", [True, EngineRefused("no such page", 404)])
async def test_engine_that_answers_is_not_stuck(answer: Exception | bool) -> None:
    assert await Asked(answer).pulse(1e-9).stuck() is None


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
