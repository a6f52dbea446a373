"""What is kept of a turn of the model, and the bytes that it counts."""

from array import array
from typing import Any

import pytest

from gateway.context.memory import Lived, LivedAnswer, LivedTurn
from gateway.observe.trajectories import Span
from gateway.toolcalls.stream.output_events import CallClosed
from leaf_sdk.testing import tiny_map

TINY = tiny_map()
IDS = TINY.encode("It is 42.")
END = TINY.special_tokens["<|im_end|>"]


def call(number: int, arguments: str = "{}") -> CallClosed:
    return CallClosed(number, f"c{number}", "paint", arguments, ids=(1, 2))


def turn(reasoning: str = "", *calls: CallClosed, own: int = len(IDS)) -> Lived:
    answer = LivedAnswer()
    answer.add_turn(7, IDS, "It is 42.", reasoning, LivedTurn(calls, reasoning=bool(reasoning)), own)
    return answer.messages[0]


def test_turn_is_kept_with_its_reasoning_and_calls_and_counts_its_ids_once() -> None:
    kept = turn("Hm.", call(0), call(1))

    assert kept.message["reasoning_content"] == "Hm."
    assert [each["id"] for each in kept.message["tool_calls"]] == ["c0", "c1"]
    assert kept.turn is not None
    assert (kept.turn.start, [each.ids for each in kept.turn.calls]) == (7, [(), ()])
    assert "reasoning_content" not in turn().message
    assert "tool_calls" not in turn().message


def test_whole_turn_is_the_models_and_of_a_cut_one_the_rest_is_not() -> None:
    cut = turn(own=3)

    assert (turn().spans, turn().own) == ((), len(IDS))
    assert (cut.spans, cut.own) == ((Span("model", 3), Span("assistant", len(IDS) - 3)), 3)


@pytest.mark.parametrize(("ended_by", "text"), [(END, "<|im_end|>"), (None, ""), (len(TINY) + 5, "")])
def test_token_that_ended_a_turn_has_its_text_if_the_map_has_it(ended_by: int | None, text: str) -> None:
    assert LivedTurn(ended_by=ended_by).end_text(TINY) == text


def size(ids: int = 0, spans: int = 0, **message: Any) -> int:
    return Lived({"role": "assistant", **message}, array("I", range(ids)), spans=(Span("model", 1),) * spans).size


def test_size_counts_ids_texts_calls_and_spans() -> None:
    calls = [{"function": {"arguments": "x" * n}} for n in (0, 500)]

    assert size(ids=100) - size() == 4 * 100
    assert size(content="x" * 500) - size(content="") == 500
    assert size(tool_calls=calls) - size(tool_calls=calls[:1]) > 500
    assert size(tool_calls=calls) - size(tool_calls=calls[:1]) > size(tool_calls=calls[:1]) - size()
    assert size(spans=30) - size() == 30 * (size(spans=1) - size()) > 30 * 100
