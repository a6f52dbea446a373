"""The limits of an answer, to the token: what is still called, spliced and generated where the room runs out."""

import json
from typing import Any

import pytest

from gateway.agent import NO_TOOL, AnswerOptions, ToolScope
from gateway.agent.events import Finished, GenerationFinished, ToolFinished
from gateway.agent.turn import ANSWER_ROOM, NO_MORE
from gateway.context.memory import RequestFigures
from gateway.engine.interface import Generated, GenerationEnd, Timings
from gateway.errors import ContextExceeded
from gateway.proxy.caller import Principal
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallClosed, CallStarted, Content
from leaf_sdk.testing import tiny_map

pytestmark = pytest.mark.anyio

TINY = tiny_map()
QUESTION = [{"role": "user", "content": "What is it?"}]
SAY = '<tool_call>\n{"name": "up__say", "arguments": {}}\n</tool_call>'
AGAIN = SAY.replace("{}", '{"a": 1}')
PAINT = ToolSpec("paint", "Paint it", {"type": "object"})
OWN = '<tool_call>\n{"name": "paint", "arguments": {}}\n</tool_call>'
WROTE = len(TINY.encode(SAY, specials=True))
AROUND = len(TINY.encode("<|im_end|>\n<|im_start|>tool\n<|im_end|>\n<|im_start|>assistant\n", specials=True))


@pytest.fixture
async def taken(open_stage: Any) -> int:
    """Tokens of the prompt and of a call behind it."""
    async with open_stage() as stage:
        return len((await stage.agent.open(QUESTION)).ids) + WROTE


async def answered(stage: Any, *, tools: Any = (), **options: Any) -> Finished:
    conversation = await stage.agent.open(QUESTION, client_tools=tools)
    return await stage.agent.answer(conversation, AnswerOptions(**options), stage.listen)


@pytest.mark.parametrize(("room", "made"), [(64, 0), (65, 1)])
async def test_call_is_made_if_more_than_64_tokens_are_left_for_its_result_and_an_answer(open_stage, taken, room, made):
    async with open_stage(SAY, context=taken + room) as stage:
        finished = await answered(stage)

    assert len(stage.of(ToolFinished)) == made
    assert finished == Finished("length", taken - WROTE, 0, WROTE)


@pytest.mark.parametrize(("room", "spliced"), [(0, 0), (1, 1), (5, 5), (9, 9), (50, 9)])
async def test_result_is_spliced_as_far_as_the_answer_leaves_it_room(open_stage, taken, room, spliced):
    async with open_stage(SAY, "z" * 200, context=taken + AROUND + ANSWER_ROOM + room) as stage:
        finished = await answered(stage)

    (told,) = stage.of(ToolFinished)
    assert told.shim_ids == spliced
    assert told.text == "It is 42."
    if not spliced:
        assert (len(stage.engine.asked), finished.completion_ids) == (1, WROTE)
        return
    second = stage.of(GenerationFinished)[1]
    assert (second.reinjected_shim, second.scaffold) == (spliced, AROUND)
    assert stage.engine.asked[1].max_tokens == ANSWER_ROOM + room - spliced
    assert finished.completion_ids == WROTE + ANSWER_ROOM + room - spliced


@pytest.mark.parametrize(("more", "generations"), [(0, 1), (1, 2)])
async def test_answer_whose_tokens_are_all_used_ends_behind_its_results(open_stage, more, generations):
    async def events(prompt: list[int], most: int):
        ids = TINY.encode(SAY, specials=True)[:most]
        for token in ids:
            yield Generated((token,))
        yield GenerationEnd("stop", None, Timings(len(prompt), 0, len(ids), 0.0, 0.0))

    async with open_stage(SAY) as stage:
        stage.engine._events = events
        finished = await answered(stage, max_tokens=WROTE + more)

    assert len(stage.of(ToolFinished)) == 1
    assert len(stage.of(GenerationFinished)) == generations
    assert finished.completion_ids == WROTE + more


@pytest.mark.parametrize(("room", "shown"), [(-64, 0), (0, 0), (3, 3), (50, 9)])
async def test_result_of_a_generation_that_was_cut_off_leaves_room_for_an_answer_too(open_stage, taken, room, shown):
    """The next request continues with it."""
    async with open_stage(SAY + "z" * 200, context=taken + 70 + ANSWER_ROOM + room) as stage:
        finished = await answered(stage, max_tokens=WROTE + 70)

    (told,) = stage.of(ToolFinished)
    assert (told.shim_ids, told.text) == (shown, "It is 42.")
    assert (finished.reason, finished.completion_ids) == ("length", WROTE + 70)


@pytest.mark.parametrize(("most", "made"), [(0, 0), (1, 1), (2, 2), (3, 3), (None, 3)])
async def test_calls_beyond_those_that_may_be_made_are_answered_without_being_made(open_stage, most, made):
    async with open_stage(f"{SAY}\n{SAY}", AGAIN, "Done.") as stage:
        finished = await answered(stage, max_calls=most)

    told = [event.text for event in stage.of(ToolFinished)]
    assert told == ["It is 42."] * made + [f"error: {NO_MORE}"] * (3 - made)
    assert finished.reason == "stop"


async def test_call_that_is_refused_does_not_count_as_made(open_stage):
    broken = '<tool_call>\n{"name": "up__say", "arguments": {"a": [oops}}\n</tool_call>'
    async with open_stage(broken, SAY, "Done.") as stage:
        await answered(stage, max_calls=1)

    assert [event.is_error for event in stage.of(ToolFinished)] == [True, False]


@pytest.mark.parametrize(("turns", "asked", "made"), [(1, 1, 0), (2, 2, 1), (3, 3, 2)])
async def test_calls_of_the_last_turn_are_not_made(open_stage, turns, asked, made):
    async with open_stage(SAY, AGAIN, SAY, turns=turns) as stage:
        finished = await answered(stage)

    assert (len(stage.engine.asked), len(stage.of(ToolFinished)), finished.reason) == (asked, made, "length")


@pytest.mark.parametrize("turns", [1, 2])
async def test_call_beside_one_of_the_clients_is_made_in_the_last_turn_too(open_stage, turns):
    async with open_stage(f"{SAY}\n{OWN}", turns=turns) as stage:
        finished = await answered(stage, tools=[PAINT])

    assert [event.text for event in stage.of(ToolFinished)] == ["It is 42."]
    assert finished.reason == "tool_calls"


@pytest.mark.parametrize(
    ("options", "started", "told"),
    [
        ({}, [], 1),
        ({"show_calls": True}, ["up__say"], 1),
        ({"show_calls": False, "tell_calls": True}, ["up__say"], 1),
        # The client approves it: it is told of it like of a call of its own.
        ({"asks": lambda call: True}, [], 0),
    ],
)
async def test_calls_of_the_gateway_are_told_to_whoever_wants_to_hear_of_them(open_stage, options, started, told):
    async with open_stage(SAY, "Done.") as stage:
        finished = await answered(stage, **options)

    assert [event.name for event in stage.of(CallStarted)] == started
    assert [event.name for event in stage.of(CallClosed)] == started
    assert len(stage.of(ToolFinished)) == told
    assert finished.reason == ("stop" if told else "tool_calls")


async def test_sums_of_an_answer_are_those_of_its_generations(open_stage):
    async with open_stage(SAY, "<think>\nHm.\n</think>\n\nDone. STOP") as stage:
        finished = await answered(stage, stops=("STOP",))

    first, second = stage.of(GenerationFinished)
    assert finished == Finished(
        "stop",
        first.prompt + second.prompt,
        0,
        first.generated + second.generated,
        second.reasoning,
        "STOP",
    )
    assert second.reasoning > 0


async def test_figures_are_told_before_the_end_once_there_was_something_to_reuse(open_stage):
    async with open_stage("One.", "Two.") as stage:
        await answered(stage)
        assert stage.of(RequestFigures) == []
        history = [*QUESTION, {"role": "assistant", "content": "One."}, *QUESTION]
        conversation = await stage.agent.open(history)
        finished = await stage.agent.answer(conversation, AnswerOptions(), stage.listen)

    assert [type(event) for event in stage.events[-2:]] == [RequestFigures, Finished]
    assert stage.events[-1] is finished


@pytest.mark.parametrize(("room", "shown"), [(40, 0), (ANSWER_ROOM, 0), (ANSWER_ROOM + 1, 1), (ANSWER_ROOM + 50, 9)])
async def test_calls_that_a_client_approved_are_made_and_their_results_leave_room_for_an_answer(
    open_stage, taken, room, shown
):
    calls = [CallClosed(0, "call_1", "up__say", "{}", ()), CallClosed(1, "call_2", "nope", "{}", ())]
    async with open_stage(context=taken - WROTE + room) as stage:
        conversation = await stage.agent.open(QUESTION)
        (one,) = await stage.agent.call(calls[:1], conversation, ToolScope())
        (no,) = await stage.agent.call(calls[:1], conversation, NO_TOOL)

    text, told = one
    assert len(TINY.encode(text)) == told.shim_ids == shown
    assert (told.call_id, told.text, told.is_error) == ("call_1", "It is 42.", False)
    assert no[1].is_error


@pytest.mark.parametrize(("beyond", "fits"), [(0, False), (1, True)])
async def test_conversation_needs_room_for_one_more_token(open_stage, taken, beyond, fits):
    async with open_stage(context=taken - WROTE + beyond) as stage:
        if fits:
            assert (await stage.agent.open(QUESTION)).room == 1
            return
        with pytest.raises(ContextExceeded) as refused:
            await stage.agent.open(QUESTION)

    assert (refused.value.tokens, refused.value.context) == (taken - WROTE, taken - WROTE)
    assert refused.value.param == "messages"


@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize("beyond", [0, 1])
async def test_refusal_names_definitions_that_take_over_a_quarter_of_the_context(open_stage, ours, beyond):
    tool = ToolSpec("paint", "é" * 20, {"type": "object"})
    async with open_stage(context=100_000) as stage:
        offered = (await stage.agent.open(QUESTION)).asked.tools if ours else (tool,)
    written = json.dumps(
        [
            {
                "type": "function",
                "function": {"name": each.name, "description": each.description, "parameters": each.parameters},
            }
            for each in offered
        ],
        ensure_ascii=False,
    )
    size = len(TINY.encode(written))
    context = 4 * size - beyond
    question = [{"role": "user", "content": "z" * context}]
    scope = {} if ours else {"gateway_tools": NO_TOOL, "client_tools": offered}
    async with open_stage(context=context, defer_client_tools="never") as stage:
        with pytest.raises(ContextExceeded) as refused:
            await stage.agent.open(question, **scope)

    whose = "gateway" if ours else "client"
    said = f"The definitions of the {whose}'s tools take about {size} tokens: "
    assert (said in refused.value.message) is bool(beyond)
    assert refused.value.message.count("The definitions") == beyond


async def test_principal_without_the_server_is_offered_none_of_its_tools(open_stage):
    async with open_stage("Hello.") as stage:
        conversation = await stage.agent.open(QUESTION, principal=Principal("eve", frozenset({"elsewhere"})))
        await stage.agent.answer(conversation, AnswerOptions(), stage.listen)

    assert conversation.asked.tools == ()
    assert "".join(event.text for event in stage.of(Content)) == "Hello."
