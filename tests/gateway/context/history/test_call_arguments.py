"""Arguments of calls that clients send back: whatever they are, templates get an object, and the text is kept."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.context.history.client_messages import RETOLD, checked_messages
from gateway.context.history.template_messages import ARGUMENT_MARKS, with_readable_calls
from gateway.engine.rendering.foreign_text import ForeignText, MarkerGuard, Signs, restored
from gateway.errors import RequestInvalid
from tests.cases import each_of

USER = {"role": "user", "content": "hi"}
UNREADABLE = [
    *(
        '{"path": "sea.txt", "content',
        "{",
        '{"a": "l1\nl2"}',
        '{"dir": "C:\\dir"}',
        "{'a': 1}",
        '{"a": None}',
        "not JSON",
    ),
    *('{"a": 1,}', '{"a": NaN}', '{"a": -Infinity}', "[" * 201 + "1" + "]" * 201, '{"a": ' * 201 + "1" + "}" * 201),
    "[" * 100_000,
]
READABLE = [
    *("{}", "", " ", "null", '{"a": 1e999}', '{"a": ' + "9" * 5000 + "}", "[1]", '"x"', "7", '{"a": "\\ud800"}'),
    *("[" * 200 + "1" + "]" * 200, '{"a": ' * 200 + "1" + "}" * 200),
]


def called(arguments: Any, name: str = "write") -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def arguments_of(message: Any) -> str:
    return message["tool_calls"][0]["function"]["arguments"]


def rendered(messages: Any) -> Any:
    """The arguments as the engine gets them."""
    shown = ForeignText(Signs(MarkerGuard(["<|im_start|>"]))).messages(messages, marked=True)
    return json.loads(arguments_of(shown[1]))


@each_of("arguments", UNREADABLE)
def test_arguments_that_are_no_json_become_an_object_that_keeps_their_text(arguments: str) -> None:
    messages, (told,) = with_readable_calls(checked_messages([USER, called(arguments), USER]))

    assert rendered(messages) == {"input": arguments}
    assert told.kind == "history"
    assert "'write'" in told.message
    assert "not JSON" in told.message


@each_of("arguments", READABLE)
def test_arguments_that_are_json_stay_for_the_memory_to_recognise(arguments: str) -> None:
    checked = checked_messages([USER, called(arguments), USER])
    messages, told = with_readable_calls(checked)

    assert (messages, told) == (checked, ())
    assert arguments_of(messages[1]) == (arguments if arguments.strip() else "{}")


@each_of(
    ("arguments", "shown"),
    [
        ({"city": "Paris", "n": 1.5}, {"city": "Paris", "n": 1.5}),
        (None, {}),
        ("null", {}),
        ([1, 2], {"input": [1, 2]}),
        ("[1, 2]", {"input": [1, 2]}),
        ('"x"', {"input": "x"}),
        (7, {"input": 7}),
        (True, {"input": True}),
        ("", {}),
    ],
)
def test_template_always_gets_an_object(arguments: Any, shown: Any) -> None:
    messages, _ = with_readable_calls(checked_messages([USER, called(arguments), USER]))

    found = rendered(messages)
    # A fraction has a stand-in until the engine has printed it.
    assert found == shown or (found.keys() == shown.keys() and found["city"] == "Paris")


@given(
    st.recursive(
        st.none() | st.booleans() | st.text() | st.integers(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_any_value_is_taken_as_arguments(arguments: Any) -> None:
    messages, _ = with_readable_calls(checked_messages([USER, called(arguments), USER]))

    assert isinstance(rendered(messages), dict)


def test_many_calls_are_one_diagnostic_that_names_the_first_three() -> None:
    history = [USER, *[called("{", f"tool{n}\n") for n in range(5)]]
    _, (told,) = with_readable_calls(checked_messages(history))

    assert "5 call(s)" in told.message
    assert r"tool2\n" in told.message
    assert "tool3" not in told.message
    assert told.message.isprintable()


def test_calls_that_the_gateway_ran_are_made_readable_too_and_counted_once() -> None:
    call = called("{")
    messages, (told,) = with_readable_calls([USER, {**call, RETOLD: [called("{"), call]}])

    assert all(arguments_of(each) == '{"input": "{"}' for each in (messages[1], *messages[1][RETOLD]))
    assert "1 call(s)" in told.message


def test_any_number_of_numbers_comes_back_as_it_was_written() -> None:
    arguments = json.dumps({"a": [n + 0.5 for n in range(300_000)]})
    foreign = ForeignText(Signs(MarkerGuard(["<|im_start|>"])))
    shown = foreign.messages([{"role": "user", "content": "hi"}, called(arguments)], marked=True)

    assert restored(arguments_of(shown[1]), foreign).replace(foreign.separator, "") == arguments


@pytest.mark.parametrize("calls", [1, 2])
def test_arguments_of_too_many_values_are_refused_before_they_are_read(calls: int) -> None:
    some = called('{"a": [' + "[]," * (ARGUMENT_MARKS // calls) + "1]}")
    with pytest.raises(RequestInvalid, match="the arguments of all calls"):
        with_readable_calls(checked_messages([USER, *[some] * calls, USER]))


def test_texts_of_arguments_are_counted_before_they_are_cut_out() -> None:
    some = called('{"a": "' + '","' * 2 * ARGUMENT_MARKS + '"}')
    with pytest.raises(RequestInvalid, match="the arguments of all calls"):
        with_readable_calls(checked_messages([USER, some, USER]))
    # No JSON, since a comma would be between them; their number alone says that it is too much.
    some = called('{"a": ' + '","""' * (ARGUMENT_MARKS + 2) + "}")
    with pytest.raises(RequestInvalid, match="the arguments of all calls"):
        with_readable_calls(checked_messages([USER, some, USER]))


def test_marks_in_the_texts_of_arguments_are_not_counted() -> None:
    some = called(json.dumps({"a": '{[,:"\\' * (ARGUMENT_MARKS // 8)}))
    messages = checked_messages([USER, *[some] * 3, USER])
    assert with_readable_calls(messages) == (messages, ())
