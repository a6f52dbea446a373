"""Compaction: when a conversation is summed up, up to which message, and what of the model's words is the summary."""

from collections.abc import Sequence
from typing import Any

import pytest

from gateway.agent import NO_TOOL, AnswerOptions, Deferral, ToolChoice
from gateway.agent.calls.request_tools import EVERY_TOOL
from gateway.agent.calls.tool_finder import OURS
from gateway.agent.compaction import CompactableAnswer, Compaction
from gateway.agent.events import Compacted, Finished, ToolFinished
from gateway.agent.generate.generation_options import FREE
from gateway.agent.turn import NO_MORE
from gateway.context.history.shortening import INSTRUCTION, after_summary, last_words, summary_text, words_behind
from gateway.context.memory import FOUND_TOOLS
from gateway.engine.interface import Message, Sampling
from gateway.errors import ContextExceeded, EngineRefused
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import Content
from leaf_sdk.testing import tiny_map

pytestmark = pytest.mark.anyio

TINY = tiny_map()
SHORT = "Sum up."
ONE: Message = {"role": "user", "content": "One?"}
FIRST: Message = {"role": "assistant", "content": "1st."}
TWO: Message = {"role": "user", "content": "Two?"}
SYSTEM: Message = {"role": "system", "content": "z" * 900}
CALL = {"id": "c1", "type": "function", "function": {"name": "paint", "arguments": "{}"}}
OTHER_CALL = {**CALL, "id": "c2"}
RESULT: Message = {"role": "tool", "tool_call_id": "c1", "content": "Red."}
PAINT = ToolSpec("paint", "Paint a wall", {"type": "object"})


def called(*calls: dict[str, Any]) -> Message:
    return {"role": "assistant", "content": "", "tool_calls": list(calls)}


def summary(text: str) -> Message:
    return after_summary((), text)[0]


class Opened:
    """An answer, and the messages and choices with which its conversations were begun."""

    def __init__(self, stage: Any, messages: Sequence[Message], asked: Compaction | None, **open_with: Any) -> None:
        self.begun: list[tuple[Sequence[Message], ToolChoice]] = []
        choice = open_with.pop("choice", FREE)
        open_with.setdefault("gateway_tools", NO_TOOL)

        async def begin(messages: Sequence[Message], choice: ToolChoice) -> Any:
            self.begun.append((messages, choice))
            return await stage.agent.open(messages, choice=choice, **open_with)

        self.answer = CompactableAnswer(stage.agent, begin, messages, choice, asked)

    @property
    def instructed(self) -> list[int]:
        """For each conversation that was to be summed up, how many messages of it."""
        return [
            len(messages) - (messages[-1]["content"] == SHORT)
            for messages, _ in self.begun
            if str(messages[-1]["content"]).endswith(SHORT)
        ]


def at(threshold: int, **more: Any) -> Compaction:
    return Compaction(threshold, SHORT, **more)


async def opened(stage: Any, messages: Sequence[Message], asked: Compaction | None, **open_with: Any) -> Opened:
    made = Opened(stage, messages, asked, **open_with)
    await made.answer.open()
    return made


async def answered(stage: Any, messages: Sequence[Message], asked: Compaction | None, **open_with: Any) -> Opened:
    options = AnswerOptions(sampling=open_with.pop("sampling", Sampling()))
    made = await opened(stage, messages, asked, **open_with)
    assert await made.answer.answer(options, stage.listen) == stage.events[-1]
    return made


async def size_of(open_stage: Any, messages: Sequence[Message], **open_with: Any) -> int:
    async with open_stage(context=20_000) as stage:
        return len((await stage.agent.open(messages, **{"gateway_tools": NO_TOOL, **open_with})).ids)


@pytest.mark.parametrize(
    ("messages", "until"),
    [
        ([ONE, FIRST, TWO], 2),
        ([ONE, FIRST, {"role": "system", "content": "Be kind."}, TWO], 2),
        ([ONE, FIRST, TWO, TWO], 2),
        # What is no question is summed up with all before it.
        ([ONE, FIRST], 2),
        ([ONE, called(CALL), RESULT], 3),
        ([ONE, called(CALL), RESULT, FIRST, TWO], 4),
        # So is one that does not follow an answer.
        ([ONE, called(CALL), RESULT, TWO], 4),
        ([ONE, FIRST, summary("All."), TWO], 4),
        ([ONE, FIRST, summary("All.")], 3),
        # There is nothing to sum up.
        ([ONE], None),
        ([{"role": "system", "content": "Be kind."}, ONE, TWO], None),
    ],
)
async def test_what_the_user_asks_now_is_not_summed_up(open_stage, messages, until):
    async with open_stage() as stage:
        made = await opened(stage, messages, at(1))

    # A last message of the user's has the instruction in it.
    wanted = [] if until is None else [until]
    assert made.instructed == wanted
    assert len(made.begun) == 1 + len(wanted)
    assert made.begun[0] == (messages, FREE)


@pytest.mark.parametrize(
    ("messages", "due"),
    [
        ([ONE, called(CALL), RESULT], True),
        ([ONE, called(CALL)], False),
        ([ONE, called(CALL, OTHER_CALL), RESULT], False),
        ([ONE, called(OTHER_CALL, CALL), RESULT], False),
        ([ONE, called(CALL, OTHER_CALL), RESULT, {**RESULT, "tool_call_id": "c2"}], True),
        # A result alone answers: not words with the same id.
        ([ONE, called(CALL), {**TWO, "tool_call_id": "c1"}], False),
    ],
)
async def test_call_that_awaits_its_result_keeps_a_conversation_from_being_summed_up(open_stage, messages, due):
    async with open_stage() as stage:
        made = await opened(stage, messages, at(1))

    assert bool(made.instructed) is due


async def test_choice_of_a_client_is_for_the_answer_and_not_for_the_summary(open_stage):
    none = ToolChoice("none")
    async with open_stage("A list.", "Yes.") as stage:
        made = await answered(stage, [ONE, FIRST, TWO], at(1), choice=none)

    assert [choice for _, choice in made.begun] == [none, FREE, none]


async def test_client_that_asks_for_no_compaction_gets_none(open_stage):
    async with open_stage("Yes.") as stage:
        made = await answered(stage, [ONE, FIRST, TWO], None)

    assert made.begun == [([ONE, FIRST, TWO], FREE)]
    assert stage.of(Compacted) == []


@pytest.mark.parametrize(("beyond", "due"), [(0, True), (1, False)])
async def test_prompt_is_summed_up_from_the_threshold_on(open_stage, beyond, due):
    taken = await size_of(open_stage, [ONE, FIRST, TWO])
    async with open_stage() as stage:
        made = await opened(stage, [ONE, FIRST, TWO], at(taken + beyond))

    assert bool(made.instructed) is due


@pytest.mark.parametrize(("beyond", "due"), [(0, True), (1, False)])
async def test_prompt_is_summed_up_when_three_quarters_of_the_context_are_taken(open_stage, beyond, due):
    least = await size_of(open_stage, [ONE, FIRST, {**TWO, "content": ""}])
    taken = 120
    messages = [ONE, FIRST, {**TWO, "content": "z" * (taken - least)}]
    async with open_stage(context=taken * 4 // 3 + 2 * beyond) as stage:
        made = await opened(stage, messages, at(10**9))

    assert bool(made.instructed) is due


@pytest.mark.parametrize("tools", [(), (ToolSpec("paint", "é" * 400, {"type": "object"}),)])
@pytest.mark.parametrize(("more", "due"), [(7, False), (-1, True)])
async def test_conversation_that_is_no_longer_than_a_summary_is_not_summed_up(open_stage, more, due, tools):
    """Its preamble would stay: the words of the system, and the tools."""
    alone = await size_of(open_stage, [{**SYSTEM, "content": ""}, ONE, FIRST, TWO])
    async with open_stage(context=20_000) as stage:
        plain = await stage.agent.open([SYSTEM, ONE, FIRST, TWO], client_tools=tools, gateway_tools=NO_TOOL)
        written = '{"type": "function", "function": {"name": "paint", "description": "%s", "parameters": %s}}'
        taken = [len(TINY.encode(written % (tool.description, '{"type": "object"}'))) for tool in tools]
        beside = len(plain.ids) - 900 - sum(taken)
        made = await opened(stage, [SYSTEM, ONE, FIRST, TWO], at(8 * beside + more), client_tools=tools)

    assert beside >= alone
    assert bool(made.instructed) is due


@pytest.mark.parametrize(("beyond", "due"), [(0, False), (1, True)])
async def test_summary_is_measured_by_the_context_where_the_threshold_is_beyond_it(open_stage, beyond, due):
    alone = await size_of(open_stage, [{**SYSTEM, "content": ""}, ONE, FIRST, TWO])
    context = 8 * alone - beyond
    messages = [{**SYSTEM, "content": "z" * (6 * alone)}, ONE, FIRST, TWO]
    async with open_stage(context=context) as stage:
        made = await opened(stage, messages, at(10**9))

    assert bool(made.instructed) is due


async def test_conversation_that_leaves_no_room_for_the_instruction_is_answered_as_it_is(open_stage):
    messages = [ONE, FIRST, TWO]
    taken = await size_of(open_stage, messages)
    async with open_stage("Y", context=taken + 2) as stage:
        made = await answered(stage, messages, Compaction(1, SHORT * 9))

    assert len(made.begun) == 2
    assert stage.of(Compacted) == []
    assert "".join(event.text for event in stage.of(Content)) == "Y"


LONG = "z" * 600


@pytest.mark.parametrize(
    ("messages", "until"),
    [
        ([ONE, FIRST, {**TWO, "content": LONG}], 2),
        # Results go with their calls.
        ([ONE, FIRST, TWO, called(CALL), {**RESULT, "content": LONG}], 3),
    ],
)
async def test_of_what_does_not_fit_the_part_before_what_is_new_is_summed_up(open_stage, messages, until):
    async with open_stage(context=500) as stage:
        made = await opened(stage, messages, at(1))

    assert made.instructed == [until]
    assert len(made.begun) == 2


@pytest.mark.parametrize("messages", [[{**ONE, "content": LONG}], [ONE, called(CALL), {**RESULT, "content": LONG}]])
async def test_what_does_not_fit_and_follows_no_answer_is_refused(open_stage, messages):
    async with open_stage(context=500) as stage:
        with pytest.raises(ContextExceeded):
            await opened(stage, messages, at(1))


@pytest.mark.parametrize(("asked", "told"), [("", INSTRUCTION), (" \n", INSTRUCTION), (f" {SHORT}\n", SHORT)])
async def test_model_is_told_the_clients_words_or_else_the_gateways(open_stage, asked, told):
    async with open_stage() as stage:
        made = await opened(stage, [ONE, FIRST], Compaction(instructions=asked))

    assert made.begun == [([ONE, FIRST, {"role": "user", "content": told}], FREE)]


async def test_summary_reports_what_it_took_and_what_it_stands_for(open_stage):
    messages = [{"role": "system", "content": "Be kind."}, ONE, FIRST, {**TWO, "content": "y" * 501}]
    sampling = Sampling(temperature=0.5, seed=7)
    async with open_stage(" A list. \n") as stage:
        made = await answered(stage, messages, Compaction(instructions=SHORT, ends=True), sampling=sampling)

    (asked,) = stage.engine.asked
    # A summary has an eighth of the context, and so have the words that are quoted behind it.
    assert (asked.max_tokens, asked.sampling) == (500, sampling)
    behind = last_words(messages, 500)
    assert behind.endswith("yyy [...]")
    assert stage.events == [
        Compacted(
            text=summary_text("A list.", behind),
            found=(),
            system=("Be kind.",),
            prompt_ids=len(asked.prompt),
            cached_ids=0,
            completion_ids=len(TINY.encode(" A list. \n")),
            ends=True,
        ),
        Finished("stop", 0, 0, 0),
    ]
    assert len(made.begun) == 1


@pytest.mark.parametrize(("context", "quoted"), [(15_992, 1999), (16_000, 2000), (16_008, 2000)])
async def test_at_most_two_thousand_characters_of_a_message_are_quoted(open_stage, context, quoted):
    async with open_stage("A list.", context=context) as stage:
        await answered(stage, [{**ONE, "content": "Q" * 3000}, FIRST], Compaction(instructions=SHORT, ends=True))

    (told,) = stage.of(Compacted)
    assert told.text.count("Q") == quoted


async def test_answer_goes_on_behind_the_summary_and_what_follows_the_summarized_part(open_stage):
    behind = [called(CALL), {**RESULT, "content": "z" * 300}]
    messages = [{**ONE, "content": "z" * 300}, FIRST, TWO, *behind]
    async with open_stage("A list.", "Yes.", context=640) as stage:
        made = await answered(stage, messages, at(1))

    (told,) = stage.of(Compacted)
    assert told.text == summary_text("A list.", words_behind(behind))
    assert "You called paint with {}" in told.text
    assert not told.ends
    assert made.begun[-1] == (after_summary(messages, told.text), FREE)
    assert "".join(event.text for event in stage.of(Content)) == "Yes."


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("A. B. ", "A. B."),
        ("A.\nB.\n", "A.\nB."),
        ("A\nB\n", "A\nB"),
        ("A. B\n", "A. B"),
        ("A\nB. ", "A\nB."),
        ("", ""),
    ],
)
async def test_summary_that_its_limit_cut_ends_with_its_last_sentence(open_stage, written, kept):
    async with open_stage(written + "z" * 600) as stage:
        await answered(stage, [ONE, FIRST, TWO], Compaction(instructions=SHORT, ends=True))

    (told,) = stage.of(Compacted)
    assert told.completion_ids == 500
    assert told.text == summary_text(kept or "z" * 500, last_words([ONE, FIRST, TWO], 500))


@pytest.mark.parametrize("asked", [Compaction(instructions=SHORT), at(1, ends=True)])
@pytest.mark.parametrize(("context", "written"), [(500, ""), (500, "  \n"), (0, "z" * 600)])
async def test_without_a_summary_nothing_is_replaced(open_stage, context, written, asked):
    """What the end of the context cut is none."""
    messages = [ONE, FIRST, TWO]
    context = context or await size_of(open_stage, [*messages[:2], {**ONE, "content": SHORT}]) + 3
    async with open_stage(written, "Yes.", context=context) as stage:
        if asked.threshold is None:
            with pytest.raises(EngineRefused, match="wrote no summary") as refused:
                await answered(stage, messages[:2], asked)
            assert refused.value.status == 502
            return
        made = await answered(stage, messages, asked)

    (told,) = stage.of(Compacted)
    assert (told.text, told.ends) == ("", False)
    assert made.begun[-1] == (messages, FREE)
    assert len(made.begun) == 3
    assert made.answer.conversation.changes == ()


async def test_call_in_place_of_a_summary_is_not_made(open_stage):
    call = '<tool_call>{"name": "up__say", "arguments": {}}</tool_call>'
    async with open_stage(call, "A list.") as stage:
        await answered(stage, [ONE, FIRST], Compaction(instructions=SHORT, ends=True), gateway_tools=EVERY_TOOL)

    (told,) = stage.of(Compacted)
    assert told.text == summary_text("A list.", last_words([ONE], 500))
    assert stage.of(ToolFinished) == []
    assert NO_MORE in TINY.decode(stage.engine.asked[1].prompt)


async def test_tools_that_were_found_are_told_once_and_only_those_that_are_deferred(open_stage):
    found = {**RESULT, FOUND_TOOLS: ("paint", "nonsense")}
    messages = [ONE, FIRST, TWO, called(CALL), {**found, "content": "z" * 2000}]
    deferral = Deferral({"paint"}, OURS)
    async with open_stage("A list.", "Yes.", context=3000) as stage:
        await answered(stage, messages, at(1), client_tools=[PAINT], deferral=deferral)

    (told,) = stage.of(Compacted)
    assert told.found == ("paint",)
    assert PAINT.description in TINY.decode(stage.engine.asked[-1].prompt)
