"""Lists of tools that change from request to request: what the engine holds stays, and what is new is added."""

import json
import weakref
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from gateway.agent import NO_TOOL, AnswerOptions
from gateway.context.memory.defined_tools import ToolDigests
from gateway.engine.interface import Message
from gateway.proxy.caller import Principal
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallClosed, Content
from leaf_sdk.testing import tiny_map

from .test_memory import QUESTION, answered, begins, prompts

pytestmark = pytest.mark.anyio

TINY = tiny_map()
PAINT = ToolSpec("paint", "Paint it", {"type": "object", "properties": {"colour": {"type": "string"}}})
SING = ToolSpec("sing", "Sing it", {"type": "object", "properties": {"tune": {"type": "string"}}})
DANCE = ToolSpec("dance", "Dance it", {"type": "object"})
MORE: Message = {"role": "user", "content": "And then?"}


def call_of(tool: str) -> str:
    return f'<tool_call>{{"name": "{tool}", "arguments": {{}}}}</tool_call>'


async def asked(stage: Any, lists: Sequence[Sequence[ToolSpec]], **options: Any) -> list[str]:
    """The prompts of a conversation, with these tools in each of its requests."""
    messages = [*QUESTION]
    for tools in lists:
        messages += [await answered(stage, messages, tools=tools, **options), MORE]
    return [TINY.decode(prompt) for prompt in prompts(stage)]


@pytest.mark.parametrize(
    "lists",
    [
        ([PAINT], [PAINT, SING]),
        ([PAINT, SING], [DANCE, SING, PAINT]),
        ([PAINT], [SING]),
        ([PAINT], []),
        ([], [PAINT]),
        ([PAINT, SING], [SING, PAINT]),
        ([PAINT], [ToolSpec("paint", "Paint it well", PAINT.parameters)]),
        ([PAINT], [PAINT, SING], [DANCE, SING]),
    ],
    ids=lambda lists: " then ".join(",".join(tool.name for tool in tools) or "none" for tools in lists),
)
async def test_prompt_begins_with_all_that_was_held_whatever_becomes_of_the_tools(open_stage, lists):
    async with open_stage(*["It is so."] * len(lists)) as stage:
        await asked(stage, lists)
        requests = prompts(stage)

    for before, after in pairwise(requests):
        assert begins(after, before)


async def test_each_definition_stands_in_the_prompt_once_and_in_the_order_in_which_it_came(open_stage):
    async with open_stage(*["It is so."] * 4) as stage:
        *_, last = await asked(stage, [[PAINT], [SING, PAINT], [DANCE, SING], [PAINT, DANCE, SING]])

    places = [last.index(f'"name": "{tool.name}"') for tool in (PAINT, SING, DANCE)]
    assert places == sorted(places)
    assert all(last.count(f'"name": "{tool.name}"') == 1 for tool in (PAINT, SING, DANCE))


async def test_new_tool_is_defined_before_the_question_that_it_came_with(open_stage):
    async with open_stage("It is so.", "It is so.") as stage:
        *_, last = await asked(stage, [[PAINT], [PAINT, SING]])

    assert last.index("It is so.") < last.index(SING.description) < last.index("And then?")


async def test_changed_tool_is_checked_by_its_new_definition(open_stage):
    strict = ToolSpec("paint", "Paint it", {"type": "object", "required": ["colour"]})
    async with open_stage("It is so.", "It is so.") as stage:
        await asked(stage, [[PAINT], [strict]])
        conversation = await stage.agent.open(QUESTION, client_tools=[strict])

    assert strict in conversation.tools
    assert PAINT not in conversation.tools


async def test_call_of_a_tool_that_the_client_took_away_is_answered_and_never_the_clients(open_stage):
    async with open_stage("It is so.", call_of("paint"), "Sorry.") as stage:
        first = await answered(stage, QUESTION, tools=[PAINT, SING])
        second = await answered(stage, [*QUESTION, first, MORE], tools=[SING])

    assert "tool_calls" not in second
    assert "there is no tool 'paint'" in TINY.decode(prompts(stage)[-1])


async def test_model_may_call_nothing_where_the_client_sends_no_tools_any_more(open_stage):
    async with open_stage("It is so.", call_of("paint")) as stage:
        first = await answered(stage, QUESTION, tools=[PAINT])
        conversation = await stage.agent.open([*QUESTION, first, MORE], principal=Principal("a"), gateway_tools=NO_TOOL)
        stage.events.clear()
        await stage.agent.answer(conversation, AnswerOptions(), stage.listen)

    assert stage.of(CallClosed) == []
    assert call_of("paint") in "".join(event.text for event in stage.of(Content))
    assert begins(prompts(stage)[1], prompts(stage)[0])


async def test_two_conversations_that_differ_in_tools_alone_keep_each_its_own(open_stage):
    async with open_stage(*["It is so."] * 4) as stage:
        one = await answered(stage, QUESTION, tools=[PAINT])
        await answered(stage, QUESTION, tools=[SING])
        await answered(stage, [*QUESTION, one, MORE], tools=[PAINT])
        await answered(stage, [*QUESTION, one, MORE], tools=[SING])
        painting, singing, *later = prompts(stage)

    assert begins(later[0], painting)
    assert begins(later[1], singing)
    assert SING.description not in TINY.decode(later[0])


async def test_definition_behind_a_message_stays_there_when_the_conversation_is_rendered_anew(open_stage):
    async with open_stage(*["It is so."] * 3) as stage:
        first = await answered(stage, QUESTION, tools=[PAINT])
        second = await answered(stage, [*QUESTION, first, MORE], tools=[PAINT, SING])
        before = TINY.decode(prompts(stage)[1])
        # Two new messages are no simple turn: the template is asked for the whole conversation.
        late = {"role": "user", "content": "Well?"}
        await answered(stage, [*QUESTION, first, MORE, second, late, MORE], tools=[PAINT, SING])

    assert TINY.decode(prompts(stage)[2]).startswith(before)


async def test_definition_that_needs_a_guard_gets_it_in_a_message_too(open_stage):
    marker = next(iter(TINY.special_texts))
    evil = ToolSpec("sing", f"Sing {marker}", {"type": "object"})
    async with open_stage("It is so.", "It is so.") as stage:
        first = await answered(stage, QUESTION, tools=[PAINT])
        plain = await stage.agent.open([*QUESTION, first, MORE], client_tools=[PAINT])
        told = await stage.agent.open([*QUESTION, first, MORE], client_tools=[PAINT, evil])

    def specials(ids: Sequence[int]) -> int:
        return sum(token_id in TINY.special_ids for token_id in ids)

    assert json.dumps(marker)[1:-1] in TINY.decode(told.ids)
    assert specials(told.ids) == specials(plain.ids)


async def test_definitions_that_change_with_every_request_do_not_fill_the_context(open_stage):
    async with open_stage(*["It is so."] * 30, context=3000) as stage:
        messages = [*QUESTION]
        for n in range(30):
            dated = ToolSpec("paint", f"Paint it. Today is day {n}. " + "Well. " * 20, PAINT.parameters)
            messages = [*messages[-4:], await answered(stage, messages[-5:], tools=[dated]), MORE]

    assert max(map(len, prompts(stage))) < 2500


async def test_other_order_of_a_schemas_keys_is_no_other_definition(open_stage):
    turned = ToolSpec("paint", PAINT.description, dict(reversed([*PAINT.parameters.items()])))
    async with open_stage("It is so.", "It is so.") as stage:
        *_, last = await asked(stage, [[PAINT], [turned]])

    assert last.count(PAINT.description) == 1


async def test_two_tools_of_one_name_are_not_defined_anew_in_every_request(open_stage):
    twins = [PAINT, ToolSpec("paint", "Paint it twice", PAINT.parameters)]
    async with open_stage(*["It is so."] * 3) as stage:
        *_, last = await asked(stage, [twins, twins, twins])

    assert last.count('"name": "paint"') <= 2


async def test_conversation_that_had_no_tools_is_taught_to_call_when_it_gets_some(open_stage):
    async with open_stage("It is so.") as stage:
        whose = {"principal": Principal("a"), "gateway_tools": NO_TOOL}
        conversation = await stage.agent.open(QUESTION, **whose)
        await stage.agent.answer(conversation, AnswerOptions(), stage.listen)
        history = [*QUESTION, {"role": "assistant", "content": "It is so."}, MORE]
        fresh = await stage.agent.open(history, client_tools=[PAINT], principal=Principal("b"), gateway_tools=NO_TOOL)
        later = await stage.agent.open(history, client_tools=[PAINT], **whose)

    assert later.ids == fresh.ids
    assert later.continuation.miss.reason == "tools_changed"


async def test_branch_with_the_same_tools_is_the_one_that_is_continued(open_stage):
    async with open_stage(*["It is so."] * 3) as stage:
        await answered(stage, QUESTION, tools=[PAINT])
        answer = await answered(stage, QUESTION, tools=[PAINT, SING])
        await answered(stage, [*QUESTION, answer, MORE], tools=[PAINT])
        alone, _, later = prompts(stage)

    assert begins(later, alone)


def test_tools_that_share_a_schema_have_definitions_of_their_own() -> None:
    digests, twin = ToolDigests(), ToolSpec("paint", "Paint it twice", PAINT.parameters)

    assert digests.of(PAINT) != digests.of(twin)


class Schema(dict[str, Any]):
    """One that can be referred to weakly."""


def test_digests_of_old_definitions_are_not_kept_for_ever() -> None:
    digests, kept = ToolDigests(), list[weakref.ref[Schema]]()
    for number in range(5):
        schema = Schema(description="x" * (1 << 20), number=number)
        digests.of(ToolSpec("paint", "Paint it", schema))
        kept.append(weakref.ref(schema))
        del schema

    assert [each() is not None for each in kept] == [False, False, True, True, True]
