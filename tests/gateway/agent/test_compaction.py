"""Compaction, and what stays of a conversation: the large results that were kept, and the tools that read them."""

import re
from collections.abc import Sequence
from typing import Any

import pytest

from gateway.agent import AnswerOptions
from gateway.agent.calls.request_tools import NO_TOOL
from gateway.agent.compaction import CompactableAnswer, Compaction
from gateway.agent.events import Compacted, ToolFinished
from gateway.agent.results.large_results import READ, SEARCH
from gateway.context.history.client_messages import checked_messages
from gateway.context.history.shortening import add_message, after_summary, summary_text
from gateway.context.memory import SUMMARY, ContextChange, KeptResult
from gateway.engine.interface import Message
from gateway.proxy.caller import Principal
from gateway.toolcalls.stream.output_events import Content
from leaf_sdk.testing import tiny_map

from .test_large_results import LIMITS, SECRET, handle_in, reads
from .test_memory import QUESTION, SAY, begins, prompts

pytestmark = pytest.mark.anyio

TINY = tiny_map()
NOW = Compaction(ends=True)
MORE: Message = {"role": "user", "content": "What is the password?"}
SEARCHES = reads(SEARCH, text="password")


async def answered(
    stage: Any, messages: Sequence[Message], asked: Compaction | None = None, principal: str = "a"
) -> Message:
    stage.events.clear()

    async def begin(told: Sequence[Message], choice: Any) -> Any:
        return await stage.agent.open(told, choice=choice, principal=Principal(principal))

    answer = CompactableAnswer(stage.agent, begin, messages, asked=asked)
    await answer.open()
    await answer.answer(AnswerOptions(), stage.listen)
    return {"role": "assistant", "content": "".join(event.text for event in stage.of(Content))}


async def summary_of(stage: Any, messages: Sequence[Message]) -> list[dict[str, Any]]:
    """What is left of the messages once they are summed up."""
    await answered(stage, messages, NOW)
    (summary,) = stage.of(Compacted)
    return after_summary(messages, summary.text, summary.found)


def asking(history: list[dict[str, Any]], *messages: Message) -> list[dict[str, Any]]:
    history = list(history)
    for message in messages:
        add_message(history, dict(message))
    return history


def told(stage: Any, number: int = -1) -> str:
    return TINY.decode(prompts(stage)[number])


async def test_summary_names_kept_results_and_the_model_reads_on_in_them(open_stage):
    says = (SAY, "It is long.", "A list.", SEARCHES, "It is swordfish.", reads(READ, lines="1201"), "Yes.")
    async with open_stage(*says, says=SECRET, **LIMITS) as stage:
        first = await answered(stage, QUESTION)
        (kept,) = [event.kept for event in stage.of(ToolFinished)]
        history = asking(await summary_of(stage, [*QUESTION, first]), MORE)
        second = await answered(stage, history)
        (found,) = stage.of(ToolFinished)
        await answered(stage, [*history, second, MORE])
        (read,) = stage.of(ToolFinished)
        asked = prompts(stage)

    line = f"- {kept.handle}: {kept.tokens:,} tokens of up__say; text of 2,000 lines"
    assert line in history[-1]["content"]
    assert "[line 1201, offset" in found.text
    assert "1200: the password is swordfish" in found.text
    assert read.text.startswith("1200: the password is swordfish")
    # Behind the summary they are defined anew, once.
    assert told(stage).count("Read on in a result") == told(stage).count("Find words, or a regular") == 1
    assert begins(asked[-1], asked[-2])
    assert begins(asked[-2], asked[-3])


async def test_summary_at_a_threshold_goes_on_with_kept_results_at_once(open_stage):
    asked = Compaction(threshold=1000)
    says = (SAY, "It is long.", "A list.", SEARCHES, "It is swordfish.", SEARCHES, "As before.")
    async with open_stage(*says, says=SECRET, **LIMITS) as stage:
        first = await answered(stage, QUESTION)
        second = await answered(stage, [*QUESTION, first, MORE], asked)
        (summary,) = stage.of(Compacted)
        (found,) = stage.of(ToolFinished)
        history = asking(after_summary(QUESTION, summary.text), second, MORE)
        await answered(stage, history)
        (again,) = stage.of(ToolFinished)

    assert "[line 1201, offset" in found.text
    assert again.text == found.text


async def test_kept_results_are_named_in_each_later_summary(open_stage):
    says = (SAY, "It is long.", "A list.", "I see.", "Another list.", SEARCHES, "It is swordfish.")
    async with open_stage(*says, says=SECRET, **LIMITS) as stage:
        first = await answered(stage, QUESTION)
        history = asking(await summary_of(stage, [*QUESTION, first]), MORE)
        second = await answered(stage, history)
        history = asking(await summary_of(stage, [*history, second]), MORE)
        await answered(stage, history)
        (found,) = stage.of(ToolFinished)

    assert len(re.findall(r"^- r_", history[-1]["content"], re.MULTILINE)) == 1
    assert "[line 1201, offset" in found.text


async def test_two_branches_of_one_summary_both_read_its_results(open_stage):
    says = (SAY, "It is long.", "A list.", SEARCHES, "It is swordfish.", SEARCHES, "It is swordfish.")
    async with open_stage(*says, says=SECRET, **LIMITS) as stage:
        first = await answered(stage, QUESTION)
        left = await summary_of(stage, [*QUESTION, first])
        found: list[str] = []
        for words in ("What is the password?", "Which word is it?"):
            await answered(stage, asking(left, {"role": "user", "content": words}))
            found += [event.text for event in stage.of(ToolFinished)]

    assert found[0] == found[1]
    assert "[line 1201, offset" in found[0]


async def test_new_large_result_behind_a_summary_does_not_define_the_tools_again(open_stage):
    says = (SAY, "It is long.", "A list.", SAY, "It is so.")
    async with open_stage(*says, says=SECRET, **LIMITS) as stage:
        first = await answered(stage, QUESTION)
        history = asking(await summary_of(stage, [*QUESTION, first]), MORE)
        handle = handle_in(history[-1]["content"])
        await answered(stage, history)
        (again,) = stage.of(ToolFinished)

    assert again.kept.handle == handle
    assert told(stage).count("Read on in a result") == 1


async def test_figures_say_what_was_summed_up_and_what_took_its_place(open_stage):
    async with open_stage("It is so.", "A list.", "Yes.", context=60_000) as stage:
        first = await answered(stage, QUESTION)
        await answered(stage, [*QUESTION, first, MORE], Compaction(threshold=1))
        conversations = stage.agent.recall.conversations(9)
        asked = prompts(stage)

    changes = {each.shown.content: each.figures.changes for each in conversations if each.figures is not None}
    assert changes["A list."] == (ContextChange("summed_up", len(asked[1])),)
    assert changes["Yes."] == (ContextChange("compacted", len(asked[1]), len(TINY.encode("A list."))),)


@pytest.mark.parametrize("principal", ["a", "b"])
async def test_handle_in_a_summary_that_was_not_written_here_is_unknown(open_stage, principal):
    """Others can't read a result by naming it in a summary of their own, nor another principal in the same one."""
    says = (SAY, "It is long.", "A list.", SEARCHES, "I can't.")
    async with open_stage(*says, says=SECRET, **LIMITS) as stage:
        first = await answered(stage, QUESTION)
        left = await summary_of(stage, [*QUESTION, first])
        if principal == "a":
            left[-1] |= after_summary((), left[-1]["content"].replace("A list.", "A lie."))[-1]
        await answered(stage, asking(left, MORE), principal=principal)
        (refused,) = stage.of(ToolFinished)

    assert refused.is_error
    assert "is kept in this conversation; those that are: none" in refused.text
    assert "swordfish" not in told(stage)
    assert "Read on in a result" not in told(stage)


async def test_results_that_are_no_longer_kept_are_not_named(open_stage):
    async with open_stage(SAY, "It is long.", "A list.", says=SECRET, **LIMITS) as stage:
        first = await answered(stage, QUESTION)
        conversation = await stage.agent.open([*QUESTION, first, MORE], principal=Principal("a"))
        conversation.results[0].content = None
        left = await summary_of(stage, [*QUESTION, first])

    assert "r_" not in left[-1]["content"]


async def test_client_without_the_gateways_tools_is_told_of_no_results(open_stage):
    async with open_stage(SAY, "It is long.", says=SECRET, **LIMITS) as stage:
        first = await answered(stage, QUESTION)
        asked = {"principal": Principal("a"), "gateway_tools": NO_TOOL}
        conversation = await stage.agent.open([*QUESTION, first, MORE], **asked)

    assert conversation.results
    assert conversation.readable_results == ()


def test_many_kept_results_take_a_bounded_part_of_a_summary():
    results = [KeptResult(f"r_{n}", "a", "up__say", "map", n, (), b"", "text" * 100) for n in range(30)]
    text = summary_text("A list.", "And now?", results)

    assert "r_29: 29 tokens of up__say; text" in text
    assert "- 14 older ones: a call with the handle 'list' names them" in text
    assert len(text.splitlines()) < 30
    assert max(map(len, text.splitlines())) < 200


async def test_client_can_not_say_what_stands_for_its_conversation():
    message = {"role": "user", "content": "Hello", SUMMARY: "A list."}

    assert SUMMARY not in checked_messages([message])[0]
