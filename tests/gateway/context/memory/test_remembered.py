"""What a remembered answer knows: its ids, its form, its figures, and the bytes that all of it takes."""

import sys
from array import array
from typing import Any

import pytest

from gateway.context.memory import (
    AnswerRecord,
    Call,
    CallRecord,
    ContextChange,
    GenerationRecord,
    KeptResult,
    Lived,
    LivedAnswer,
    LivedTurn,
    Miss,
    Remembered,
    RequestFigures,
    Shown,
)
from gateway.observe.trajectories import Span
from gateway.toolcalls.stream.output_events import CallClosed
from leaf_sdk.testing import tiny_map
from tests.cases import each_of

TINY = tiny_map()


def node(before: Remembered | None, kept: int, *added: int) -> Remembered:
    return Remembered("ann", before, 1, Shown("yes"), (), kept, array("I", added), 0, 0, 0)


def test_conversation_has_the_ids_of_its_answers_each_behind_what_it_keeps() -> None:
    first = node(None, 0, 1, 2, 3)
    second = node(first, 2, 4, 5)
    third = node(second, 0, 6)
    branch = node(second, 4, 7)

    assert [each.chain() for each in (first, branch)] == [[first], [first, second, branch]]
    assert [each.ids() for each in (first, second, third, branch)] == [[1, 2, 3], [1, 2, 4, 5], [6], [1, 2, 4, 5, 7]]


def generation(logprobs: int = 0) -> GenerationRecord:
    return GenerationRecord(0, 1, 0, 0, None, 0, 0.0, 0.0, None, None, False, array("f", [0.5] * logprobs))


def record(spans: int = 0, generations: int = 0, calls: int = 0, logprobs: int = 0) -> AnswerRecord:
    call = CallRecord("c", "paint", None, 0.0, 0, 0, False)
    return AnswerRecord(
        "stop", 0, [Span("model", 1)] * spans, [generation(logprobs)] * generations, [call] * calls, None
    )


def test_record_counts_its_spans_generations_calls_and_log_probabilities() -> None:
    assert record().size == 700
    assert record(spans=1).size == record(generations=1).size == record(calls=1).size == 700 + 160
    assert record(spans=1, generations=2, calls=3).size == 700 + 6 * 160
    assert record(generations=2, logprobs=5).size == 700 + 2 * (160 + 5 * 4)


def test_figures_are_counted_by_the_names_of_the_apis() -> None:
    figures = RequestFigures(90, 30, 20, 10, 5, "client_changed", Miss("client_changed"))

    assert figures.counts == {
        "prompt_tokens": 90,
        "cached_tokens": 30,
        "processed_tokens": 60,
        "held": 20,
        "reused": 10,
        "lost": 5,
    }
    assert RequestFigures(9, 3).counts == {
        **dict.fromkeys(("held", "reused", "lost"), 0),
        "prompt_tokens": 9,
        "cached_tokens": 3,
        "processed_tokens": 6,
    }
    assert RequestFigures(9, 3, reason="client_changed").loss is None


@pytest.mark.parametrize("count", [0, 1, 3])
def test_kept_result_takes_room_for_each_of_its_sources(count: int) -> None:
    sources: Any = (("leaf", 1), ("shim", 2), ("leaf", 3))[:count]

    assert KeptResult("r", "a", "t", "m", 3, sources, b"", "").bytes_beside == 96 * count


@each_of(
    ("text", "reasoning", "content", "form"),
    [
        ("Yes.", "", "Yes.", "|"),
        ("<think>Hm.</think>\n\nYes.<|im_end|>", "Hm.", "Yes.", "<think>|</think>\n\n|<|im_end|>"),
        ("<think>\nHm.\n</think>Yes.", "\nHm.\n", " Yes. ", "<think>\n|\n</think>|"),
        ("Yes.<tool_call>{", "", "Yes.", "|<tool_call>{"),
        ("<tool_call>\n{}x", "", "", "<tool_call>\n{}"),
        ("Hm. Yes.", "Hm.", "No.", "| Yes."),
        ("Yes. Hm.", "Hm.", "Yes.", "Yes. |"),
        (f"{'-' * 50}Yes.{'-' * 50}", "", "Yes.", f"{'-' * 48}|{'-' * 48}"),
        ("[a][b]Yes.(c)(d)", "", "Yes.", "[a][b]|(c)("),
    ],
)
def test_form_is_what_a_turn_writes_around_its_words_up_to_a_call(
    text: str, reasoning: str, content: str, form: str
) -> None:
    message = {"role": "assistant", "content": content, "reasoning_content": reasoning}
    turn = Lived(message, array("I", TINY.encode(text)), LivedTurn()).formed(TINY).turn

    assert turn is not None
    assert turn.form is sys.intern(form)


def test_turn_gets_its_form_from_its_ids_and_a_result_has_none() -> None:
    ids = array("I", [*TINY.encode("<think>Hm.</think>Yes."), len(TINY) + 5])
    turn = Lived({"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}, ids, LivedTurn(start=3))
    formed = turn.formed(TINY)

    assert formed == Lived(turn.message, ids, LivedTurn(start=3, form="<think>|</think>|"))
    plain = Lived({"role": "assistant", "content": "Yes."}, array("I", TINY.encode("[Yes.]")), LivedTurn())
    assert plain.formed(TINY).turn == LivedTurn(form="[|]")
    result = Lived({"role": "tool", "tool_call_id": "c"}, ids)
    assert result.formed(TINY) is result


def closed(number: int) -> CallClosed:
    return CallClosed(number, f"c{number}", "paint", '{"of": 1}', ids=(1, 2))


def test_answer_that_is_made_has_its_turns_and_results_in_their_order() -> None:
    answer = LivedAnswer()
    assert (answer.last, answer.shown) == (None, Shown(""))

    answer.add_turn(7, [1, 2], "It is", "", LivedTurn((closed(0),)), 2)
    answer.add_result("c0", "paint", [3, 4, 5], (Span("leaf", 3, "paint", "up"),))
    first, result = answer.messages
    assert first.message == {
        "role": "assistant",
        "content": "It is",
        "tool_calls": [{"id": "c0", "type": "function", "function": {"name": "paint", "arguments": '{"of": 1}'}}],
    }
    assert result == Lived(
        {"role": "tool", "tool_call_id": "c0", "name": "paint"},
        array("I", [3, 4, 5]),
        spans=(Span("leaf", 3, "paint", "up"),),
    )
    assert (answer.last, answer.start) == (first, 7)

    answer.add_turn(12, [6], "4.", "Hm.", LivedTurn(), 0)
    assert answer.messages[2] == Lived(
        {"role": "assistant", "content": "4.", "reasoning_content": "Hm."},
        array("I", [6]),
        LivedTurn(start=12),
        (Span("model", 0), Span("assistant", 1)),
    )
    assert (answer.last, answer.start) == (answer.messages[2], 12)


def test_client_sees_the_texts_and_calls_that_it_was_shown() -> None:
    answer = LivedAnswer(content=["It ", "is."], reasoning=["H", "m."], calls=[Call("c", "paint", "{}")])

    assert answer.shown == Shown("It is.", "Hm.", (Call("c", "paint", "{}"),))


def test_size_of_a_message_is_counted_to_the_byte() -> None:
    call = {"id": "c", "function": {"name": "paint", "arguments": "x" * 500}}
    message = {"role": "assistant", "content": "x" * 300, "tool_calls": [call, call], "other": 5}
    texts = sum(map(sys.getsizeof, ("assistant", "x" * 300)))
    calls = 2 * (sys.getsizeof("x" * 500) + 600)

    assert Lived(message, array("I", [1, 2, 3]), spans=(Span("model", 1),) * 3).size == 600 + 12 + texts + calls + 480
    assert Lived({"role": "tool", "tool_calls": None}, array("I")).size == 600 + sys.getsizeof("tool")


def test_what_is_not_known_of_a_turn_or_an_answer_is_nothing() -> None:
    plain = node(None, 0)

    assert LivedTurn() == LivedTurn((), True, False, None, False, "", None, ())
    assert LivedAnswer() == LivedAnswer([], [], [], [], 0, True)
    assert ContextChange("cleared", 5) == ContextChange("cleared", 5, 0)
    assert Miss("not_seen_before") == Miss("not_seen_before", 0, None, None, "", "", False)
    assert (plain.original_ids, plain.followers, plain.size, plain.engine_name) == (0, 0, 0, "engine")
    assert (plain.strangers, plain.digest, plain.summary, plain.answer_id) == (b"", b"", b"", "")
