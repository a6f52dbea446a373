"""How an answer was made is kept with it while somebody looks, and not at all while nobody does."""

from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from codec_console.transcript import transcript_of
from gateway.agent import AnswerOptions
from gateway.context.compose.id_sources import Definitions
from gateway.context.memory import Remembered
from gateway.engine.interface import Message
from gateway.proxy.caller import Principal
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallClosed, Content
from leaf_sdk.testing import tiny_map
from leaf_sdk.trajectories import read_trajectories

pytestmark = pytest.mark.anyio

TINY = tiny_map()
QUESTION: list[Message] = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "What is it?"}]
PAINT = ToolSpec("paint", "Paint", {"type": "object"})
SAY, RED = '<tool_call>{"name":"up__say",   "arguments":{}}</tool_call>', '<tool_call>{"name": "paint"}</tool_call>'


async def answered(stage: Any, messages: list[Message], **asked: Any) -> list[Message]:
    """The conversation with an answer at its end."""
    stage.events.clear()
    conversation = await stage.agent.open(messages, client_tools=(PAINT,), principal=Principal("a"))
    await stage.agent.answer(conversation, AnswerOptions(**asked), stage.listen)
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in stage.of(CallClosed)
    ]
    content = "".join(event.text for event in stage.of(Content))
    return [*messages, {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}]


def last(stage: Any) -> Remembered:
    (node,) = stage.agent.recall.conversations(10)
    return node


async def talked(stage: Any) -> None:
    """A call that the gateway runs, one that the client does, and a question more."""
    told = await answered(stage, QUESTION)
    told = [*told, {"role": "tool", "tool_call_id": told[-1]["tool_calls"][0]["id"], "content": "painted"}]
    told = await answered(stage, told)
    await answered(stage, [*told, {"role": "user", "content": "Sure?"}], stops=("llo",))


async def test_nothing_is_recorded_while_nobody_looks(open_stage):
    async with open_stage(SAY, RED, "It is red.", "hello") as stage:
        await talked(stage)
        conversation = await stage.agent.open(QUESTION, principal=Principal("a"))

        assert all(node.record is None for node in last(stage).chain())
        assert conversation.context.sources is None
        assert conversation.observer is None


async def test_sources_are_those_of_the_trajectory(open_stage, tmp_path: Path):
    path = tmp_path / "lines"
    async with open_stage(SAY, RED, "It is red.", "hello world", trajectories=path) as stage:
        stage.agent.recall.watch(lambda: True)
        await talked(stage)
        transcript = transcript_of(last(stage))
    with path.open() as lines:
        (sample,) = read_trajectories(lines).samples()

    wanted = list(chain.from_iterable([span.source] * span.ids for span in sample.spans))
    shown = list(chain.from_iterable([run.source] * run.count for run in transcript.runs))
    # What a stop string cut is remembered as its client saw it.
    assert TINY.decode(transcript.ids).endswith("he")
    assert TINY.decode(sample.ids).endswith("hello")
    cut = len(transcript.ids) - len(TINY.encode("he"))
    assert list(transcript.ids[:cut]) == sample.ids[:cut]
    assert shown[:cut] == wanted[:cut]


async def test_calls_and_reuse_of_each_answer_are_told(open_stage):
    async with open_stage(SAY, RED, "It is red.", "hello") as stage:
        stage.agent.recall.watch(lambda: True)
        await talked(stage)
        transcript = transcript_of(last(stage))

    say, paint = transcript.calls
    assert (say.name, say.record.server, say.record.is_error) == ("up__say", "up", False)
    assert TINY.decode(say.result) == "It is 42."
    (run,) = (run for run in transcript.runs if run.call == 0)
    assert (TINY.decode(transcript.ids[run.start : run.stop]), run.source, run.tool) == ("It is 42.", "shim", "up__say")
    assert (paint.name, paint.record, paint.result) == ("paint", None, None)
    assert [turn.answer for turn in transcript.turns] == [0, 0, 1, 2]
    assert [answer.ended for answer in transcript.answers] == ["tool_calls", "stop", "stop"]
    # The scripted engine finds nothing again, and says nothing where a stop string ends it.
    first, second, third = (answer.figures for answer in transcript.answers)
    assert (first.held, first.cached, third) == (0, 0, None)
    assert second.held == second.recomputed > second.reused == 0
    assert [end.cached for end in transcript.cache_ends()] == [0, 0, 0]


async def test_conversation_that_nobody_looked_at_shows_what_memory_knows(open_stage):
    async with open_stage(SAY, RED, "It is red.", "hello") as stage:
        await talked(stage)
        transcript = transcript_of(last(stage))

    words = [(run.source, TINY.decode(transcript.ids[run.start : run.stop])) for run in transcript.runs]
    assert [text for source, text in words if source == "model"] == [SAY, RED, "It is red."]
    # Cut inside a token: its words were tokenized here.
    assert words[-1] == ("assistant", "he")
    assert ("shim", "It is 42.") in words
    assert transcript.model == "scripted"
    assert not any(answer.recorded for answer in transcript.answers)
    assert not list(transcript.cache_ends())


async def test_what_is_recorded_ends_with_who_looks(open_stage):
    looking = True
    async with open_stage("One.", "Two.", "Three.") as stage:
        stage.agent.recall.watch(lambda: looking)
        told = await answered(stage, QUESTION)
        asked = [*told, {"role": "user", "content": "And?"}]
        going_on = await stage.agent.open(asked, client_tools=(PAINT,), principal=Principal("a"))
        looking = False
        await stage.agent.answer(going_on, AnswerOptions(), stage.listen)
        node = last(stage)
        later = await stage.agent.open(QUESTION, principal=Principal("a"))

        assert [each.record is not None for each in node.chain()] == [True, False]
        assert (later.context.sources, later.observer) == (None, None)
        looking = True
        assert (await stage.agent.open(QUESTION, principal=Principal("a"))).observer is not None


async def test_records_are_forgotten_and_the_answers_stay(open_stage):
    async with open_stage(SAY, RED, "It is red.", "hello", "One.", "Sure.") as stage:
        stage.agent.recall.watch(lambda: True)
        await talked(stage)
        unrecorded = last(stage)
        recorded = transcript_of(unrecorded)
        memory, taken = stage.agent.recall._memory, stage.agent.recall._memory.size
        records = sum(node.record.size for node in unrecorded.chain())
        stage.agent.recall.forget_records()
        transcript = transcript_of(last(stage))

        assert memory.size == taken - records == sum(node.size for node in unrecorded.chain())
        assert list(transcript.ids) == list(recorded.ids)
        assert [answer.recorded for answer in (*recorded.answers, *transcript.answers)] == [True] * 3 + [False] * 3


async def test_records_take_of_the_bound_of_memory(open_stage):
    async with open_stage(*(f"Answer {n}." for n in range(40)), memory_bytes=100_000) as stage:
        stage.agent.recall.watch(lambda: True)
        for n in range(40):
            await answered(stage, [{"role": "user", "content": f"Question {n}?"}])

        nodes = stage.agent.recall.conversations(100)
        assert 0 < len(nodes) < 40
        assert stage.agent.recall._memory.size <= 100_000
        assert all(node.size >= node.record.size for node in nodes)


async def test_definitions_are_searched_once_for_conversations_with_the_same_tools(open_stage, monkeypatch):
    searched: list[int] = []
    search = Definitions.spans
    monkeypatch.setattr(Definitions, "spans", lambda *asked: searched.append(1) or search(*asked))
    async with open_stage("One.", "Two.", "Three.") as stage:
        stage.agent.recall.watch(lambda: True)
        for word in ("this", "that", "those"):
            await answered(stage, [QUESTION[0], {"role": "user", "content": word}])
        sources = [[run.source for run in transcript_of(node).runs] for node in stage.agent.recall.conversations(10)]

    assert len(searched) == 1
    assert all("tools" in each for each in sources)
