"""tool_choice: all tools stand in the prompt; none but those allowed is run, or told to the client as its call."""

import json
from dataclasses import replace

import pytest

from gateway.agent import NO_TOOL, AnswerOptions, ToolChoice
from gateway.agent.events import ToolFinished
from gateway.agent.generate.generation import looseness
from gateway.agent.generate.generation_options import hold_for
from gateway.engine.interface import Capabilities
from gateway.engine.pool.pool import Stay
from gateway.errors import RequestInvalid
from gateway.proxy.tool_search import SEARCH
from gateway.toolcalls.formats.structured_output import AnswerForm
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallClosed, CallStarted, Content
from leaf_sdk.testing import tiny_map
from tests.gateway.toolcalls.nasty_schemas import nested

pytestmark = pytest.mark.anyio

TINY = tiny_map()
QUESTION = [{"role": "user", "content": "What is it?"}]
PAINT = ToolSpec("paint", "Paint it", {"type": "object"})
DRAW = ToolSpec("draw", "Draw it", {"type": "object"})
EVERY_CHOICE = [
    ToolChoice(),
    ToolChoice("none"),
    ToolChoice("required"),
    ToolChoice.named("paint"),
    ToolChoice("auto", ("paint",)),
    ToolChoice("required", ("paint", "up__say")),
]


def call_of(name: str) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': {}})}</tool_call>"


async def answered(stage, choice: ToolChoice, **options):
    conversation = await stage.agent.open(QUESTION, choice=choice, client_tools=[PAINT, DRAW])
    return await stage.agent.answer(conversation, AnswerOptions(choice, **options), stage.listen)


async def test_prompt_is_the_same_whatever_may_be_called(open_stage):
    async with open_stage() as stage:
        tools = [PAINT, DRAW]
        opened = [await stage.agent.open(QUESTION, choice=each, client_tools=tools) for each in EVERY_CHOICE]

    assert all(name in TINY.decode(opened[0].ids) for name in ("paint", "draw", "up__say"))
    assert all(conversation.ids == opened[0].ids for conversation in opened)


@pytest.mark.parametrize("name", ["draw", "up__say"])
@pytest.mark.parametrize("options", [{}, {"show_calls": True}, {"tell_calls": True}])
async def test_call_that_is_not_allowed_is_answered_with_an_error_and_told_to_nobody_as_a_call(
    open_stage, name, options
):
    async with open_stage(call_of(name), "So be it.") as stage:
        finished = await answered(stage, ToolChoice("auto", ("paint",)), **options)

    (refused,) = stage.of(ToolFinished)
    assert (refused.name, refused.is_error, refused.source) == (name, True, "gateway")
    assert refused.text == f"error: the tool '{name}' may not be called now; the tools that may be called are paint"
    assert refused.text in TINY.decode(list(stage.engine.asked[1].prompt))
    assert stage.of(CallStarted) == stage.of(CallClosed) == []
    assert [event.text for event in stage.of(Content)] == list("So be it.")
    assert finished.reason == "stop"


async def test_call_that_is_allowed_is_the_clients(open_stage):
    async with open_stage(call_of("paint")) as stage:
        finished = await answered(stage, ToolChoice("auto", ("paint",)))

    assert [call.name for call in stage.of(CallClosed)] == ["paint"]
    assert finished.reason == "tool_calls"


async def test_client_gets_its_call_and_not_the_one_beside_it_that_is_not_allowed(open_stage):
    async with open_stage(f"{call_of('draw')}\n{call_of('paint')}") as stage:
        finished = await answered(stage, ToolChoice("auto", ("paint",)))

    assert [(call.name, call.index) for call in stage.of(CallClosed)] == [("paint", 0)]
    assert [(refused.name, refused.is_error) for refused in stage.of(ToolFinished)] == [("draw", True)]
    assert finished.reason == "tool_calls"


async def test_what_is_allowed_is_so_in_every_generation_of_the_answer(open_stage):
    choice = ToolChoice("required", ("up__say",))
    async with open_stage(call_of("up__say"), call_of("paint"), "Done.") as stage:
        await answered(stage, choice)

    held, free, _ = stage.engine.asked
    assert "up__say" in held.grammar
    assert "paint" not in held.grammar
    assert free.grammar is None
    assert [(call.name, call.is_error) for call in stage.of(ToolFinished)] == [("up__say", False), ("paint", True)]


async def test_tool_that_is_named_is_called_first_and_any_other_after_it(open_stage):
    async with open_stage(call_of("up__say"), call_of("paint")) as stage:
        finished = await answered(stage, ToolChoice.named("up__say"))

    assert [call.name for call in stage.of(CallClosed)] == ["paint"]
    assert finished.reason == "tool_calls"


async def test_calls_held_from_their_token_are_held_to_what_is_allowed(open_stage):
    async with open_stage(hold_calls=True) as stage:
        choice = ToolChoice("auto", ("paint",))
        conversation = await stage.agent.open(QUESTION, choice=choice, client_tools=[PAINT, DRAW])
        hold = hold_for(conversation, choice, parallel=None, always=True)

    assert [tool.name for tool in hold.tools] == ["paint"]
    assert hold.triggers


async def test_calls_are_not_held_on_an_engine_that_knows_no_grammar_that_waits(open_stage):
    async with open_stage(hold_calls=True) as stage:
        conversation = await stage.agent.open(QUESTION, client_tools=[PAINT])
        facts = replace(conversation.ready.facts, can=Capabilities(lazy_grammar=False))
        conversation.stay = Stay(replace(conversation.ready, facts=facts))

        assert hold_for(conversation, ToolChoice(), parallel=None, always=True) is None
        assert hold_for(conversation, ToolChoice("required"), parallel=None, always=True) is not None


async def test_choice_says_what_may_be_called_now_and_after_the_first_call():
    only, first = ToolChoice("required", ("paint",)), ToolChoice.named("paint")
    none, free = ToolChoice("none", ("paint",)), ToolChoice()

    assert [each.allows("paint") for each in (only, first, none, free)] == [True, True, False, True]
    assert [each.allows("draw") for each in (only, first, none, free)] == [False, False, False, True]
    assert [each.after_first() for each in (only, first, none, free)] == [
        ToolChoice("auto", ("paint",)),
        free,
        none,
        free,
    ]
    # A required call is of those that were named; where the model decides, others may be added.
    assert [each.also(["draw", "paint"]) for each in (only, free)] == [only, free]
    assert only.after_first().also(["draw", "paint"]) == ToolChoice("auto", ("paint", "draw"))
    assert only.renamed({"paint": "up__paint", "draw": "d"}) == ToolChoice("required", ("up__paint",))
    assert first.renamed({}) == first
    assert free.renamed({"paint": "p"}) == free


@pytest.mark.parametrize("names", [("paint", "nope"), ()])
@pytest.mark.parametrize("mode", ["auto", "required"])
async def test_choice_of_what_is_no_tool_is_refused(open_stage, mode, names):
    async with open_stage() as stage:
        with pytest.raises(RequestInvalid) as refused:
            await stage.agent.open(QUESTION, choice=ToolChoice(mode, names), client_tools=[PAINT])

    assert refused.value.param == "tool_choice"
    assert not names or "'nope', but the tools are paint, up__say" in refused.value.message


async def test_message_lists_the_first_tools_of_many(open_stage):
    tools = [ToolSpec(f"t{n}", "", {}) for n in range(30)]
    async with open_stage(context=20_000) as stage:
        with pytest.raises(RequestInvalid, match=r"t19 and 11 more$"):
            await stage.agent.open(QUESTION, choice=ToolChoice.named("nope"), client_tools=tools)


async def test_search_does_not_lead_around_what_is_allowed(open_stage):
    found = '<tool_call>{"name": "up__say", "arguments": {}}</tool_call>'
    async with open_stage(found, "No.", tool_search=True, context=40_000) as stage:
        choice = ToolChoice("auto", ("paint",))
        conversation = await stage.agent.open(QUESTION, choice=choice, client_tools=[PAINT])
        await stage.agent.answer(conversation, AnswerOptions(choice), stage.listen)

    assert SEARCH in {tool.name for tool in conversation.asked.tools}
    assert [(call.name, call.is_error) for call in stage.of(ToolFinished)] == [("up__say", True)]


async def test_answer_of_a_form_is_held_in_every_generation_and_is_no_call_whatever_it_says(open_stage):
    form = AnswerForm.of_schema({"enum": [call_of("paint"), "no"]}, "form")
    said = json.dumps(call_of("paint"))
    async with open_stage(call_of("up__say"), said) as stage:
        finished = await answered(stage, ToolChoice(), form=form)

    assert all("paint" in request.grammar and not request.triggers for request in stage.engine.asked)
    assert "".join(event.text for event in stage.of(Content)) == said
    assert [call.name for call in stage.of(ToolFinished)] == ["up__say"]
    assert stage.of(CallStarted) == []
    assert finished.reason == "stop"


async def test_form_waits_for_a_call_that_must_be_made(open_stage):
    form = AnswerForm.of_schema({"const": "the answer"}, "form")
    async with open_stage(call_of("up__say"), '"the answer"') as stage:
        await answered(stage, ToolChoice.named("up__say"), form=form)

    call, answer = stage.engine.asked
    assert "the answer" not in call.grammar
    assert "the answer" in answer.grammar
    assert "paint" in answer.grammar


@pytest.mark.parametrize("tools", [(), (PAINT,)])
async def test_form_whose_grammar_the_engine_refuses_is_refused_and_blames_no_tool(open_stage, tools):
    form = AnswerForm.of_schema({"const": "monster"}, "form")
    async with open_stage(*["." for _ in range(9)], refuses="monster") as stage:
        conversation = await stage.agent.open(QUESTION, client_tools=tools, gateway_tools=NO_TOOL)
        with pytest.raises(RequestInvalid, match="refuses the grammar for this form"):
            await stage.agent.answer(conversation, AnswerOptions(form=form), stage.listen)

    assert PAINT not in stage.route.ready().loose


async def test_tool_whose_grammar_an_engine_could_not_follow_may_be_called_with_any_object(open_stage):
    ways = [{"items": {"type": "null"}}, {"prefixItems": [{"type": "null"}]}, {"maxItems": 3}]
    hard = replace(
        PAINT,
        parameters={"type": "object", "properties": {"v": {"$ref": "#/$defs/s4"}}, "$defs": nested(5, ways)["$defs"]},
    )
    async with open_stage() as stage:
        conversation = await stage.agent.open(QUESTION, client_tools=[hard, DRAW])
        hold = hold_for(conversation, ToolChoice("required"), parallel=None, always=False)
        told = looseness(hold)

    assert {tool.name: tool.parameters for tool in hold.tools if tool.name in ("paint", "draw")} == {
        "paint": {"type": "object"},
        "draw": DRAW.parameters,
    }
    assert hold.loose == frozenset({"paint"})
    assert (told.kind, "'paint'" in told.message) == ("loose", True)


async def test_calls_besides_a_form_are_several_unless_the_client_wants_one_at_a_time(open_stage):
    form = AnswerForm.of_schema({"const": "the answer"}, "form")
    allow_several = {}
    for parallel in (None, True, False):
        async with open_stage('"the answer"') as stage:
            await answered(stage, ToolChoice(), form=form, parallel=parallel)
        (asked,) = stage.engine.asked
        allow_several[parallel] = "item-1 ::=" in asked.grammar

    assert allow_several == {None: True, True: True, False: False}
