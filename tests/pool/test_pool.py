"""Two real engines as a pool, in short: `make pool-check` is the same at length."""

import random
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from gateway.config import EngineConfig
from tests.pool.engines import addresses, havoc
from tests.pool.load import Conversations, config_of, conversations, run

pytestmark = [pytest.mark.anyio, pytest.mark.engine, pytest.mark.timeout(300)]

# A slot for each conversation: what is swapped where there are fewer hangs on how fast the machine is.
ROOMY = EngineConfig(kind="embedded", context=6144, slots=6, threads=1, slot_files="off", cache_mib=0)


def assert_exact(talks: Conversations) -> None:
    outcome = talks.outcome
    assert outcome.faults == []
    assert outcome.unnamed == []
    assert outcome.whole + sum(outcome.ended.values()) == outcome.answers


async def test_conversations_find_their_cache_again_as_on_one_engine(one_layer: Path) -> None:
    roomy = replace(ROOMY, model=one_layer)
    async with conversations(config_of({"engine": roomy}), tokens=12) as alone:
        await run(alone, 1, 3)
    async with conversations(config_of({"a": roomy, "b": roomy}), tokens=12) as talks:
        await run(talks, 6, 3)
        used = {asked.url for asked in talks.asked}

    assert len(used) == 2
    assert talks.outcome.reuse >= 0.98 * alone.outcome.reuse > 0.9
    assert talks.outcome.whole == talks.outcome.answers
    assert talks.outcome.calls >= 6
    assert_exact(talks)


async def test_engines_that_are_killed_hang_and_are_exchanged_cost_no_id() -> None:
    settings = EngineConfig(kind="embedded", context=2048, slots=2, threads=1, cache_mib=64, exclusive=True)
    async with addresses(2, settings) as found:
        url = {f"engine-{n}": EngineConfig(kind="url", url=each.url, exclusive=True) for n, each in enumerate(found)}
        async with conversations(config_of(url), tokens=24) as talks:
            lost: list[int] = []

            async def lose() -> None:
                lost.append(
                    await havoc(found, 20, (1, 3), random.Random(7), is_open=lambda each: talks.is_open(each.url))
                )

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lose)
                await run(talks, 4, 3, until=anyio.current_time() + 20)

    assert lost[0] >= 2
    assert all(each.intruder.prompts == [] for each in found)
    # One engine was well at any time: only a grammar can have ended an answer, or moves that come faster than answers,
    # as they do on a busy machine.
    assert set(talks.outcome.ended) <= {"engine_lost", "engine_unavailable"}
    assert talks.outcome.whole > 0
    assert talks.outcome.moved > 0
    assert_exact(talks)
