"""A prompt continued: ids pass on as they come, and no id is read beyond what a stop string may end."""

from typing import Any

import pytest

from gateway.agent import Completer, CompletionOptions
from gateway.agent.events import IdsGenerated
from gateway.config import LimitsConfig
from gateway.errors import RequestInvalid
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
