"""Deferred tools that a user's words suggest are defined in front of them, before the model has searched."""

import pytest

from gateway.agent import Deferral
from gateway.agent.calls.tool_finder import OURS
from gateway.agent.generate.generation_options import ToolChoice
from gateway.engine.interface import Message
from gateway.toolcalls.schema.spec import ToolSpec

from .test_deferred_tools import BY_CLIENT, MORE, PAINT, SING, answered, shown, written
from .test_memory import begins, prompts

pytestmark = pytest.mark.anyio

WALL: list[Message] = [{"role": "user", "content": "Please paint the wall of my room in a nice colour."}]


async def test_tools_that_share_words_with_the_question_are_defined_in_front_of_it(open_stage):
    async with open_stage(written("paint", colour="red"), context=9000) as stage:
        answer = await answered(stage, WALL)

    (prompt,) = shown(stage)
    assert prompt.count(PAINT.description) == 1
    assert prompt.index(PAINT.description) < prompt.index(WALL[0]["content"])
    assert SING.description not in prompt
    assert [call["function"]["name"] for call in answer["tool_calls"]] == ["paint"]


async def test_answer_says_which_tools_were_suggested(open_stage):
    async with open_stage(context=9000) as stage:
        conversation = await stage.agent.open(
            WALL, client_tools=[PAINT, SING], deferral=Deferral({"paint", "sing"}, OURS)
        )

    assert [each.message.endswith("the user's words suggest paint") for each in conversation.asked.diagnostics] == [
        True
    ]


async def test_later_requests_keep_what_was_suggested_and_add_what_they_suggest(open_stage):
    aloud: Message = {"role": "user", "content": "Now sing me a tune."}
    async with open_stage("It is so.", "Good.", "Fine.", context=9000) as stage:
        first = await answered(stage, WALL)
        second = await answered(stage, [*WALL, first, MORE])
        await answered(stage, [*WALL, first, MORE, second, aloud])
        one, two, three = prompts(stage)

    assert begins(two, one)
    assert begins(three, two)
    assert [shown(stage)[n].count(SING.description) for n in (1, 2)] == [0, 1]
    assert shown(stage)[-1].count(PAINT.description) == 1


async def test_suggested_tool_is_not_defined_again_when_it_is_suggested_again(open_stage):
    async with open_stage("It is so.", "Good.", context=9000) as stage:
        first = await answered(stage, WALL)
        await answered(stage, [*WALL, first, *WALL])

    assert shown(stage)[-1].count(PAINT.description) == 1


@pytest.mark.parametrize("words", ["What is a wall?", "hello", "", "Colourless green ideas"])
async def test_one_word_in_common_suggests_nothing(open_stage, words):
    async with open_stage("It is so.", context=9000) as stage:
        await answered(stage, [{"role": "user", "content": words}])

    assert PAINT.description not in shown(stage)[0]


async def test_nothing_is_suggested_where_a_tool_of_the_client_searches_or_no_call_may_be_made(open_stage):
    async with open_stage("It is so.", "Fine.", context=9000) as stage:
        await answered(stage, WALL, BY_CLIENT)
        searched_by_client = shown(stage)[-1]
        await answered(stage, WALL, choice=ToolChoice("none"))

    assert PAINT.description not in searched_by_client
    assert PAINT.description not in shown(stage)[-1]


async def test_operator_says_how_many_are_suggested(open_stage):
    walls = [ToolSpec(f"paint_{n}", f"Paint the wall number {n}", {"type": "object"}) for n in range(4)]
    prompted: list[int] = []
    for most in (0, 2):
        async with open_stage("It is so.", context=9000, suggested_tools=most) as stage:
            await answered(stage, WALL, Deferral({each.name for each in walls}, OURS), tools=walls)
            prompted.append(sum(each.description in shown(stage)[0] for each in walls))

    assert prompted == [0, 2]


async def test_definition_that_takes_too_much_is_left_to_a_search(open_stage):
    long = ToolSpec("paint_long", "Paint the wall in a colour. " * 200, {"type": "object"})
    async with open_stage("It is so.", context=20_000) as stage:
        await answered(stage, WALL, Deferral({"paint", "paint_long"}, OURS), tools=[PAINT, long])

    assert PAINT.description in shown(stage)[0]
    assert long.description not in shown(stage)[0]


async def test_conversation_that_fits_without_suggestions_goes_on_with_them(open_stage):
    well = "Well. " * 90
    many = [ToolSpec(f"paint_{n}", f"Paint the wall number {n}. {well}", {"type": "object"}) for n in range(12)]
    deferral = Deferral({each.name for each in many}, OURS)
    async with open_stage(*["It is so."] * 12, context=4000) as stage:
        talk: list[Message] = []
        for n in range(12):
            talk.append({"role": "user", "content": f"Please paint the wall number {n}."})
            talk.append(await answered(stage, talk, deferral, tools=many))

    assert 0 < sum(each.description in shown(stage)[-1] for each in many) < len(many)


async def test_only_what_may_be_called_is_suggested(open_stage):
    async with open_stage("It is so.", context=9000) as stage:
        await answered(stage, WALL, choice=ToolChoice("auto", ("sing",)))

    assert PAINT.description not in shown(stage)[0]


async def test_end_of_a_long_message_suggests(open_stage):
    reminder = "<system-reminder>Be kind.</system-reminder>\n" * 100
    async with open_stage("It is so.", context=30_000) as stage:
        await answered(stage, [{"role": "user", "content": reminder + WALL[0]["content"]}])

    assert PAINT.description in shown(stage)[0]
