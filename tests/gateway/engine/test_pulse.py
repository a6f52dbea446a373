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


async def test_silence_is_counted_from_the_last_ids_or_the_last_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("gateway.engine.start.engine_health.monotonic", lambda: now)
    engine = Asked(Activity((0, 7)))
    pulse = engine.pulse(60.0)
    engine.told = 990.0
    assert await pulse.stuck() is None
    now = 1059.9
    assert await pulse.stuck() is None
    now = 1060.0
    assert "made no progress with any request for 60 s (engine.idle_timeout)" in (await pulse.stuck() or "")
    # Ids have come meanwhile; nobody asks within two seconds of them.
    engine.told, asked, now = 1070.0, engine.times, 1072.0
    assert await pulse.stuck() is None
    assert engine.times == asked
    now = 1072.1
    assert await pulse.stuck() is None
    assert engine.times == asked + 1
    now = 1130.5
    assert "for 60 s" in (await pulse.stuck() or "")


async def test_engine_that_is_asked_whether_it_advances_must_be_at_work_and_get_on() -> None:
    engine = Asked(Activity((0, 7)))
    pulse = engine.pulse(60.0)
    assert await pulse.advances()
    assert not await pulse.advances()
    engine.answer = Activity((0, 8))
    assert await pulse.advances()
    engine.answer = None
    assert await pulse.moves()
    assert not await pulse.advances()
    engine.answer = EngineUnavailable("gone")
    assert not await pulse.moves()


async def test_question_takes_two_seconds_at_most_or_as_long_as_the_silence_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = list[float]()
    wait = anyio.move_on_after

    def noted(seconds: float) -> anyio.CancelScope:
        given.append(seconds)
        return wait(0)

    monkeypatch.setattr("gateway.engine.start.engine_health.anyio.move_on_after", noted)
    for seconds in (60.0, 0.5):
        assert not await Asked(False).pulse(seconds).moves()
    assert given == [2.0, 0.5]


async def test_step_with_a_prompt_may_last_as_long_as_the_silence_may_if_that_is_longer(monkeypatch) -> None:
    now = 0.0
    monkeypatch.setattr("gateway.engine.start.engine_health.monotonic", lambda: now)
    for seconds, limit in ((60.0, 600.0), (900.0, 900.0)):
        now = 1000.0
        pulse = Asked(Activity((0, 7), prefills=True)).pulse(seconds)
        assert await pulse.stuck() is None
        now += limit - 0.1
        assert await pulse.stuck() is None
        now += 0.1
        assert "made no progress" in (await pulse.stuck() or "")
