"""An engine that asks is told with each generation what follows: a tool's result within so many seconds, or nothing."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from gateway.agent import AnswerOptions, ToolChoice
from gateway.agent.generate.generation import usual_seconds
from gateway.engine.interface import Retention
from gateway.proxy.caller import Principal
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import Content
from tests.cases import each_of

pytestmark = pytest.mark.anyio

QUESTION = [{"role": "user", "content": "What is it?"}]
SAY = '<tool_call>{"name": "up__say", "arguments": {}}</tool_call>'
PAINT = ToolSpec("paint", "Paint it", {"type": "object"})


def ask_for_retention(stage: Any) -> None:
    ready = stage.route.ready()
    can = replace(ready.facts.can, retention=True)
    stage.route._ready = replace(ready, facts=replace(ready.facts, can=can))


async def answered(stage: Any, messages: Any, choice: ToolChoice | None = None, **asked: Any) -> Any:
    stage.events.clear()
    principal = Principal(asked.pop("principal", "ada"))
    choice = choice or ToolChoice()
    conversation = await stage.agent.open(messages, choice=choice, principal=principal, **asked)
    await stage.agent.answer(conversation, AnswerOptions(choice), stage.listen)
    said = "".join(event.text for event in stage.of(Content))
    return [*messages, {"role": "assistant", "content": said}, *QUESTION]


def told(stage: Any) -> list[Retention]:
    return [request.retention for request in stage.engine.asked]


async def test_engine_that_does_not_ask_is_told_nothing(open_stage):
    async with open_stage(SAY, "Done.") as stage:
        await answered(stage, QUESTION)

    assert told(stage) == [None, None]


async def test_all_generations_of_a_conversation_have_its_name_and_those_of_others_another(open_stage):
    async with open_stage(SAY, "Done.", "Yes.", "Mine.", "Theirs.") as stage:
        ask_for_retention(stage)
        more = await answered(stage, QUESTION)
        await answered(stage, more)
        # The same words again, of the same caller and of another.
        await answered(stage, QUESTION)
        await answered(stage, QUESTION, principal="bob")

    names = [each.conversation for each in told(stage)]
    assert names[0] == names[1] == names[2]
    assert len(set(names[2:])) == 3
    assert all(name.isalnum() and not {"ada", "bob"} & {name} for name in names)


async def test_nothing_follows_where_no_tool_may_be_called(open_stage):
    async with open_stage("Words.") as stage:
        ask_for_retention(stage)
        await answered(stage, QUESTION, ToolChoice("none"))

    (only,) = told(stage)
    assert (only.continues, only.seconds) == (False, None)


async def test_time_is_what_nine_of_ten_calls_of_its_servers_took(open_stage):
    async with open_stage(*["Words."] * 3) as stage:
        ask_for_retention(stage)
        for _ in range(19):
            stage.metrics.tool_called("up", "ok", 0.2)
        for _ in range(100):
            stage.metrics.tool_called("other", "ok", 9.0)
        await answered(stage, QUESTION)
        # One that took long is the twentieth.
        stage.metrics.tool_called("up", "ok", 20.0)
        await answered(stage, QUESTION)
        for _ in range(20):
            stage.metrics.tool_called("up", "ok", 20.0)
        await answered(stage, QUESTION)

    assert [(each.continues, each.seconds) for each in told(stage)] == [(True, None), (True, 0.25), (True, None)]


async def test_nobody_knows_how_long_a_clients_own_tools_take(open_stage):
    async with open_stage("Words.") as stage:
        ask_for_retention(stage)
        for _ in range(20):
            stage.metrics.tool_called("up", "ok", 0.2)
        await answered(stage, QUESTION, client_tools=[PAINT])

    (only,) = told(stage)
    assert (only.continues, only.seconds) == (True, None)


@each_of(
    ("times", "seconds"),
    [
        ([], None),
        ([(0.5, 19)], None),
        ([(0.5, 20)], 0.5),
        ([(0.1, 89), (0.5, 1), (inf, 10)], 0.5),
        ([(0.1, 90), (0.5, 1), (inf, 9)], 0.1),
        ([(0.1, 80), (10.0, 20)], 10.0),
        ([(0.1, 80), (30.0, 20)], None),
        ([(0.1, 80), (inf, 20)], None),
    ],
)
def test_usual_time_is_a_bound_that_few_calls_exceed(times, seconds):
    assert usual_seconds(times) == seconds
