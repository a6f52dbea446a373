"""The message's shape: OpenAI's, by attribute and by key, and the shapes in which tools may come."""

import json

import pytest

from gateway.errors import RequestInvalid
from gateway.toolcalls.parser import AssistantMessage, parse
from gateway.toolcalls.schema.spec import ToolSpec, read_tools
from tests.gateway.toolcalls.fakes import TIME, WEATHER, Numbered

TEXT = '<think>hm</think>Hi <tool_call>{"name": "get_time", "arguments": {"tz": "CET"}}</tool_call>'
OPENAI = {
    "role": "assistant",
    "content": "Hi ",
    "reasoning_content": "hm",
    "tool_calls": [
        {"id": "call_0", "type": "function", "function": {"name": "get_time", "arguments": '{"tz": "CET"}'}}
    ],
}


def told(text: str = TEXT) -> AssistantMessage:
    return parse("hermes", text, None, new_id=Numbered())


def test_a_message_is_openai_s_by_attribute() -> None:
    message = told()
    (call,) = message.tool_calls
    assert (message.role, message.content, message.reasoning_content) == ("assistant", "Hi ", "hm")
    assert (call.id, call.type, call.function.name, call.function.arguments) == (
        "call_0",
        "function",
        "get_time",
        '{"tz": "CET"}',
    )
    assert (call.name, call.arguments) == (call.function.name, call.function.arguments)


def test_a_message_is_openai_s_by_key() -> None:
    message = told()
    assert dict(message) == message.to_openai() == OPENAI
    assert message.get("content") == "Hi "
    (call,) = message.tool_calls
    assert call["function"]["name"] == call.function["name"] == "get_time"
    assert dict(call) == OPENAI["tool_calls"][0]
    assert list(call) == ["id", "type", "function"]
    assert len(call.function) == 2
    assert json.loads(json.dumps(message.to_openai())) == OPENAI


def test_a_key_without_a_value_is_left_out_and_content_never_is() -> None:
    assert dict(told("")) == {"role": "assistant", "content": None}
    assert "tool_calls" not in told("Hi")
    with pytest.raises(KeyError):
        told("Hi")["tool_calls"]


def test_diagnostics_are_no_part_of_the_json_and_count_in_comparisons() -> None:
    cut = told('<tool_call>{"name": "f"')
    assert cut.diagnostics
    assert "diagnostics" not in cut
    assert cut != AssistantMessage(cut.content, cut.reasoning_content, cut.tool_calls, ())


def test_tools_are_read_from_openai_s_shape_from_mcp_s_and_from_ours() -> None:
    schema = dict(WEATHER.parameters)
    function = {"name": "get_weather", "description": "Weather of a city.", "parameters": schema}
    mcp = {"name": "get_weather", "description": "Weather of a city.", "inputSchema": schema}
    assert read_tools([{"type": "function", "function": function}, function, mcp, WEATHER]) == (WEATHER,) * 4
    assert read_tools([{"name": "f", "parameters": None}]) == (ToolSpec("f", "", {"type": "object"}),)
    assert read_tools(iter([TIME])) == (TIME,)


@pytest.mark.parametrize("tool", [{}, {"name": ""}, {"function": {"name": 3}}, "get_time", None, {"function": "f"}])
def test_a_tool_without_a_name_is_refused_with_its_place(tool: object) -> None:
    with pytest.raises(RequestInvalid, match=r"tools\[1\] has no name; expected") as caught:
        read_tools([TIME, tool])  # pyright: ignore[reportArgumentType]
    assert caught.value.param == "tools[1]"
