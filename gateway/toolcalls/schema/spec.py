"""What a request says about its tools: name, description, and the JSON Schema of the arguments.

The only shape in which tools enter this package, and the reader of the shapes that others use (OpenAI's, Anthropic's
and MCP's). Schemas are not checked here: they come from outside, and every reader of one must cope with any JSON.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from gateway.errors import RequestInvalid


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """One tool that the model may call. `parameters` is the JSON Schema of its arguments object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


_SCHEMAS: Final = ("parameters", "input_schema", "inputSchema")
"""Where OpenAI, Anthropic and MCP put a tool's schema."""


def flat_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a definition with `type`, `name`, `description` and `parameters` beside each other, whoever's it is.

    OpenAI's chats put a function or a free-form tool into an object of its own, its Responses do not; Anthropic's and
    MCP's have a schema under another name, and the type `custom` or none. Other fields stay as they are.
    """
    fields = dict(tool)
    for kind in ("function", "custom"):
        if (inside := _mapping(fields.pop(kind, None))) is not None:
            fields |= {**inside, "type": kind}
    schemas = [(key, schema) for key in _SCHEMAS if (schema := _mapping(fields.pop(key, None))) is not None]
    kind = fields.get("type")
    # OpenAI's free-form tools are of the type `custom` too, and have no schema.
    is_function = kind is None or (schemas and (kind == "custom" or schemas[0][0] != "parameters"))
    return {
        **fields,
        "type": "function" if is_function else kind,
        "parameters": (schemas[0][1] if schemas else None) or {"type": "object"},
    }


def read_tools(tools: Iterable[ToolSpec | Mapping[str, Any]]) -> tuple[ToolSpec, ...]:
    """Return ToolSpecs from ToolSpecs, or from definitions in any shape that `flat_tool` takes.

    A tool without a schema takes any object. Raises `RequestInvalid` for one without a name.
    """
    return tuple(tool if isinstance(tool, ToolSpec) else _read(tool, f"tools[{n}]") for n, tool in enumerate(tools))


def _read(tool: object, where: str) -> ToolSpec:
    fields = flat_tool(_mapping(tool) or {})
    name = fields.get("name")
    if not isinstance(name, str) or not name:
        raise RequestInvalid(
            f"{where} has no name; expected {{'type': 'function', 'function': {{'name': ...}}}} or an MCP tool",
            param=where,
        )
    return ToolSpec(name, str(fields.get("description") or ""), fields["parameters"])


def _mapping(value: object) -> Mapping[str, Any] | None:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else None


def validate_call(tool: ToolSpec, arguments: object) -> list[str]:
    """Say which of a call's arguments (parsed JSON) do not fit the tool's schema, for the model that wrote them.

    An empty list: all of them fit. At most five, each with its place, as in `arguments.days: 'x' is not of type
    'integer'`. Never raises: a schema that can't be read gives no problems. The upstream still decides.
    """
    # Imported late: it is a tenth of what a gateway loads, and a gateway without a model never needs it.
    from gateway.toolcalls.schema.schema_check import problems

    return problems(tool.parameters, arguments)
