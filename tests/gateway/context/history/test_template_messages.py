"""Messages of a client become messages for a template, or are refused by their place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.context.history.client_messages import checked_messages
from gateway.context.history.template_messages import check_size, tool_definitions, with_preamble
from gateway.errors import ContextExceeded, RequestInvalid
from gateway.toolcalls.formats.registry import format_named
from gateway.toolcalls.schema.spec import ToolSpec

GENERIC = format_named("generic")
WEATHER = ToolSpec("get_weather", "Weather of a city", {"type": "object", "properties": {"city": {"type": "string"}}})
CALL = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
USER = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
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
