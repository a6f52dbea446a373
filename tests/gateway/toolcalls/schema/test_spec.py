"""Definitions of tools, in the shapes that OpenAI, Anthropic and MCP give them."""

from typing import Any

import pytest

from gateway.errors import RequestInvalid
from gateway.toolcalls.schema.spec import ToolSpec, flat_tool, read_tools

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
READ = ToolSpec("f", "does", SCHEMA)
FIELDS: dict[str, Any] = {"name": "f", "description": "does"}


@pytest.mark.parametrize(
    "tool",
    [
        READ,
        {"type": "function", "function": {**FIELDS, "parameters": SCHEMA}},
        {"type": "function", **FIELDS, "parameters": SCHEMA},
        {**FIELDS, "input_schema": SCHEMA},
        {"type": "custom", **FIELDS, "input_schema": SCHEMA},
        {**FIELDS, "inputSchema": SCHEMA},
    ],
)
def test_every_shape_is_read_alike(tool: ToolSpec | dict[str, Any]) -> None:
    assert read_tools([tool, tool]) == (READ, READ)
    if not isinstance(tool, ToolSpec):
        assert flat_tool(tool) == {"type": "function", **FIELDS, "parameters": SCHEMA}


def test_tool_without_schema_or_description_takes_any_object() -> None:
    assert read_tools([{"name": "f", "description": None, "parameters": {}}]) == (
        ToolSpec("f", "", {"type": "object"}),
    )


def test_free_form_tool_stays_one() -> None:
    assert flat_tool({"type": "custom", "custom": {"name": "patch"}})["type"] == "custom"
    assert flat_tool({"type": "custom", "name": "patch"})["type"] == "custom"


@pytest.mark.parametrize("tool", [{}, {"name": ""}, {"name": 7}, {"function": {}}, 7])
def test_tool_without_a_name_is_refused_with_its_place(tool: Any) -> None:
    with pytest.raises(RequestInvalid, match=r"tools\[1\] has no name") as refused:
        read_tools([READ, tool])

    assert refused.value.param == "tools[1]"
