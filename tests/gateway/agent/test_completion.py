"""A prompt continued: ids pass on as they come, and no id is read beyond what a stop string may end."""

from typing import Any

import pytest

from gateway.agent import Completer, CompletionOptions
from gateway.agent.events import IdsGenerated
from gateway.config import LimitsConfig
from gateway.engine.protocol import Generated, GenerationEnd, Timings
from gateway.errors import EngineRefused, RequestInvalid
from gateway.proxy.caller import Principal
from leaf_sdk.testing import tiny_map

pytestmark = pytest.mark.anyio
TINY = tiny_map()


async def completed(stage: Any, options: CompletionOptions, prompt: str = "Say it: ") -> Any:
    completer = Completer(stage.route, LimitsConfig(), stage.metrics)
    return await completer.answer(completer.open(prompt), options, stage.listen)


@pytest.mark.parametrize(("stops", "gathered"), [((), True), (("x",), False)])
async def test_ids_may_come_together_only_where_no_stop_string_can_end_them(open_stage, stops, gathered):
    async with open_stage("one two") as stage:
        await completed(stage, CompletionOptions(stops=stops, text=False, ids=True))
        assert [asked.gather for asked in stage.engine.asked] == [gathered]
        assert TINY.decode([i for event in stage.of(IdsGenerated) for i in event.ids]) == "one two"


async def test_no_id_behind_the_one_that_completes_a_stop_string_is_told(open_stage):
    async with open_stage("one STOP two three") as stage:
        finished = await completed(stage, CompletionOptions(stops=("STOP",), text=False, ids=True))
        ids = [i for event in stage.of(IdsGenerated) for i in event.ids]
        assert finished.reason == "stop"
        assert "STOP" in TINY.decode(ids)
        assert "two" not in TINY.decode(ids)
        assert finished.completion_ids == len(ids)


async def test_id_that_the_map_does_not_have_never_reaches_the_engine(open_stage):
    async with open_stage("one") as stage:
        completer = Completer(stage.route, LimitsConfig(), stage.metrics)
        with pytest.raises(RequestInvalid, match="99999999"):
            completer.open([1, 99_999_999])
        assert stage.engine.asked == []


async def test_prompt_that_the_engine_refused_tells_nothing_of_the_cache_when_it_is_asked_again(open_stage):
    """Else a refused request would be the first half of a question that the second one answers."""

    async def refuse(prompt: list[int], most: int):
        raise EngineRefused("no", 400)
        yield

    async def know(prompt: list[int], most: int):
        yield Generated((5,))
        yield GenerationEnd("length", None, Timings(1, len(prompt) - 1, 1, 0.0, 0.0))

    async with open_stage("") as stage:
        completer = Completer(stage.route, LimitsConfig(), stage.metrics)
        prompt = completer.open("Somebody else's prompt", Principal("eve"))
        stage.engine._events = refuse
        with pytest.raises(EngineRefused):
            await completer.answer(prompt, CompletionOptions(), stage.listen)
        stage.engine._events = know
        told = [await completer.answer(prompt, CompletionOptions(), stage.listen) for _ in range(2)]

    assert [each.cached_ids for each in told] == [0, len(prompt.ids) - 1]
