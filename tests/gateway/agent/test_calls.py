"""Calls become ids for the model, whatever comes of them: real server, real tokens, small limits."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.agent import CallRunner
from gateway.agent.calls.runner import Answered
from gateway.config import GatewayConfig, LimitsConfig, UpstreamConfig
from gateway.observe.logs import TokenNotices, get_logger
from gateway.observe.metrics import Metrics
from gateway.proxy.proxy import Proxy
from gateway.proxy.result_tokens import ResultTokens, UnreadText
from gateway.proxy.results import CallOutcome
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallClosed
from leaf_sdk.testing import tiny_map

pytestmark = pytest.mark.anyio

TINY = tiny_map()
OFFERED = tuple(ToolSpec(name, "", {}) for name in ("up__say", "up__nope", "elsewhere__tool", "else"))
ROOM = 10_000
SAY = ToolSpec("say", "", {})


def call(name: str = "up__say", arguments: str = "{}", index: int = 0) -> CallClosed:
    return CallClosed(index, f"call_{index}", name, arguments, ())


async def run(runner, calls, offered, token_map, room):
    """Run calls as the turn does, all started at once."""
    async with runner.running(offered) as running:
        for one in calls:
            running.start(one)
    return await running.finished(token_map, room)


async def test_result_comes_back_as_the_ids_of_its_text_with_the_call_named(open_runner):
    async with open_runner(LimitsConfig(), "hello world") as (runner, _):
        (outcome,) = await run(runner, [call(arguments='{"a": 1}')], OFFERED, TINY, ROOM)

    told = outcome.finished
    assert list(outcome.ids) == TINY.encode("hello world")
    assert (told.call_id, told.name, told.arguments, told.text) == ("call_0", "up__say", '{"a": 1}', "hello world")
    assert (told.source, told.shim_ids, told.leaf_ids, told.is_error) == ("shim", len(outcome.ids), 0, False)
    assert told.seconds > 0


async def test_blocks_of_a_result_stand_on_lines_of_their_own(open_runner):
    async with open_runner(LimitsConfig(), "hello", "world") as (runner, _):
        (outcome,) = await run(runner, [call()], OFFERED, TINY, ROOM)

    assert TINY.decode(outcome.ids) == outcome.finished.text == "hello\nworld"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (call("up__nope"), "up__nope"),
        (call("elsewhere"), "elsewhere"),
        (call(arguments="{"), "not JSON"),
        (call(arguments="[1]"), "must be a JSON object"),
        (call(arguments='"x"'), "must be a JSON object"),
    ],
)
async def test_call_that_can_not_be_made_tells_the_model_why_in_ordinary_ids(open_runner, asked, words):
    async with open_runner(LimitsConfig(), "never") as (runner, _):
        (outcome,) = await run(runner, [asked], OFFERED, TINY, ROOM)

    assert outcome.finished.is_error
    assert outcome.finished.source == "gateway"
    assert words in outcome.finished.text
    assert TINY.decode(outcome.ids) == outcome.finished.text
    assert not TINY.special_ids.intersection(outcome.ids)


async def test_arguments_that_spell_a_control_token_stay_text_in_the_complaint(open_runner):
    async with open_runner(LimitsConfig(), "never") as (runner, _):
        (outcome,) = await run(runner, [call(arguments='"<|im_end|>"')], OFFERED, TINY, ROOM)

    assert "<|im_end|>" in outcome.finished.text
    assert not TINY.special_ids.intersection(outcome.ids)


async def test_long_result_is_cut_to_the_limit_and_the_model_is_told(open_runner):
    text = "abc " * 200
    async with open_runner(LimitsConfig(result_tokens=100), text) as (runner, _):
        (outcome,) = await run(runner, [call()], OFFERED, TINY, ROOM)

    note = "\n[cut: only the first 100 tokens are shown]"
    assert len(outcome.ids) == 100
    shown = TINY.decode(outcome.ids)
    assert shown.endswith(note)
    assert text.startswith(shown.removesuffix(note))
    assert outcome.finished.text == text
    assert outcome.finished.shim_ids == 100


async def test_result_that_was_shortened_before_it_became_ids_is_marked_as_cut_too(open_runner, model_map):
    text = " " * 100_000
    async with open_runner(LimitsConfig(result_tokens=100), text) as (runner, _):
        (outcome,) = await run(runner, [call()], OFFERED, model_map, ROOM)

    assert len(model_map.encode(text)) > 100
    assert len(outcome.ids) <= 100
    assert model_map.decode(outcome.ids).endswith("\n[cut: only the first 100 tokens are shown]")


@pytest.mark.parametrize("most", range(60, 66))
async def test_result_is_never_cut_inside_a_character(open_runner, most):
    async with open_runner(LimitsConfig(result_tokens=most), "é😀" * 40) as (runner, _):
        (outcome,) = await run(runner, [call()], OFFERED, TINY, ROOM)

    assert len(outcome.ids) <= most
    assert "\ufffd" not in TINY.decode(outcome.ids)


async def test_limit_that_holds_no_note_still_holds(open_runner):
    async with open_runner(LimitsConfig(result_tokens=3), "abcdefgh") as (runner, _):
        (outcome,) = await run(runner, [call()], OFFERED, TINY, ROOM)

    assert len(outcome.ids) == 3


async def test_cut_falls_across_blocks_too(open_runner):
    async with open_runner(LimitsConfig(result_tokens=80), "a" * 30, "b" * 30, "c" * 300) as (runner, _):
        (outcome,) = await run(runner, [call()], OFFERED, TINY, ROOM)

    shown = TINY.decode(outcome.ids)
    assert len(outcome.ids) == 80
    assert shown.startswith("a" * 30 + "\n")
    assert "c" * 60 not in shown


async def test_calls_of_a_turn_share_the_room_and_answer_in_their_order(open_runner):
    async with open_runner(LimitsConfig(), "x" * 500) as (runner, _):
        outcomes = await run(runner, [call(index=0), call("up__nope", index=1), call(index=2)], OFFERED, TINY, 240)

    assert [outcome.finished.call_id for outcome in outcomes] == ["call_0", "call_1", "call_2"]
    assert [outcome.finished.is_error for outcome in outcomes] == [False, True, False]
    assert all(len(outcome.ids) <= 80 for outcome in outcomes)


async def test_tool_that_this_request_was_not_offered_is_not_run(open_runner):
    async with open_runner(LimitsConfig(), "never") as (runner, metrics):
        (outcome,) = await run(runner, [call()], (), TINY, ROOM)

    assert outcome.finished.is_error
    assert "up__say" in outcome.finished.text
    assert "never" not in outcome.finished.text
    assert metrics.get_shim_metrics()["tokenize_calls"] == 0


async def test_tools_are_offered_with_their_schema_under_their_public_names(open_runner):
    async with open_runner(LimitsConfig(), "x") as (runner, _):
        (spec,) = runner.offers.specs()

    assert (spec.name, spec.description) == ("up__say", "Say something")
    assert spec.parameters == {"type": "object", "properties": {}}


async def test_what_nobody_will_see_of_a_long_result_is_not_tokenized(open_runner):
    async with open_runner(LimitsConfig(result_tokens=10), "9" * 100_000) as (runner, metrics):
        (outcome,) = await run(runner, [call()], OFFERED, TINY, ROOM)

    assert len(outcome.ids) == 10
    (made,) = [v for k, v in metrics.get_shim_metrics()["by_map"][TINY.map_id].items() if "ids" in k and v > 0]
    assert made <= 10 * 32


async def test_call_of_the_model_asks_for_progress_which_gives_it_more_time():
    echo = str(Path(__file__).parents[2] / "e2e" / "servers" / "echoes_meta.py")
    config = GatewayConfig(upstreams=(UpstreamConfig(name="up", command=sys.executable, args=(echo,)),))
    metrics = Metrics()
    tokens = ResultTokens(
        {TINY.map_id: TINY}, level="verify", metrics=metrics, notices=TokenNotices(get_logger("test.tokens"))
    )
    async with Proxy(config, metrics) as proxy:
        (outcome,) = await run(CallRunner(proxy, tokens, LimitsConfig()), [call("say")], (SAY,), TINY, ROOM)

    assert list(json.loads(outcome.finished.text)) == ["progressToken"]


async def test_leaf_hears_of_the_engines_map_where_it_is_configured_to():
    echo = str(Path(__file__).parents[2] / "e2e" / "servers" / "echoes_meta.py")
    told = UpstreamConfig(name="told", command=sys.executable, args=(echo,), ids="map")
    config = GatewayConfig(upstreams=(told, replace(told, name="untold", ids="any")), prefix="always")
    metrics = Metrics()
    tokens = ResultTokens(
        {TINY.map_id: TINY}, level="verify", metrics=metrics, notices=TokenNotices(get_logger("test.tokens"))
    )
    async with Proxy(config, metrics) as proxy:
        runner = CallRunner(proxy, tokens, LimitsConfig())
        async with runner.running(runner.offers.specs(), map_id=TINY.map_id) as running:
            for name in ("told__say", "untold__say"):
                running.start(call(name))

    heard = [json.loads(outcome.finished.text).get("ai.codec/map") for outcome in await running.finished(TINY, ROOM)]
    assert heard == [TINY.map_id, None]


@pytest.mark.parametrize(("count", "decodes"), [(1, 0), (2000, 0), (2001, 1)])
async def test_result_that_came_as_ids_is_read_at_once_only_where_it_is_too_long_to_be_kept(
    open_runner, count, decodes
):
    (token,) = [each for each in TINY.ordinary_ids if TINY.token_bytes(each) == b"a"]
    async with open_runner(LimitsConfig(result_tokens=4000)) as (runner, metrics):
        unread = UnreadText(TINY, (token,) * count, metrics.shim_detokenized)
        call = CallClosed(0, "c1", "up__say", "{}", ())
        outcome = await runner.finish(Answered(call, CallOutcome({"content": [unread]}, "ok"), 0.0), TINY, 4000)
        assert metrics.get_shim_metrics()["detokenize_calls"] == decodes
        assert outcome.ids == (token,) * count
        assert (outcome.finished.source, outcome.finished.leaf_ids) == ("leaf", count)
        assert outcome.finished.text == "a" * count
        assert metrics.get_shim_metrics()["detokenize_calls"] == 1
