"""What clients send is read in every form, refused by its place, or left out and named; pieces become one answer."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.context.history.client_messages import (
    MOST_MESSAGES,
    RETOLD,
    EchoedAnswer,
    LeftOut,
    arguments_text,
    checked_call,
    checked_message,
    checked_messages,
    count_calls,
    found_tools,
    free_form_arguments,
    in_todays_form,
    parts_of,
    plain_text,
    text_of_content,
    text_of_result,
    text_of_result_part,
    unread,
    unread_fields,
)
from gateway.context.memory import FOUND_TOOLS, SUMMARY
from gateway.errors import RequestInvalid
from tests.cases import each_of

USER = {"role": "user", "content": "hi"}
LOOK = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
PICTURE = {"type": "image_url", "image_url": {"url": "https://example.org/x.png"}}
LONG = "x" * 150
SHORT = f"{'x' * 100}… (50 more characters)"


def refused(message: object) -> RequestInvalid:
    with pytest.raises(RequestInvalid) as error:
        checked_messages([USER, message])
    return error.value


def read(message: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The message as it is read, and what of it is left out."""
    left_out = LeftOut()
    (found,) = checked_messages([message], left_out)
    return found, left_out.names


# What is left out.


def test_fields_that_ask_for_nothing_are_not_named() -> None:
    fields = {"a": 1, "b": None, "c": False, "d": [], "read": 1, LONG: "x"}

    assert list(unread_fields(fields, {"read"})) == ["a", SHORT]


def test_what_is_left_out_is_named_once_in_order_behind_its_place() -> None:
    left_out = LeftOut("messages: ")
    for kind in ("b", "a", "b", 7, LONG, "two\nlines"):
        left_out.add(kind)

    assert left_out.names == (
        "messages: b",
        "messages: a",
        "messages: 7",
        f"messages: {SHORT}",
        r"messages: two\nlines",
    )


def test_of_what_is_left_out_the_first_32_are_named() -> None:
    left_out = LeftOut()
    for number in range(40):
        left_out.add(number)

    assert left_out.names == tuple(map(str, range(32)))


def test_fields_of_a_part_are_named_with_its_type() -> None:
    left_out = LeftOut()
    left_out.add_fields("text", {"type": "text", "annotations": [1]}, {"type"})
    left_out.add_fields("image", {"type": "image", "detail": ""}, {"type"})

    assert left_out.names == ("text.annotations",)


# Contents.


@each_of(
    ("role", "content", "text"),
    [
        ("user", "hi", "hi"),
        ("user", None, ""),
        ("user", [], ""),
        ("user", ["one", {"type": "text", "text": "two"}], "one\ntwo"),
        ("user", {"type": "text", "text": "one"}, "one"),
        ("user", {"text": "untyped"}, "untyped"),
        ("user", [{"type": "text", "text": None}], ""),
        ("user", [{"type": "text"}], None),
        ("user", [{}], None),
        ("user", 7, None),
        ("user", True, None),
        ("assistant", 7, "7"),
        ("assistant", 1.5, "1.5"),
        ("assistant", True, "true"),
        ("assistant", [{"type": "refusal", "refusal": "No."}, PICTURE, 7], "No."),
        ("assistant", [{"type": "text", "text": None}], ""),
        ("tool", 7, "7"),
        ("tool", {"a": "é"}, '{"a": "é"}'),
        ("tool", ["one", {"type": "text", "text": "two"}, 3, {"n": "é"}, None], 'one\ntwo\n3\n{"n": "é"}\nnull'),
        ("tool", [["é"]], '["é"]'),
        ("tool", None, ""),
        ("tool", "", ""),
    ],
)
def test_content_is_one_text_or_is_refused(role: str, content: Any, text: str | None) -> None:
    if text is None:
        with pytest.raises(RequestInvalid) as error:
            text_of_content(role, content, "here", LeftOut())
        assert error.value.param == "here"
        assert error.value.message.startswith("here ")
    else:
        assert text_of_content(role, content, "here", LeftOut()) == text


def test_parts_are_a_list_or_the_one_part() -> None:
    assert [*parts_of(None, "here"), *parts_of("", "here"), *parts_of({}, "here"), *parts_of([1, 2], "here")] == [
        *("", {}, 1, 2)
    ]
    with pytest.raises(RequestInvalid, match="here must be a string or a list of text parts") as error:
        parts_of(7, "here")
    assert error.value.param == "here"


@pytest.mark.parametrize("role", ["user", "system", "tool", "assistant"])
def test_fields_of_text_parts_that_are_not_read_are_named(role: str) -> None:
    part = {"type": "text", "text": "hi", "annotations": [1], "cache_control": {"type": "ephemeral"}}

    assert read({"role": role, "content": [part]}) == ({"role": role, "content": "hi"}, ("text.annotations",))


def test_fields_of_an_untyped_text_are_named_as_those_of_a_text() -> None:
    assert read({"role": "user", "content": [{"text": "hi", "annotations": [1]}]})[1] == ("text.annotations",)


def test_fields_of_a_part_whose_text_has_another_name_are_not_named() -> None:
    assert read({"role": "tool", "content": [{"type": "refusal", "refusal": "No.", "more": 1}]})[1] == ()


def test_part_without_text_has_a_stand_in_in_a_result_and_is_left_out_of_an_answer() -> None:
    assert read({"role": "tool", "content": [PICTURE, "seen"]}) == (
        {"role": "tool", "content": "[image, not fetched: this model reads text]\nseen"},
        ("image_url",),
    )
    assert read({"role": "assistant", "content": [PICTURE, "seen"]}) == (
        {"role": "assistant", "content": "seen"},
        ("image_url",),
    )


@each_of(
    ("part", "words"),
    [
        (
            PICTURE,
            "messages[1].content holds a part of type 'image_url': this model reads only text: send the image as text "
            "(a description, what stands in it), or let a tool read it",
        ),
        ({"type": "text", "text": 7}, "messages[1].content holds a text part whose 'text' is not a string"),
        ({"type": "text"}, "messages[1].content holds a text part whose 'text' is not a string"),
        ({"type": "note", "text": 7}, "messages[1].content holds a text part whose 'text' is not a string"),
        ({"type": 7}, "messages[1].content holds a part of type 7: expected a text part"),
        (None, "messages[1].content holds a part of type None: expected a text part"),
    ],
)
@each_of("role", ["user", "system"])
def test_part_of_a_question_that_has_no_text_is_refused_by_what_it_is(role: str, part: object, words: str) -> None:
    error = refused({"role": role, "content": [part]})

    assert (error.message, error.param) == (words, "messages[1].content")


def test_part_of_an_unknown_type_is_left_out_of_a_question() -> None:
    assert read({"role": "user", "content": ["hi", {"type": "mood", "mood": "glad"}]}) == (USER, ("mood",))


def test_long_type_is_not_said_whole() -> None:
    assert unread({"type": LONG}) == f"holds a part of type '{'x' * 99}… (52 more characters): expected a text part"


@each_of(
    ("part", "text"),
    [
        ({}, None),
        ({"text": "a"}, "a"),
        ({"text": 7}, None),
        ({"type": "text", "text": "a"}, "a"),
        ({"type": "text", "text": None}, ""),
        ({"type": "text"}, None),
        ({"type": "note", "text": "a"}, None),
        ({"type": "note", "text": None}, ""),
    ],
)
def test_part_may_lack_its_type_or_have_null_as_its_text(part: dict[str, Any], text: str | None) -> None:
    assert plain_text(part) == text


@given(st.recursive(st.none() | st.booleans() | st.integers(), lambda x: st.dictionaries(st.sampled_from("ab"), x)))
def test_result_that_is_no_text_is_its_json(value: Any) -> None:
    assert text_of_result(value, LeftOut()) == ("" if value is None else json.dumps(value))
    assert text_of_result_part(value, LeftOut()) == json.dumps(value)


def test_found_tools_are_those_that_the_parts_refer_to() -> None:
    reference = {"type": "tool_reference", "tool_name": "look"}
    parts = [reference, "text", {"type": "text", "tool_name": "no"}, {**reference, "tool_name": 7}, {**reference}]

    assert found_tools(parts) == ("look", "look")
    assert found_tools("look") == found_tools({"type": "tool_reference"}) == ()
    assert read({"role": "tool", "content": parts[:1]})[0][FOUND_TOOLS] == ("look",)
    assert FOUND_TOOLS not in read({"role": "tool", "content": ["look"]})[0]


# Messages.


def test_no_messages_are_refused() -> None:
    for nothing in (None, [], {"role": "user"}, "hi"):
        with pytest.raises(RequestInvalid, match="'messages' must be a list of at least one message") as error:
            checked_messages(nothing)
        assert error.value.param == "messages"


def test_messages_and_their_calls_are_counted_together() -> None:
    called = {"role": "assistant", "tool_calls": [LOOK] * 3}

    assert len(checked_messages([USER] * (MOST_MESSAGES - 4) + [called])) == MOST_MESSAGES - 3
    with pytest.raises(RequestInvalid, match="more than 10000 messages and calls in all") as error:
        checked_messages([USER] * (MOST_MESSAGES - 3) + [called])
    assert error.value.param == "messages"


@pytest.mark.parametrize(
    ("message", "count"),
    [(USER, 0), (None, 0), ({"tool_calls": None}, 0), ({"tool_calls": {"a": 1}}, 0), ({"tool_calls": [1, 2]}, 2)],
)
def test_calls_of_anything_are_counted(message: object, count: int) -> None:
    assert count_calls(message) == count


@each_of(
    ("message", "param", "words"),
    [
        ("hi", "messages[1]", "messages[1] must be an object with 'role' and 'content'"),
        (
            {"role": "wizard"},
            "messages[1].role",
            "messages[1].role is 'wizard'; expected one of system, developer, user, assistant, tool",
        ),
        (
            {"role": "user", "content": 7},
            "messages[1].content",
            "messages[1].content must be a string or a list of text ",
        ),
        ({**USER, "name": 1.5}, "messages[1].name", "messages[1].name must be a string"),
        ({**USER, "tool_call_id": [1]}, "messages[1].tool_call_id", "messages[1].tool_call_id must be a string"),
        ({**USER, "tool_calls": {"a": 1}}, "messages[1].tool_calls", "messages[1].tool_calls must be a list"),
        (
            {**USER, "tool_calls": [{"function": {}}]},
            "messages[1].tool_calls",
            "messages[1].tool_calls must hold objects with 'function': {'name': string, 'arguments': JSON text}",
        ),
        ({**USER, "tool_calls": [7]}, "messages[1].tool_calls", "messages[1].tool_calls must hold objects with "),
        (
            {**USER, "tool_calls": [{**LOOK, "id": []}]},
            "messages[1].tool_calls",
            "messages[1].tool_calls.id must be a ",
        ),
    ],
)
def test_refusal_names_the_place_and_what_was_expected(message: object, param: str, words: str) -> None:
    error = refused(message)

    assert error.param == param
    assert error.message.startswith(words)


def test_message_keeps_its_fields_and_those_that_are_not_read_are_named() -> None:
    message = {"role": "user", "content": "hi", "name": "ann", "mood": "glad", "empty": "", "cache_control": {"a": 1}}

    assert read(message) == (message, ("user.mood",))


def test_message_is_read_alone_too() -> None:
    assert checked_message({**USER, "mood": "glad"}, "here") == {**USER, "mood": "glad"}


def test_keys_that_the_gateway_sets_are_not_taken_from_clients() -> None:
    assert read({**USER, RETOLD: [USER], FOUND_TOOLS: ["look"], SUMMARY: "All."}) == (USER, ())


def test_numbers_as_names_and_ids_become_texts() -> None:
    message = {"role": "tool", "tool_call_id": 7, "name": 0, "content": "x"}

    assert read(message)[0] == {"role": "tool", "tool_call_id": "7", "name": "0", "content": "x"}


@pytest.mark.parametrize("nothing", [None, [], ""])
def test_calls_that_are_none_stay_as_they_are(nothing: object) -> None:
    assert read({**USER, "tool_calls": nothing})[0] == {**USER, "tool_calls": nothing}


# Calls.


@pytest.mark.parametrize(
    ("arguments", "text"),
    [('{"a": 1}', '{"a": 1}'), ("", "{}"), (" ", "{}"), (None, "{}"), ({"a": "é"}, '{"a": "é"}'), (0, "0"), ([], "[]")],
)
def test_arguments_are_a_text(arguments: object, text: str) -> None:
    assert arguments_text(arguments) == text


def test_input_of_a_free_form_tool_is_its_only_argument() -> None:
    assert free_form_arguments('é "x"') == '{"input": "é \\"x\\""}'


@pytest.mark.parametrize(
    ("call", "function"),
    [
        ({"function": {"name": "look", "arguments": "[1]"}}, {"name": "look", "arguments": "[1]"}),
        ({"custom": {"name": "look", "input": "a"}}, {"name": "look", "arguments": '{"input": "a"}'}),
        ({"name": "look", "arguments": {"a": 1}}, {"name": "look", "arguments": '{"a": 1}'}),
        ({"function": {"name": "look", "arguments": "[1]", "input": "a"}}, {"name": "look", "arguments": "[1]"}),
        ({"function": {"name": "look", "input": 7}}, {"name": "look", "arguments": "{}"}),
        ({"function": {"name": "look"}, "name": "other"}, {"name": "look", "arguments": "{}"}),
    ],
)
def test_call_is_read_in_every_shape(call: dict[str, Any], function: dict[str, str]) -> None:
    assert checked_call(call, "here") == {"type": "function", "function": function}
    assert checked_call({**call, "id": 7}, "here") == {"id": "7", "type": "function", "function": function}
    assert checked_call({**call, "id": ""}, "here") == {"id": "", "type": "function", "function": function}


def test_old_form_becomes_todays() -> None:
    called = {"role": "assistant", "content": None, "function_call": {"name": "look"}}
    result = {"role": "function", "name": "look", "content": "sun"}

    assert list(in_todays_form([result, called, result, called, "no message", result])) == [
        {**result, "role": "tool", "tool_call_id": None},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "function_call_1", "function": {"name": "look"}}]},
        {**result, "role": "tool", "tool_call_id": "function_call_1"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "function_call_3", "function": {"name": "look"}}]},
        "no message",
        {**result, "role": "tool", "tool_call_id": "function_call_3"},
    ]


def test_old_form_is_read_in_answers_alone_and_todays_goes_before_it() -> None:
    both = {"role": "assistant", "tool_calls": [LOOK], "function_call": {"name": "other"}}
    asked = {**USER, "function_call": {"name": "other"}}
    none = {"role": "assistant", "content": "x", "function_call": None}

    assert list(in_todays_form([both, asked, none])) == [{"role": "assistant", "tool_calls": [LOOK]}, asked, none]


# An answer in pieces.


def called(call_id: str, content: str = "", **more: Any) -> dict[str, Any]:
    call = {"id": call_id, "type": "function", "function": {"name": "look", "arguments": "{}"}}
    return {"role": "assistant", "content": content, **more, "tool_calls": [call]}


def test_pieces_of_an_answer_are_one_message() -> None:
    answer = EchoedAnswer("here")
    assert answer.end() == {"role": "assistant", "content": ""}
    for field, text in (
        ("reasoning_content", "Hm"),
        ("content", "It "),
        ("reasoning_content", "."),
        ("content", "is."),
    ):
        answer.say(field, text)  # pyright: ignore[reportArgumentType]
    assert answer.last_call == ""
    answer.call("c1", "look", "{}")
    answer.call("c2", "look", "{}")

    assert answer.last_call == "c2"
    assert answer.end() == {
        **called("c1", "It is.", reasoning_content="Hm."),
        "tool_calls": [*called("c1")["tool_calls"], *called("c2")["tool_calls"]],
    }


def test_calls_that_the_gateway_ran_are_kept_beside_the_answer_with_what_stood_between_them() -> None:
    answer = EchoedAnswer("here")
    answer.say("reasoning_content", "Hm.")
    answer.say("content", "First.")
    answer.ran("c1", "look", "{}", "sun")
    answer.ran("c2", "look", "{}", "rain", found=("dig",))
    answer.say("content", "Done.")
    answer.call("c3", "look", "{}")

    message = answer.end()
    assert message["content"] == "First.Done."
    assert message["tool_calls"] == called("c3")["tool_calls"]
    assert message[RETOLD] == [
        called("c1", "First.", reasoning_content="Hm."),
        {"role": "tool", "tool_call_id": "c1", "content": "sun"},
        called("c2"),
        {"role": "tool", "tool_call_id": "c2", "content": "rain", FOUND_TOOLS: ("dig",)},
        called("c3", "Done."),
    ]


@pytest.mark.parametrize(("says", "calls"), [(False, False), (True, False), (False, True)])
def test_what_follows_the_last_call_that_the_gateway_ran_is_a_message_if_there_is_anything(
    says: bool, calls: bool
) -> None:
    answer = EchoedAnswer("here")
    answer.ran("c1", "look", "{}", "sun")
    if says:
        answer.say("content", "Done.")
    if calls:
        answer.call("c2", "look", "{}")

    last = answer.end()[RETOLD][2:]
    assert last == ([called("c2")] if calls else [{"role": "assistant", "content": "Done."}] if says else [])
