"""Caches that can't be cut anywhere: real engines with sliding windows and recurrent layers, as a gateway runs them."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from bench.cache.tiny_caches import CACHES, Cache, tiny_model
from gateway.engine.embedded.child_process import KEPT_CHECKPOINTS
from gateway.engine.slots.engine_speed import Rates
from gateway.engine.slots.slot import Hints
from tests.gateway.engine.running_engine import Running, running

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

CONTEXT = 4096
SLACK = 8
"""Ids between a place and the checkpoint before it."""


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[Cache, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {each: tiny_model(each, folder / f"{each}.gguf") for each in CACHES}


@pytest.fixture(params=CACHES)
def model(request: pytest.FixtureRequest, models: dict[Cache, Path]) -> Path:
    return models[request.param]


@pytest.fixture(autouse=True)
def moving_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take longer to move the files of such small models than to process their ids."""
    monkeypatch.setattr(Rates, "to_move", lambda rates, ids: 0.0)


@asynccontextmanager
async def started(model: Path, slots: int = 1) -> AsyncGenerator[Running]:
    async with running("auto", slots=slots, model=model, context=CONTEXT * slots) as at:
        yield at


def some(count: int, seed: int) -> list[int]:
    """Ordinary ids of the packaged model's vocabulary."""
    return [Random(seed * 10_000 + n).randrange(1000, 40_000) for n in range(count)]


@pytest.mark.parametrize(
    ("cache", "rewind"), [("gemma3", "window"), ("lfm2", "checkpoints"), ("qwen35", "checkpoints")]
)
async def test_engine_is_found_out_and_a_conversation_that_left_its_slot_loses_nothing(
    models: dict[Cache, Path], cache: Cache, rewind: str
) -> None:
    async with started(models[cache]) as at:
        assert at.route.ready().facts.can.rewind == rewind
        talk, other = some(1200, 1), some(900, 2)
        answer, _ = await at.ask(talk, most=40)
        await at.ask(other)
        (file,) = at.files()
        goes_on, timings = await at.ask([*talk, *answer, *some(60, 3)])
        assert timings.prompt_n <= 60 + 2
        goes_back, timings = await at.ask([*talk, *some(50, 4)])
        assert timings.prompt_n <= 50 + SLACK
    assert file.checkpoints == KEPT_CHECKPOINTS
    assert file.size <= 1.5 * (file.state + file.appendix / file.checkpoints)
    async with started(models[cache]) as at:
        for prompt, cached in (([*talk, *answer, *some(60, 3)], goes_on), ([*talk, *some(50, 4)], goes_back)):
            uncached, timings = await at.ask(prompt, owner=str(len(prompt)), reuse=False)
            assert timings.cache_n == 0
            assert uncached == cached


async def test_dense_model_is_cut_anywhere() -> None:
    async with running("auto") as at:
        assert at.route.ready().facts.can.rewind == "anywhere"


async def test_reasoning_that_the_template_drops_costs_the_visible_answer(model: Path) -> None:
    async with started(model) as at:
        for swapped in (False, True):
            talk, before = some(1500, 1 + swapped), ""
            for number in range(3):
                answer = f"{swapped} {number}"
                await at.ask(talk, most=64, hints=Hints(question=len(talk), answer=answer, before=before))
                if swapped:
                    await at.ask(some(700, 9), hints=Hints(answer="other", before="other"))
                visible, new = some(30, 10 + number), some(40, 20 + number)
                talk, before = [*talk, *visible, *new], answer
                hints = Hints(question=len(talk), answer=answer, before=before)
                _, timings = await at.ask(talk, most=1, hints=hints)
                assert timings.prompt_n <= 70 + SLACK


@pytest.mark.parametrize("steps", [1, 5])
async def test_reasoning_before_many_calls_is_dropped_at_the_price_of_the_visible_answer(
    model: Path, steps: int
) -> None:
    async with started(model) as at:
        talk = some(1500, 1)
        hints = Hints(question=len(talk), answer="first")
        held = [*talk, *(await at.ask(talk, most=64, hints=hints))[0]]
        for step in range(steps):
            # A call's result comes in; the model thinks again.
            held += some(60, 30 + step)
            ids, timings = await at.ask(held, most=20, hints=replace(hints, returns=True))
            assert timings.prompt_n <= 60 + SLACK
            held += ids
        saved = 'codec_slot_file_moves_total{way="save"}'
        assert at.count(saved) == 1
        later = [*talk, *some(30, 2), *some(40, 3)]
        _, timings = await at.ask(later, most=1, hints=Hints(question=len(later), answer="second", before="first"))
        assert timings.prompt_n <= 70 + SLACK
        assert at.count(saved) == 1


async def test_preamble_is_processed_once(model: Path) -> None:
    async with started(model, slots=2) as at:
        preamble = some(2000, 1)
        hints = Hints(preamble=len(preamble))
        for talk in range(6):
            own = 300 if talk % 2 else 700
            _, timings = await at.ask([*preamble, *some(own, 2 + talk)], hints=hints)
            assert timings.prompt_n <= own + SLACK
