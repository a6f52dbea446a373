"""Ids of calls: each is unique, and shows which calls one turn of the model made."""

import re

from gateway.toolcalls.stream.output_events import is_of_one_turn, new_call_ids


def test_ids_of_one_turn_differ_in_their_number_alone() -> None:
    new_id = new_call_ids()
    first, second = new_id(), new_id()

    assert re.fullmatch(r"call_[0-9a-f]{24}", first)
    assert (first[:-4], first[-4:], second) == (second[:-4], "0000", f"{first[:-4]}0001")


def test_calls_are_of_one_turn_where_their_ids_begin_alike() -> None:
    new_id = new_call_ids()
    first, second = new_id(), new_id()

    assert is_of_one_turn(first, second)
    assert not is_of_one_turn(first, new_call_ids()())
    # Ids of others, and of models, say nothing.
    assert not is_of_one_turn(first, f"{second}0")
    assert not is_of_one_turn(f"{first}0", f"{second}0")
    assert not is_of_one_turn(first.replace("call_", "tool_"), second.replace("call_", "tool_"))
