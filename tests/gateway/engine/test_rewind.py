"""Caches that can't be cut anywhere: real engines with sliding windows and recurrent layers, as a gateway runs them."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from tests.gateway.engine.running_engine import Running, running
from tests.tiny_models import CACHES, Cache, tiny_model

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
async def test_engine_is_found_out_at_its_start(models: dict[Cache, Path], cache: Cache, rewind: str) -> None:
    async with started(models[cache]) as at:
        assert at.route.ready().facts.can.rewind == rewind


async def test_dense_model_is_cut_anywhere() -> None:
    async with running("auto") as at:
        assert at.route.ready().facts.can.rewind == "anywhere"


async def test_conversation_that_left_its_slot_loses_nothing(model: Path) -> None:
    async with started(model) as at:
        talk, other = some(1200, 1), some(900, 2)
        answer, _ = await at.ask(talk, most=40)
        await at.ask(other)
        _, timings = await at.ask([*talk, *answer, *some(60, 3)])
        assert timings.prompt_n <= 60 + 2
        assert at.count("codec_slot_file_restored_ids_total") >= 1200


@pytest.mark.parametrize("swapped", [False, True])
async def test_reasoning_that_the_template_drops_costs_the_visible_answer(model: Path, swapped: bool) -> None:
    async with started(model) as at:
        talk = some(1500, 1)
        for question in range(3):
            await at.ask(talk, most=64)
            if swapped:
                await at.ask(some(700, 9))
            visible, new = some(30, 10 + question), some(40, 20 + question)
            talk = [*talk, *visible, *new]
            _, timings = await at.ask(talk, most=1)
            assert timings.prompt_n <= 70 + SLACK


@pytest.mark.parametrize("own", [300, 700])
async def test_preamble_is_processed_once(model: Path, own: int) -> None:
    async with started(model, slots=2) as at:
        preamble = some(2000, 1)
        for talk in range(4):
            _, timings = await at.ask([*preamble, *some(own, 2 + talk)], preamble=len(preamble))
            assert timings.prompt_n <= own + SLACK


async def test_file_holds_the_state_and_two_checkpoints(model: Path) -> None:
    async with started(model) as at:
        await at.ask(some(1200, 1), most=40)
        await at.ask(some(900, 2))
        files = at.route.slot_files
        assert files is not None
        (file,) = files.directory.path.iterdir()
        state, _, appendix = file.read_bytes().rpartition(b"SCKP")
        checkpoints = int.from_bytes(appendix[4:8], "little")
        assert checkpoints == 2
        assert file.stat().st_size <= 1.5 * (len(state) + len(appendix) / checkpoints)


@pytest.mark.parametrize("cut", [0, 40], ids=["goes on", "goes back"])
async def test_cached_context_gives_what_an_uncached_one_gives(model: Path, cut: int) -> None:
    async with started(model) as at:
        talk = some(800, 1)
        answer, _ = await at.ask(talk, most=40)
        await at.ask(some(900, 2))
        prompt = [*talk, *answer[: len(answer) - cut], *some(50, 3)]
        cached, timings = await at.ask(prompt)
        assert timings.cache_n > 700
    async with started(model) as at:
        uncached, timings = await at.ask(prompt)
        assert timings.cache_n == 0
    assert cached == uncached
