"""What a request says about its tools: name, description, and the JSON Schema of the arguments.

The only shape in which tools enter this package, and the reader of the shapes that others use (OpenAI's request, MCP's
`tools/list`). Schemas are not checked here: they come from outside, and every reader of one must cope with any JSON.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from gateway.errors import RequestInvalid


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """One tool that the model may call. `parameters` is the JSON Schema of its arguments object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


def read_tools(tools: Iterable[ToolSpec | Mapping[str, Any]]) -> tuple[ToolSpec, ...]:
    """Return ToolSpecs from ToolSpecs, OpenAI's `tools`, or MCP's tool definitions.

    OpenAI's are `{"type": "function", "function": {"name", "description", "parameters"}}`, or the inner object alone;
    MCP's have `inputSchema`. A tool without a schema takes any object. Raises `RequestInvalid` for one without a name.
    """
    return tuple(tool if isinstance(tool, ToolSpec) else _read(tool, f"tools[{n}]") for n, tool in enumerate(tools))


def _read(tool: object, where: str) -> ToolSpec:
    fields = _mapping(tool) or {}
    fields = _mapping(fields.get("function")) or fields
    name = fields.get("name")
    if not isinstance(name, str) or not name:
        raise RequestInvalid(
            f"{where} has no name; expected {{'type': 'function', 'function': {{'name': ...}}}} or an MCP tool",
            param=where,
        )
    schema = _mapping(fields.get("parameters")) or _mapping(fields.get("inputSchema")) or {"type": "object"}
    return ToolSpec(name, str(fields.get("description") or ""), schema)


def _mapping(value: object) -> Mapping[str, Any] | None:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else None
