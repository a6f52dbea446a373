"""One definition in every shape in which clients send it: each API reads the same tool."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from gateway.errors import RequestInvalid
from gateway.serve.generation.tools_and_formats import ClientTool, input_of, read_client_tool
from gateway.serve.messages.message_request import SortedTools
from gateway.serve.openai.chat import ChatTools
from gateway.serve.responses.response_tools import read_tools
from gateway.toolcalls.formats.format import call_grammar
from gateway.toolcalls.formats.registry import format_named
from gateway.toolcalls.schema.spec import ToolSpec
from tests.cases import each_of

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
BARE = {"name": "look", "description": "Looks.", "parameters": SCHEMA}
LOOK = ToolSpec("look", "Looks.", SCHEMA)
FUNCTIONS: dict[str, dict[str, Any]] = {
    "chat": {"type": "function", "function": BARE},
    "chat, strict": {"type": "function", "function": {**BARE, "strict": True}},
    "chat, without type": {"function": BARE},
    "chat, type inside too": {"type": "function", "function": {**BARE, "type": "function"}},
    "chat, Anthropic's schema": {
        "type": "function",
        "function": {"name": "look", "description": "Looks.", "input_schema": SCHEMA},
    },
    "responses": {"type": "function", **BARE, "strict": False},
    "old functions": BARE,
    "anthropic": {"name": "look", "description": "Looks.", "input_schema": SCHEMA},
    "anthropic, custom": {"type": "custom", "name": "look", "description": "Looks.", "input_schema": SCHEMA},
    "anthropic, cached": {**BARE, "input_schema": SCHEMA, "cache_control": {"type": "ephemeral"}},
    "mcp": {"name": "look", "title": "Look", "description": "Looks.", "inputSchema": SCHEMA, "annotations": {}},
    "nulls": {"type": "function", "name": "look", "description": "Looks.", "parameters": SCHEMA, "function": None},
}
GRAMMAR = {"syntax": "regex", "definition": "[a-z]+ [0-9]{1,3}"}
FREE_FORM: dict[str, dict[str, Any]] = {
    "chat": {"type": "custom", "custom": {"name": "patch", "format": {"type": "grammar", "grammar": GRAMMAR}}},
    "chat, without type": {"custom": {"name": "patch", "format": {"type": "grammar", "grammar": GRAMMAR}}},
    "responses": {"type": "custom", "name": "patch", "format": {"type": "grammar", **GRAMMAR}},
}


@each_of("tool", FUNCTIONS.values())
def test_function_is_the_same_tool_in_every_shape_and_api(tool: dict[str, Any]) -> None:
    read_tool = read_client_tool(tool, "tools[0]")
    assert read_tool is not None
    assert replace(read_tool, unused=(), values=0) == ClientTool("function", LOOK)
    assert ChatTools([tool], "tools").specs == [LOOK]
    assert SortedTools([tool]).client == [LOOK]
    read = read_tools([tool], (), frozenset)
    assert read.specs == [LOOK]
    assert read.shown[0] | {"type": "function", **BARE} == read.shown[0]


def parameters(schema: dict[str, Any]) -> Mapping[str, Any]:
    read = read_client_tool({"name": "set", "parameters": {"type": "object", **schema}}, "tools[0]")
    assert read is not None
    return read.spec.parameters


def test_definition_that_comes_again_is_read_once_and_no_other_is_taken_for_it() -> None:
    one: list[Callable[[], dict[str, Any]]] = [
        lambda: {"properties": {"a": {"const": 1}, "b": {}}},
        lambda: {"properties": {"a": {"const": 1.0}, "b": {}}},
        lambda: {"properties": {"a": {"const": True}, "b": {}}},
        lambda: {"properties": {"b": {}, "a": {"const": 1}}},
        lambda: {"properties": {"a": {"const": "\ud800"}, "b": {}}},
    ]
    read = [parameters(make()) for make in one]

    assert [repr(each) for each in read] == [repr({"type": "object", **make()}) for make in one]
    assert all(parameters(make()) is before for make, before in zip(one, read, strict=True))


def test_definition_of_any_size_and_depth_is_read() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"not": deep}

    for schema in (deep, {"description": "x" * 100_000}):
        assert parameters(schema)["type"] == "object"


@pytest.mark.parametrize("tool", FREE_FORM.values(), ids=FREE_FORM)
def test_free_form_tool_is_a_function_of_one_text_in_every_shape_and_api(tool: dict[str, Any]) -> None:
    read = read_client_tool(tool, "tools[0]")

    assert read is not None
    assert (read.kind, read.unused) == ("custom", ())
    assert read.spec.parameters["properties"]["input"]["pattern"] == "^(?:[a-z]+ [0-9]{1,3})$"
    chat, responses = ChatTools([tool], "tools"), read_tools([tool], (), frozenset)
    assert chat.specs == responses.specs == SortedTools([tool]).client == [read.spec]
    assert chat.free_form == {"patch"}
    assert responses.client["patch"].kind == "custom"
    assert responses.shown == [FREE_FORM["responses"]]


@pytest.mark.parametrize("without", [None, [], "", {}])
def test_tool_without_a_schema_takes_any_object(without: Any) -> None:
    for tool in ({"type": "function", "function": {"name": "x", "parameters": without}}, {"name": "x"}):
        read = read_client_tool(tool, "tools[0]")
        assert read is not None
        assert read.spec == ToolSpec("x", "", {"type": "object"})


@each_of(
    ("form", "held"),
    [
        (None, True),
        ({"type": "text"}, True),
        ({"type": "grammar", "syntax": "regex", "definition": r"\d{4}-\d{2}"}, True),
        ({"type": "grammar", "syntax": "regex", "definition": "a|b"}, True),
        ({"type": "grammar", "syntax": "regex", "definition": "(?=a)b"}, False),
        ({"type": "grammar", "syntax": "regex", "definition": "("}, False),
        ({"type": "grammar", "syntax": "lark", "definition": 'start: "a"'}, False),
        ({"type": "grammar", "definition": "x"}, False),
    ],
)
def test_format_is_held_or_named(form: Any, held: bool) -> None:
    chat = ChatTools([{"type": "custom", "custom": {"name": "patch", "format": form}}], "tools")

    assert chat.left_out == (() if held else ("tools.format",))


@pytest.mark.parametrize("wrap", [False, True])
def test_fields_of_tools_without_effect_are_named_once_in_every_api(wrap: bool) -> None:
    odd = {"strict": True, "allowed_callers": ["code"], "x\x1b": 1}
    empty = {"input_examples": [], "strict_schema": False, "note": None}
    tools = [{**BARE, "name": f"look{n}", **odd, **empty} for n in range(3)]
    tools = [{"type": "function", "function": tool} if wrap else {"type": "function", **tool} for tool in tools]
    named = ["tools.allowed_callers", "tools.strict", "tools.x\\x1b"]

    assert sorted(ChatTools(tools, "tools").left_out) == named
    assert sorted(SortedTools(tools).left_out) == named
    assert sorted(read_tools(tools, (), frozenset).ignored) == named


def test_pieces_of_arguments_are_served_where_the_api_has_them() -> None:
    tool = {**BARE, "eager_input_streaming": True}
    assert SortedTools([tool]).left_out == []
    assert ChatTools([tool], "tools").left_out == ("tools.eager_input_streaming",)


def test_format_that_is_held_stands_in_the_grammar_of_a_required_call() -> None:
    def grammar(definition: str) -> str:
        form = {"type": "grammar", "syntax": "regex", "definition": definition}
        specs = ChatTools([{"type": "custom", "name": "patch", "format": form}], "tools").specs
        return call_grammar(format_named("hermes"), specs, choice="required", parallel=False)

    assert grammar("[k-m]{7}") != grammar("[k-m]{8}")
    assert "[k-m]" in grammar("[k-m]{7}")


@pytest.mark.parametrize("name", [None, "", 5, "x" * 257])
def test_tool_without_a_name_is_refused_by_its_place(name: Any) -> None:
    for tool in ({"type": "function", "name": name}, {"type": "custom", "custom": {"name": name}}):
        with pytest.raises(RequestInvalid, match=r"tools\[3\]\.name") as refused:
            read_client_tool(tool, "tools[3]")
        assert refused.value.param == "tools[3].name"


@pytest.mark.parametrize("kind", ["web_search", "web_search_20250305", "computer_use_preview", "mcp", 5])
def test_tools_that_others_host_are_none_of_the_clients(kind: Any) -> None:
    assert read_client_tool({"type": kind, "name": "x"}, "tools[0]") is None
    chat = ChatTools([{"type": kind, "name": "x"}] * 40, "tools")
    assert chat.left_out[0] == f"tools[0]: {kind}"
    assert len(chat.left_out) == 32


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"input": "a\\nb"}', "a\nb"),
        ('{"input": "\\ud800"}', "?"),
        ('{"input": 5}', '{"input": 5}'),
        ('{"x": 1}', '{"x": 1}'),
        ("[1]", "[1]"),
        ('{"input": "a', '{"input": "a'),
    ],
)
def test_input_is_the_text_or_all_that_came_in_its_place(arguments: str, text: str) -> None:
    assert input_of(arguments) == text
    assert json.dumps(input_of(arguments)).encode()
