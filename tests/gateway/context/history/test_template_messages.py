"""Messages of a client become messages for a template, or are refused by their place."""

import re
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.context.history.client_messages import checked_messages
from gateway.context.history.template_messages import (
    CallIds,
    begun_text,
    check_length,
    check_size,
    merged,
    tool_definitions,
    with_model_ids,
    with_preamble,
    with_readable_calls,
    with_tool_names,
    without_volatile,
)
from gateway.context.memory import FOUND_TOOLS, RETOLD, Lived, LivedTurn, Turn
from gateway.errors import ContextExceeded, RequestInvalid
from gateway.toolcalls.formats.registry import format_named
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallClosed
from tests.cases import each_of

GENERIC = format_named("generic")
WEATHER = ToolSpec("get_weather", "Weather of a city", {"type": "object", "properties": {"city": {"type": "string"}}})
CALL = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
USER = {"role": "user", "content": "hi"}


@each_of(
    ("messages", "param"),
    [
        (None, "messages"),
        ([], "messages"),
        ({}, "messages"),
        (["hi"], "messages[0]"),
        ([USER, {"content": "x"}], "messages[1].role"),
        ([{"role": "wizard", "content": "x"}], "messages[0].role"),
        ([{"role": ["user"], "content": "x"}], "messages[0].role"),
        ([{"role": "user", "content": 7}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "messages[0].content"),
        ([{"role": "user", "content": [7]}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "text", "text": {"a": 1}}]}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content"),
        ([USER, {"role": "assistant", "tool_calls": 5}], "messages[1].tool_calls"),
        ([USER, {"role": "assistant", "tool_calls": [{}]}], "messages[1].tool_calls"),
        ([USER, {"role": "assistant", "tool_calls": [{"function": {"name": 1}}]}], "messages[1].tool_calls"),
    ],
)
def test_message_that_can_not_be_read_is_refused_by_its_place(messages, param):
    with pytest.raises(RequestInvalid) as refused:
        checked_messages(messages)

    assert refused.value.param == param
    assert param.partition(".")[0].partition("[")[0] in refused.value.message


@pytest.mark.parametrize("key", ["role", "type"])
def test_long_word_that_is_refused_is_not_said_whole(key):
    words = ["x" * 100] * 1000
    message = {"role": words} if key == "role" else {"role": "user", "content": [{"type": words}]}
    with pytest.raises(RequestInvalid) as refused:
        checked_messages([message])

    assert len(refused.value.message) < 400


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda x: (
            st.lists(x)
            | st.dictionaries(
                st.sampled_from(["role", "content", "tool_calls", "function", "name", "arguments", "type", "text"]), x
            )
        ),
    )
)
def test_any_json_is_messages_with_text_contents_or_is_refused(value):
    try:
        messages = checked_messages(value)
    except RequestInvalid:
        return
    assert all(isinstance(message["content"], str) for message in messages)


def test_text_parts_are_joined_and_a_developer_speaks_as_the_system():
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]

    assert checked_messages([{"role": "developer", "content": parts}]) == [{"role": "system", "content": "one \ntwo"}]


def test_absent_content_is_empty_text_where_calls_stand():
    (message,) = checked_messages([{"role": "assistant", "content": None, "tool_calls": [CALL]}])

    assert message == {"role": "assistant", "content": "", "tool_calls": [CALL]}


def test_messages_of_the_client_are_not_changed():
    message = {"role": "developer", "content": None}
    checked_messages([message])

    assert message == {"role": "developer", "content": None}


def test_preamble_is_a_system_message_of_its_own_when_there_is_none():
    first, second = with_preamble([USER], GENERIC, [WEATHER])

    assert first["role"] == "system"
    assert '"get_weather"' in first["content"]
    assert "<tool_call>" in first["content"]
    assert second == USER


def test_preamble_follows_the_clients_own_system_message():
    system, _ = with_preamble([{"role": "system", "content": "Be brief."}, USER], GENERIC, [WEATHER])

    assert system["content"].startswith("Be brief.\n\n")
    assert '"get_weather"' in system["content"]


def test_without_tools_there_is_no_preamble():
    assert with_preamble([USER], GENERIC, []) == [USER]


def test_earlier_call_becomes_the_text_that_the_model_would_have_written():
    spoken = {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL]}
    (message,) = with_preamble([spoken], GENERIC, [])

    assert message == {
        "role": "assistant",
        "content": 'Let me see.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>',
    }


def test_earlier_call_stays_one_where_the_template_writes_calls_but_shows_no_tools():
    spoken = {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL]}
    system, message = with_preamble([spoken], GENERIC, [WEATHER], calls_as_text=False)

    assert '"get_weather"' in system["content"]
    assert message == spoken


def test_message_without_calls_stays_whole_where_calls_are_written_as_text():
    thought = {"role": "assistant", "content": "So.", "reasoning_content": "Hm."}
    told = {"role": "tool", "content": "7 degrees", "tool_call_id": "c1", "name": "get_weather"}

    assert with_preamble([thought, told], GENERIC, []) == [thought, told]


def test_definitions_have_the_shape_that_templates_expect():
    assert tool_definitions([WEATHER]) == [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": "Weather of a city",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
            },
        }
    ]


def test_messages_have_at_most_40_characters_for_each_token_of_the_context() -> None:
    check_size([{"role": "user", "content": "x" * 300}, {"role": "user", "content": "x" * 100}], 10)
    with pytest.raises(ContextExceeded, match="401 characters") as refused:
        check_size([{"role": "user", "content": "x" * 401}], 10)

    assert (refused.value.tokens, refused.value.context) == (100, 10)


@pytest.mark.parametrize("call_id", [{"a": 1}, 7.5, ["c1"]])
def test_id_of_an_earlier_call_is_a_string(call_id: object) -> None:
    with pytest.raises(RequestInvalid, match=r"id must be a string") as refused:
        checked_messages([USER, {"role": "assistant", "content": "", "tool_calls": [{**CALL, "id": call_id}]}])

    assert refused.value.param == "messages[1].tool_calls"


# The size of messages.


def test_arguments_and_messages_that_stand_for_one_count_towards_the_size() -> None:
    called = {
        "role": "assistant",
        "content": None,
        "tool_calls": [CALL, {"function": {"name": "x", "arguments": None}}],
    }
    told = {"role": "assistant", "content": "x" * 1000, RETOLD: [called, {"role": "tool", "content": "y" * 62}]}

    check_size([called, {"role": "user", "content": "x" * 63}], 2)
    check_size([told, {"role": "user", "content": "x"}], 2)
    for messages in ([called, {"role": "user", "content": "x" * 64}], [told, USER]):
        with pytest.raises(
            ContextExceeded, match="messages: 81 characters are too many; the engine's context holds 2 "
        ):
            check_size(messages, 2)


def test_text_that_is_too_long_is_named_with_an_estimate_of_its_tokens() -> None:
    check_length(80, 2, "prompt")
    with pytest.raises(
        ContextExceeded, match="prompt: 87 characters are too many; the engine's context holds 2 "
    ) as no:
        check_length(87, 2, "prompt")

    assert (no.value.tokens, no.value.context, no.value.param) == (21, 2, "prompt")


# A turn that the client begins.


@pytest.mark.parametrize(
    "last",
    [
        USER,
        {"role": "assistant", "content": ""},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": "It is", "tool_calls": [CALL]},
    ],
)
def test_only_an_answer_with_text_and_without_calls_is_continued(last: dict[str, Any]) -> None:
    begun = {"role": "assistant", "content": "It is"}
    assert begun_text([USER, begun]) == "It is"
    for messages in ([USER, last], [begun]):
        with pytest.raises(RequestInvalid, match="the last of several messages must be the assistant's") as refused:
            begun_text(messages)
        assert refused.value.param == "continue_final_message"


# Words that change from session to session.


def test_volatile_words_are_cut_out_of_system_messages_and_those_with_nothing_else_are_dropped() -> None:
    messages = [
        {"role": role, "content": text} for role in ("system", "user") for text in ("day 7: be kind", " day 7: ")
    ]

    assert without_volatile(messages, None) is messages
    assert without_volatile(messages, re.compile(r"day \d: ?")) == [
        {"role": "system", "content": "be kind"},
        *messages[2:],
    ]


def test_system_message_without_volatile_words_stays_even_if_it_is_empty() -> None:
    messages = [{"role": "system", "content": text} for text in ("", "be kind")]

    assert without_volatile(messages, re.compile(r"day \d")) == messages


# Other names of tools.


def test_tools_get_other_names_in_calls_and_results_and_nothing_else_does() -> None:
    odd = {"id": "c2", "function": {"name": None, "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "hi", "name": "get_weather"},
        {"role": "assistant", "content": "", "tool_calls": [CALL, odd, {"function": {"name": "other"}}]},
        {"role": "tool", "content": "sun", "name": "get_weather"},
        {"role": "tool", "content": "sun", "name": "other"},
        {"role": "tool", "content": "sun"},
    ]

    asked, called, *results = with_tool_names(messages, {"get_weather": "rain", "other": "wind"})

    assert asked == messages[0]
    assert [call["function"].get("name") for call in called["tool_calls"]] == ["rain", None, "wind"]
    assert called["tool_calls"][0] == {**CALL, "function": {**CALL["function"], "name": "rain"}}
    assert [result.get("name") for result in results] == ["rain", "wind", None]
    assert with_tool_names(messages, {"unknown": "x"}) == messages


# Ids of calls.


def test_each_call_has_one_id_of_the_gateways_own() -> None:
    ids = CallIds()
    made = ids.make()
    first = ids.ours("functions.now:0")

    assert len({made, first, ids.make()}) == 3
    assert ids.ours("functions.now:0") == first
    # The gateway's own are not renamed.
    assert ids.ours(made) == made
    assert ids.ours(first) == first
    assert re.fullmatch("call_[0-9a-f]{24}", first)


def test_ids_are_restored_from_all_turns_and_only_where_the_model_wrote_others() -> None:
    def lived(call_id: str, model_id: str) -> Turn:
        turn = LivedTurn((CallClosed(0, call_id, "now", "{}", ()),), model_ids=(model_id,))
        return Turn({"role": "assistant"}, Lived({"role": "assistant", "content": ""}, array("I"), turn))

    result = Turn({"role": "tool"}, Lived({"role": "tool"}, array("I")))
    turns = [Turn(USER), lived("c1", "now:1"), result, lived("c2", "c2"), lived("c3", "now:3")]
    messages = [{"role": "tool", "tool_call_id": f"c{number}", "content": ""} for number in range(1, 5)]

    found = with_model_ids(messages, turns)

    assert [message["tool_call_id"] for message in found] == ["now:1", "c2", "now:3", "c4"]
    assert messages[0]["tool_call_id"] == "c1"


# Calls that templates can read.


def unreadable(name: str, arguments: Any = "{") -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c", "function": {"name": name, "arguments": arguments}}],
    }


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("a", "1 call(s) in the history ('a')"),
        ("aab", "3 call(s) in the history ('a', 'b')"),
        ("abc", "3 call(s) in the history ('a', 'b', 'c')"),
        ("abcd", "4 call(s) in the history ('a', 'b', 'c', ...)"),
    ],
)
def test_diagnostic_counts_calls_and_names_three(names: str, words: str) -> None:
    _, (told,) = with_readable_calls([unreadable(name) for name in names])

    assert told.message == (
        f'messages: the arguments of {words} are not JSON; the model reads them as {{"input": "<their text>"}}'
    )


def test_long_name_of_an_unreadable_call_is_cut() -> None:
    _, (told,) = with_readable_calls([unreadable("x" * 100)])

    assert f"('{'x' * 63}… (38 more characters))" in told.message


def test_readable_messages_are_the_same_and_of_others_only_the_arguments_change() -> None:
    messages = [USER, unreadable("a", "é"), unreadable("b", "{}"), unreadable("c", None)]

    changed, _ = with_readable_calls(messages)

    assert changed[0] is USER
    assert changed[1] == unreadable("a", '{"input": "é"}')
    assert list(changed[2:]) == messages[2:]
    assert with_readable_calls(messages[2:]) == (messages[2:], ())
    assert messages[1] == unreadable("a", "é")


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_words_that_are_no_json_numbers_make_arguments_unreadable(word: str) -> None:
    (message,), _ = with_readable_calls([unreadable("a", word)])

    assert message == unreadable("a", f'{{"input": "{word}"}}')


@pytest.mark.parametrize(("depth", "readable"), [(200, True), (201, False)])
@pytest.mark.parametrize(("opens", "closes"), [("[", "]"), ('{"a":', "}"), ('[0, {"a":', "}]")])
def test_arguments_have_at_most_200_levels(opens: str, closes: str, depth: int, readable: bool) -> None:
    levels = opens.count("[") + opens.count("{")
    rest = depth % levels
    text = "[" * rest + opens * (depth // levels) + "1" + closes * (depth // levels) + "]" * rest

    assert (with_readable_calls([unreadable("a", text)])[1] == ()) is readable


# Late system messages, and calls as text.


def test_late_system_message_brings_the_tools_that_it_found() -> None:
    late = {"role": "system", "content": "later", FOUND_TOOLS: ["b"]}
    asked = {"role": "user", "content": "", FOUND_TOOLS: ["a"]}

    assert merged([asked, late]) == [{"role": "user", "content": "later", FOUND_TOOLS: ["a", "b"]}]
    assert merged([USER, {"role": "system", "content": "later"}]) == [{"role": "user", "content": "hi\n\nlater"}]
    assert merged([{"role": "assistant", "content": "yes"}, late]) == [
        {"role": "assistant", "content": "yes"},
        {**late, "role": "user"},
    ]
    assert late["role"] == "system"


def test_calls_without_arguments_or_words_become_text() -> None:
    call = {"function": {"name": "get_weather", "arguments": ""}}
    (message,) = with_preamble([{"role": "assistant", "content": None, "tool_calls": [call, CALL]}], GENERIC, [])

    assert message["content"] == (
        '<tool_call>\n{"name": "get_weather", "arguments": {}}\n</tool_call>\n'
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
    )


def test_preamble_is_put_before_what_is_no_system_message_and_the_messages_follow() -> None:
    late = {"role": "system", "content": "late"}

    alone = with_preamble([], GENERIC, [WEATHER])
    assert [message["role"] for message in alone] == ["system"]
    assert with_preamble([USER, late], GENERIC, [WEATHER]) == [*alone, USER, late]
    (first, *rest) = with_preamble([late, USER, late], GENERIC, [WEATHER])
    assert first == {"role": "system", "content": f"late\n\n{alone[0]['content']}"}
    assert rest == [USER, late]
