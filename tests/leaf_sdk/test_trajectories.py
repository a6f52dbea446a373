"""Lines of a file of trajectories, joined to samples."""

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaf_sdk.errors import TrajectoryInvalid
from leaf_sdk.trajectories import Trajectories, for_trl, for_verl, read_trajectories
from tests.cases import each_of

END = 9


def line(name: str, ids: list[int], before: str | None = None, kept: int = 0, **changed: Any) -> dict[str, Any]:
    """A line of an answer whose last two ids the model wrote, and then END."""
    told = {
        "time": "t",
        "id": name,
        "before": before,
        "principal": "a",
        "map": "m",
        "model": "m",
        "ended": "stop",
        "kept": kept,
        "ids": ids,
        "spans": [{"source": "user", "ids": len(ids) - 2}, {"source": "model", "ids": 2}],
        "sampled": [turn(kept + len(ids) - 2, 2)],
    }
    return {**told, **changed}


def turn(start: int, ids: int) -> dict[str, Any]:
    return {"start": start, "ids": ids, "ended_by": END, "guessed": False}


def samples(*told: dict[str, Any]) -> list[Any]:
    return list(read_trajectories(json.dumps(each) for each in told).samples())


def test_end_that_the_template_writes_itself_is_the_model_s_and_another_is_not() -> None:
    first = line("a", [1, 2, 3, 4])
    (same,) = samples(first, line("b", [END, 5, 6, 7], "a", 4))
    (other,) = samples(first, line("b", [8, 5, 6, 7], "a", 4))

    assert (same.prompt_ids, same.completion_ids) == ([1, 2], [3, 4, END, 5, 6, 7, END])
    assert same.mask == [1, 1, 1, 0, 1, 1, 1]
    assert other.mask == [1, 1, 0, 0, 1, 1, 1]


def test_history_that_a_template_rewrote_is_a_sample_of_its_own() -> None:
    whole, rewritten = samples(line("a", [1, 2, 3, 4]), line("b", [4, END, 6, 7], "a", 2))

    assert (whole.completion_ids, whole.mask) == ([3, 4, END], [1, 1, 1])
    assert (rewritten.prompt_ids, rewritten.completion_ids) == ([1, 2, 4, END], [6, 7, END])


def test_turn_of_which_a_part_is_kept_is_the_model_s_up_to_there() -> None:
    _, branch = samples(line("a", [1, 2, 3, 4]), line("b", [8, 5, 6, 7], "a", 3))

    assert (branch.prompt_ids, branch.completion_ids, branch.mask) == ([1, 2], [3, 8, 5, 6, 7, END], [1, 0, 0, 1, 1, 1])
    assert [(span.source, span.ids) for span in branch.spans] == [
        *(("user", 2), ("model", 1)),
        *(("user", 2), ("model", 2)),
    ]


def test_answer_without_its_beginning_is_named_and_left_out() -> None:
    found = read_trajectories([json.dumps(line("b", [5, 6, 7], "a", 4)), json.dumps(line("c", [8, 6, 7], "b", 7))])

    assert found.incomplete == ["b", "c"]
    assert list(found.samples()) == []
    with pytest.raises(TrajectoryInvalid, match="no line holds the answer 'a'"):
        found.sample("c")


def test_order_of_the_lines_does_not_matter() -> None:
    lines = [line("a", [1, 2, 3, 4]), line("b", [END, 5, 6, 7], "a", 4), line("c", [8, 6, 7], "b", 8)]
    (in_order,), (reversed_,) = samples(*lines), samples(*lines[::-1])

    assert reversed_ == in_order


def test_answer_read_before_the_one_it_continues_is_left_out_where_their_beginning_is_missing() -> None:
    found = read_trajectories([json.dumps(line("c", [8, 6, 7], "b", 7)), json.dumps(line("b", [5, 6, 7], "a", 4))])

    assert found.incomplete == ["c", "b"]
    assert list(found.samples()) == []


def test_line_that_keeps_more_ids_than_a_later_line_has_is_named() -> None:
    later = [json.dumps(line("b", [5, 6, 7], "a", 9)), "", json.dumps(line("a", [1, 2, 3, 4]))]

    with pytest.raises(TrajectoryInvalid, match=r"line 1 .*: it keeps 9 ids of an answer that has only 4"):
        read_trajectories(later)


@pytest.mark.parametrize("kept", [3, 2])
@pytest.mark.parametrize("size", [2, 3])
def test_answers_that_continue_each_other_in_a_circle_are_named(size: int, kept: int) -> None:
    circle = [line(str(number), [1, 2, 3], str((number + 1) % size), kept) for number in range(size)]
    told = [line("a", [1, 2, 3]), *circle, line("b", [1, 2, 3], "0", kept)]

    with pytest.raises(TrajectoryInvalid, match=r"line 2 .* the answer '0' continues itself"):
        read_trajectories(map(json.dumps, told))


def test_sample_of_answers_in_a_circle_is_an_error() -> None:
    answers = read_trajectories(map(json.dumps, [line("a", [1, 2, 3]), line("b", [1, 2, 3], "a", 2)])).answers
    circle = Trajectories({**answers, "a": replace(answers["a"], before="b", kept=2)})

    with pytest.raises(TrajectoryInvalid, match="the answer 'a' continues itself"):
        list(circle.samples())


def test_trl_and_verl_get_their_fields_and_unknown_logprobs_are_masked() -> None:
    sampled = [{"start": 2, "ids": 2, "ended_by": END, "guessed": False, "logprobs": [-0.5, None, -0.25]}]
    (sample,) = samples(line("a", [1, 2, 3, 4], sampled=sampled))

    assert sample.mask == [1, 1, 1]
    assert for_trl([sample]) == {
        "prompt_ids": [[1, 2]],
        "completion_ids": [[3, 4, END]],
        "logprobs": [[-0.5, 0.0, -0.25]],
        "env_mask": [[1, 0, 1]],
    }
    assert for_verl(sample) == {
        "prompt_ids": [1, 2],
        "response_ids": [3, 4, END],
        "response_mask": [1, 0, 1],
        "response_logprobs": [-0.5, 0.0, -0.25],
        "num_turns": 2,
    }


@each_of(
    "told",
    [
        "{",
        "[]",
        "7",
        "\xff",
        '{"dropped": "x"}',
        '{"dropped": Infinity}',
        json.dumps({key: value for key, value in line("a", [1, 2, 3]).items() if key != "before"}),
        json.dumps(line("a", [1, -2, 3])),
        json.dumps(line("a", [1, 2, 3], spans=[])),
        json.dumps(line("a", [1, 2, 3], "a", 0)),
        json.dumps(line("a", [1, 2, 3], None, 3)),
        json.dumps(line("a", [1, 2, 3], sampled=[])),
        json.dumps(line("a", [1, 2, 3], sampled=[{"start": 2, "ids": 2, "ended_by": 1, "guessed": False}])),
        json.dumps(line("a", [1, 2, 3], sampled=[turn(2, 1), turn(1, 1)])),
        json.dumps(line("a", [1, 2, 3], sampled=[turn(1, 2), turn(2, 1)])),
        json.dumps(line("a", [1, 2, 3], sampled=[{**turn(1, 2), "logprobs": [10**400, 0, 0]}])),
        json.dumps(line("first", [1, 2, 3])),
        json.dumps(line("b", [1, 2, 3], "first", 5)),
    ],
)
def test_line_that_is_none_is_named(told: str) -> None:
    with pytest.raises(TrajectoryInvalid, match="line 2 is not a valid line of a trajectory file: "):
        read_trajectories([json.dumps(line("first", [1, 2, 3, 4])), told])


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6), st.lists(st.integers(0, 5), min_size=2)), min_size=1))
def test_every_sampled_id_is_in_a_sample_and_each_sample_is_the_context_as_it_was(
    answers: list[tuple[int, int, list[int]]],
) -> None:
    contexts: list[list[int]] = []
    told: list[dict[str, Any]] = []
    for number, (before, cut, ids) in enumerate(answers):
        parent = contexts[before % len(contexts)] if contexts and before < 25 else []
        kept = max(len(parent) - cut, 0)
        name = str(before % len(contexts)) if parent else None
        contexts.append([*parent[:kept], *ids])
        told.append(line(str(number), ids, name, kept))
    found = read_trajectories(map(json.dumps, told))

    covered: set[str] = set()
    for sample in found.samples():
        assert sample.ids == contexts[int(sample.answer.answer_id)]
        assert [*sample.prompt_ids, *sample.completion_ids] == [*sample.ids, END]
        for name, context in enumerate(contexts):
            if sample.ids[: len(context)] == context:
                covered.add(str(name))
    assert covered == set(found.answers)


def test_reading_needs_the_standard_library_alone() -> None:
    code = "import sys, leaf_sdk.trajectories; print(*(n.partition('.')[0] for n in sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert {"tokenizers", "msgpack", "pydantic"}.isdisjoint(out.split())
