"""A tool whose grammar the engine refuses costs that tool its schema, and nobody an answer."""

import pytest

from gateway.agent import AnswerOptions, ToolChoice
from gateway.agent.events import Finished
from gateway.engine.interface import Generated
from gateway.errors import GrammarRefused
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallClosed, Diagnostic
from leaf_sdk.testing import tiny_map

pytestmark = pytest.mark.anyio

QUESTION = [{"role": "user", "content": "What is it?"}]
REQUIRED = ToolChoice("required")
TRIAL = "."
"""What the model writes where a grammar is only tried."""


def with_key(name: str, key: str) -> ToolSpec:
    return ToolSpec(name, "", {"type": "object", "properties": {key: {"type": "string"}}, "required": [key]})


HUGE, PLAIN = with_key("huge", "monster"), with_key("plain", "colour")
WRITTEN = '<tool_call>\n{"name": "huge", "arguments": {"anything": 1}}\n</tool_call>'
OTHER = '<tool_call>\n{"name": "plain", "arguments": {"colour": "red"}}\n</tool_call>'


async def answered(stage, *tools: ToolSpec, choice=REQUIRED):
    conversation = await stage.agent.open(QUESTION, choice=choice, client_tools=tools)
    return await stage.agent.answer(conversation, AnswerOptions(choice), stage.listen)


def refusals(stage) -> float:
    return stage.metrics.registry.get_sample_value("codec_refused_grammars_total")


async def test_request_is_tried_once_more_with_that_tools_arguments_free(open_stage):
    async with open_stage(WRITTEN, refuses="monster") as stage:
        finished = await answered(stage, HUGE, choice=ToolChoice.named("huge"))

    refused, taken = stage.engine.asked
    assert "monster" in refused.grammar
    assert "huge" in taken.grammar
    assert taken.max_tokens == refused.max_tokens
    assert finished.reason == "tool_calls"
    assert [call.name for call in stage.of(CallClosed)] == ["huge"]
    assert [(told.kind, "'huge'" in told.message, told.index) for told in stage.of(Diagnostic)] == [
        ("loose", True, None)
    ]
    assert refusals(stage) == 1


async def test_other_tools_of_the_request_are_held_as_before(open_stage):
    async with open_stage(TRIAL, OTHER, refuses="monster") as stage:
        await answered(stage, HUGE, PLAIN)

    last = stage.engine.asked[-1]
    assert [call.name for call in stage.of(CallClosed)] == ["plain"]
    assert all(word in last.grammar for word in ("huge", "plain", "colour", "up__say"))
    assert "'plain'" not in stage.of(Diagnostic)[0].message
    assert [request.max_tokens for request in stage.engine.asked[1:-1]] == [1] * (len(stage.engine.asked) - 2)


async def test_engine_is_asked_once_about_a_tool_and_each_answer_says_that_it_is_loose(open_stage):
    async with open_stage(WRITTEN, WRITTEN, refuses="monster") as stage:
        for _ in range(2):
            await answered(stage, HUGE, choice=ToolChoice.named("huge"))

    assert ["monster" in request.grammar for request in stage.engine.asked] == [True, False, False]
    assert len(stage.of(Diagnostic)) == len(stage.of(Finished)) == 2
    assert refusals(stage) == 1


async def test_calls_that_the_model_decides_on_are_loosened_too(open_stage):
    trials = [TRIAL] * 3  # any lazy grammar at all, the other tool, and what is to hold in the end
    async with open_stage(*trials, WRITTEN, refuses="monster", hold_calls=True) as stage:
        await answered(stage, HUGE, choice=ToolChoice())

    assert stage.engine.asked[-1].triggers == stage.engine.asked[0].triggers != ()
    assert stage.engine.asked[-1].grammar is not None
    assert [call.name for call in stage.of(CallClosed)] == ["huge"]


async def test_engine_that_takes_no_grammar_that_waits_is_asked_for_none_again_and_answers(open_stage):
    async with open_stage(WRITTEN, WRITTEN, OTHER, refuses="root", hold_calls=True) as stage:
        for _ in range(2):
            await answered(stage, HUGE, choice=ToolChoice())
        stage.engine.refuses = None
        await answered(stage, PLAIN)

    refused, plainest, free, again, required = stage.engine.asked
    assert refused.triggers == plainest.triggers != ()
    assert (plainest.max_tokens, "monster" in plainest.grammar) == (1, False)
    assert [(each.grammar, each.triggers) for each in (free, again)] == [(None, ())] * 2
    assert [call.name for call in stage.of(CallClosed)] == ["huge", "huge", "plain"]
    # It says nothing of the tools: a call that is required is held to their schemas.
    assert "colour" in required.grammar
    assert stage.of(Diagnostic) == []
    assert refusals(stage) == 1


async def test_calls_that_are_refused_loosened_as_well_are_free_in_that_request_alone(open_stage):
    # The name is refused, which no looser schema changes.
    async with open_stage(TRIAL, TRIAL, WRITTEN, OTHER, refuses="huge", hold_calls=True) as stage:
        await answered(stage, HUGE, choice=ToolChoice())
        assert stage.engine.asked[-1].grammar is None
        assert [call.name for call in stage.of(CallClosed)] == ["huge"]
        await answered(stage, PLAIN, choice=ToolChoice())

    assert stage.engine.asked[-1].triggers != ()
    assert "colour" in stage.engine.asked[-1].grammar


async def test_engine_that_takes_no_grammar_at_all_is_an_error_of_the_request(open_stage):
    async with open_stage(refuses="root") as stage:
        with pytest.raises(GrammarRefused, match="failed to parse grammar"):
            await answered(stage, HUGE, choice=ToolChoice.named("huge"))

    assert len(stage.engine.asked) == 2


async def test_ids_that_an_engine_gave_before_it_refused_the_grammar_stay_in_the_prompt(open_stage):
    begun = tiny_map().encode("I")[0]
    async with open_stage("t is.", hold_calls=True) as stage:
        as_written = stage.engine._events

        async def begin_and_refuse(prompt: list[int], most: int):
            # From here on it takes no grammar, so that the answer goes on without one.
            stage.engine._events, stage.engine.refuses = as_written, "root"
            yield Generated((begun,))
            raise GrammarRefused("the engine refused the grammar: failed to parse grammar", 400)

        stage.engine._events = begin_and_refuse
        await answered(stage, HUGE, choice=ToolChoice())

    refused, *_, free = stage.engine.asked
    assert free.grammar is None
    assert free.prompt == [*refused.prompt, begun]
    assert free.max_tokens == refused.max_tokens - 1
