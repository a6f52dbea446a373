"""Repeated calls: what counts as one, and what the model is told."""

import pytest

from gateway.agent.calls.runner import FinishedCall
from gateway.agent.events import ToolFinished
from gateway.agent.turn import Repeats
from gateway.proxy.result_tokens import IdPiece
from leaf_sdk.testing import tiny_map

TINY = tiny_map()


def finished(said: str, arguments: str = "{}", name: str = "poll") -> FinishedCall:
    ids = tuple(TINY.encode(said))
    told = ToolFinished("call_1", name, arguments, said, "shim", 0, len(ids), False, 0.1)
    return FinishedCall((IdPiece(ids, "shim"),), told, 0.0)


def notes(most: int, *turns: list[FinishedCall]) -> tuple[list[bool], bool]:
    """Which turns were noted, and whether calls are over after the last."""
    repeats = Repeats(most)
    noted = ["same result" in TINY.decode(repeats.noted(turn, TINY)[-1].ids) for turn in turns]
    return noted, repeats.are_over


@pytest.mark.parametrize(
    ("most", "noted", "over"),
    [
        (2, [False, True, True], True),
        (1, [True, True, True], True),
        (3, [False, False, True], False),
        (0, [False, False, False], False),
    ],
)
def test_the_setting_says_how_often_a_call_may_be_repeated(most: int, noted: list[bool], over: bool) -> None:
    assert notes(most, *[[finished("42")]] * 3) == (noted, over)


def test_arguments_are_compared_as_json() -> None:
    turns = [[finished("42", '{"a": 1, "b": 2}')], [finished("42", '{"b":2,"a":1}')]]
    assert notes(2, *turns) == ([False, True], False)


def test_a_changed_result_argument_or_name_begins_anew() -> None:
    same = [finished("42")]
    for other in ([finished("43")], [finished("42", '{"a": 1}')], [finished("42", name="say")], [*same, *same]):
        assert notes(2, same, other, same, other) == ([False] * 4, False)


def test_the_note_counts_as_the_gateways_ids_and_the_result_stays() -> None:
    repeats = Repeats(2)
    repeats.noted([finished("42")], TINY)
    (noted,) = repeats.noted([finished("42")], TINY)
    assert TINY.decode(noted.ids).startswith("42\n[You have made this call 2 times")
    assert noted.finished.shim_ids == len(noted.ids)
    assert noted.finished.text == "42"
