"""Which answers that clients send back are those that they were given, and what two histories have in common."""

from typing import Any

import pytest

from gateway.context.memory import Call, History, RequestFigures, Shown, root_digest
from gateway.context.memory.history import ordered_results

SCHEMA = {
    "properties": {"days": {"default": 1}, "deep": {"default": False}, "at": {"properties": {"x": {"default": 0}}}}
}


def echoed(ours: str, theirs: str, *, same_id: bool = False) -> bool:
    given = Shown("", calls=(Call("c", "paint", ours),))
    return given.is_echoed_by(Shown("", calls=(Call("c" if same_id else "d", "paint", theirs),)), {"paint": SCHEMA})


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ('{"of": 20.0}', '{"of":20}'),
        ('{"a": 1, "b": [1, {"c": 2}]}', '{"b":[1.0,{"c":2}],"a":1}'),
        ("{}", ""),
        ("not JSON", "not JSON"),
    ],
)
@pytest.mark.parametrize("same_id", [True, False])
def test_arguments_that_mean_the_same_are_the_same(ours: str, theirs: str, same_id: bool) -> None:
    assert echoed(ours, theirs, same_id=same_id)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ('{"of": 1}', '{"of": true}'),
        ('{"of": true}', '{"of": 1}'),
        ('{"of": [1, 2, 3]}', '{"of": [1, 9, 3]}'),
        ('{"of": [1, 2]}', '{"of": [1, 2, 3]}'),
        ('{"of": {"a": 1, "b": 2}}', '{"of": {"a": 1, "b": 3}}'),
        ('{"of": {"a": 1}}', '{"of": {"b": 1}}'),
        ('{"of": "1"}', '{"of": 1}'),
        ("not JSON", "no JSON"),
    ],
)
@pytest.mark.parametrize("same_id", [True, False])
def test_arguments_of_which_one_value_differs_are_others(ours: str, theirs: str, same_id: bool) -> None:
    assert not echoed(ours, theirs, same_id=same_id)


@pytest.mark.parametrize("added", ['"days": 1', '"deep": false', '"at": {"x": 0}, "days": 1.0'])
def test_defaults_may_be_added_to_a_call_with_its_own_id_alone(added: str) -> None:
    ours = '{"at": {}}' if "at" in added else "{}"

    assert echoed(ours, f"{{{added}}}", same_id=True)
    assert not echoed(ours, f"{{{added}}}")


@pytest.mark.parametrize("added", ['"days": 2', '"deep": 0', '"days": true', '"other": 1'])
def test_what_is_added_and_is_no_default_makes_another_call(added: str) -> None:
    assert not echoed("{}", f"{{{added}}}", same_id=True)


def test_argument_that_was_left_out_makes_another_call() -> None:
    assert not echoed('{"of": 1, "days": 1}', '{"days": 1}', same_id=True)


def digest(*messages: dict[str, Any]) -> bytes:
    return History(root_digest(b"key", "alice"), messages).with_answer(Shown("yes"))


def test_name_of_who_speaks_is_part_of_the_history() -> None:
    asked = {"role": "user", "content": "What is it?"}

    assert digest({**asked, "name": "ann"}) != digest(asked)
    assert digest({**asked, "name": "ann"}) != digest({**asked, "name": "bob"})
    assert digest({**asked, "name": ""}) == digest(asked)


def test_texts_do_not_move_from_one_message_into_the_next() -> None:
    assert digest({"role": "user", "content": "ab"}, {"role": "user", "content": "c"}) != digest(
        {"role": "user", "content": "a"}, {"role": "user", "content": "bc"}
    )


def test_results_come_in_the_order_of_their_calls_and_unknown_ones_last() -> None:
    calls = [{"id": name} for name in ("a", "b")]
    results = [{"role": "tool", "tool_call_id": name} for name in ("x", "b", "a")]
    messages = [{"role": "assistant", "tool_calls": calls}, *results, {"role": "user"}, results[1]]

    ordered = ordered_results(messages, lambda message: message)
    assert ordered == [messages[0], results[2], results[1], results[0], {"role": "user"}, results[1]]


@pytest.mark.parametrize(("recomputed", "loss"), [(1, "client_changed"), (0, None)])
def test_tokens_are_lost_only_where_some_were_recomputed(recomputed: int, loss: str | None) -> None:
    assert RequestFigures(9, 3, 5, 5, recomputed, "client_changed").loss == loss
