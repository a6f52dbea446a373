"""A conversation as the console sees it: every id once, in order, with the source that it has, and nothing guessed."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from codec_console.runs import only_places
from codec_console.transcript import Transcript, transcript_of
from gateway.context.memory import AnswerRecord, CallRecord, GenerationRecord, Lived, LivedTurn, Remembered, Shown
from gateway.observe.trajectories import Span
from gateway.toolcalls.stream.output_events import CallClosed

SCAFFOLD = array("I", [1, 2])


@dataclass
class Told:
    """A conversation that is made up, and what is true of each of its ids."""

    last: Remembered | None = None
    ids: list[int] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)


def label(spans: Sequence[Span]) -> list[str]:
    return list(chain.from_iterable([span.source] * span.count for span in spans))


def grow(
    told: Told, kept: int, prompt: Sequence[Span], turns: Sequence[tuple[int, int, Sequence[int]]], *, recorded: bool
) -> None:
    """An answer more. `turns`: ids of each, ids of reasoning in it, and ids of the result of each of its calls."""
    number = 0 if told.last is None else len(told.last.chain())
    spans, lived, generations, calls = [*prompt], [], [], []
    ids = [*told.ids[:kept], *range(100, 100 + sum(span.count for span in prompt))]
    sources = [*told.sources[:kept], *label(prompt)]
    *others, (last, thought, _) = turns
    for at, (count, reasoned, results) in enumerate([*others, (last, thought, ())]):
        start = len(ids)
        written = array("I", range(1000 * (at + 1), 1000 * (at + 1) + count))
        closed = tuple(CallClosed(n, f"c{number}.{at}.{n}", f"t{n}", "{}", ids=()) for n in range(len(results)))
        message: dict[str, Any] = {"role": "assistant", "content": ""}
        message["tool_calls"] = [{"id": c.id, "function": {"name": c.name, "arguments": "{}"}} for c in closed]
        lived.append(Lived(message, written, LivedTurn(closed, start=start)))
        ids += written
        spans.append(Span("model", count))
        sources += ["reasoning"] * min(reasoned, count) + ["model"] * (count - min(reasoned, count))
        generations.append(GenerationRecord(start, count, reasoned, 0, start, 0, 0.0, 0.1, 0.1, 0.1, False, array("f")))
        for n, size in enumerate(results):
            result = array("I", range(50_000 + 100 * n, 50_000 + 100 * n + size))
            ids += [*SCAFFOLD, *result]
            found = [Span("template", 2), Span("leaf", size, f"t{n}", "up")]
            spans += found
            sources += label(found)
            name = {"role": "tool", "tool_call_id": closed[n].id, "name": f"t{n}"}
            lived.append(Lived(name, result, spans=(found[1],) if recorded else ()))
            calls.append(CallRecord(closed[n].id, f"t{n}", "up", 0.5, size, 0, False))
        if results:
            ids += SCAFFOLD
            spans.append(Span("template", 2))
            sources += ["template"] * 2
    record = AnswerRecord("stop", kept, [s for s in spans if s.count], generations, calls, None)
    told.last = Remembered(
        owner="a", before=told.last, place=0, shown=Shown(""), lived=tuple(lived), kept=kept,
        added=array("I", ids[kept:]),
        held=len(ids), engine=0, number=7, answer_id=f"a{number}", record=record if recorded else None,
    )  # fmt: skip
    told.ids, told.sources = ids, sources


SOURCES = st.sampled_from(["template", "system", "user", "shim", "assistant"])
PROMPTS = st.lists(st.builds(Span, SOURCES, st.integers(1, 9)), max_size=5)
TURNS = st.lists(
    st.tuples(st.integers(1, 9), st.integers(0, 12), st.lists(st.integers(1, 9), max_size=3)), min_size=1, max_size=4
)


@st.composite
def conversations(draw: st.DrawFn, recorded: st.SearchStrategy[bool]) -> Told:
    told = Told()
    for _ in range(draw(st.integers(1, 5))):
        kept = draw(st.one_of(st.just(len(told.ids)), st.integers(0, len(told.ids))))
        grow(told, kept, draw(PROMPTS), draw(TURNS), recorded=draw(recorded))
    return told


def sources_of(transcript: Transcript) -> list[str]:
    return list(chain.from_iterable([run.source] * run.count for run in transcript.runs))


def looked_at(told: Told) -> Transcript:
    assert told.last is not None
    return transcript_of(told.last)


@given(conversations(st.booleans()))
def test_every_id_is_shown_once_in_order_with_one_source(told: Told):
    transcript = looked_at(told)

    assert list(transcript.ids) == told.ids
    assert [0, *(run.stop for run in transcript.runs)] == [*(run.start for run in transcript.runs), len(told.ids)]
    assert all(run.count > 0 for run in transcript.runs)
    assert all(first.stop == second.start for first, second in pairwise(transcript.runs))


@given(conversations(st.just(True)))
def test_recorded_conversation_has_the_source_that_each_id_has(told: Told):
    assert sources_of(looked_at(told)) == told.sources


@given(conversations(st.booleans()))
def test_source_is_the_true_one_or_not_known(told: Told):
    # Of a turn that nobody recorded it is not known how much of it was reasoning.
    allowed = {(true, true) for true in set(told.sources)} | {("model", "reasoning")}
    allowed |= {("unknown", true) for true in set(told.sources)}

    assert set(zip(sources_of(looked_at(told)), told.sources, strict=True)) <= allowed


@given(conversations(st.booleans()))
def test_turn_that_has_a_place_stands_there(told: Told):
    transcript = looked_at(told)
    placed = [turn for turn in transcript.turns if turn.start is not None]

    assert placed
    for turn in placed:
        said = transcript.ids[turn.start : turn.start + turn.count]
        assert list(said) == list(range(said[0], said[0] + turn.count))
        assert said[0] % 1000 == 0
    assert all(end.prompt == transcript.turns[end.turn].start for end in transcript.cache_ends())


@given(conversations(st.booleans()))
def test_ids_linked_to_a_call_are_its_result(told: Told):
    transcript = looked_at(told)

    for number, call in enumerate(transcript.calls):
        linked = [list(transcript.ids[run.start : run.stop]) for run in transcript.runs if run.call == number]
        assert list(chain.from_iterable(linked)) in ([], list(call.result or ()))


@given(conversations(st.just(True)))
def test_results_of_answers_that_stand_whole_are_all_linked(told: Told):
    transcript, last = looked_at(told), len(looked_at(told).answers) - 1
    wanted = [
        n for n, call in enumerate(transcript.calls) if transcript.turns[call.turn].answer == last and call.result
    ]

    assert {run.call for run in transcript.runs if run.call is not None} >= set(wanted)
    assert all(transcript.calls[n].record is not None for n in wanted)


def test_result_that_could_stand_in_two_places_is_not_placed():
    once, twice = array("I", [9, 1, 2, 3]), array("I", [1, 2, 9, 1, 2, 3])

    assert only_places(once, [array("I", [1, 2])]) == [1]
    assert only_places(twice, [array("I", [1, 2])]) is None
    assert only_places(twice, [array("I", [1, 2]), array("I", [1, 2])]) == [0, 3]
    assert only_places(once, [array("I", [7])]) is None
    # Bytes that are the same in the middle of an id are none of its.
    assert only_places(array("I", [0x01000000, 0x02000000]), [array("I", [0x00000001])]) is None
