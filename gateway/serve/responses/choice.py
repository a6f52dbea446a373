"""`tool_choice` of a request to `/v1/responses`, in the agent's terms."""

from collections.abc import Mapping
from typing import Any, Final, cast

from gateway.agent import ToolChoice
from gateway.errors import RequestInvalid
from gateway.serve.generation.schemas import MOST_TOOLS
from gateway.serve.responses.tools import RequestTools, joined_name

_MODES: Final = ("auto", "none", "required")


def read_choice(given: object, tools: RequestTools) -> ToolChoice:
    """Which tools may be called, and whether one must be. Raises `RequestInvalid` for anything that is not a choice."""
    if given == "none":
        return ToolChoice("none")
    if given in ("auto", "required"):
        return ToolChoice("required" if given == "required" else "auto")
    fields = _fields(given)
    if fields.get("type") == "allowed_tools":
        return _allowed(fields, tools)
    names = _names(fields, tools)
    if names is None:
        raise RequestInvalid(
            f"tool_choice: expected one of {', '.join(_MODES)}, or an object of type function, custom, mcp or "
            "allowed_tools",
            param="tool_choice",
        )
    return ToolChoice("required", names, lasts=False)


def _allowed(fields: Mapping[str, Any], tools: RequestTools) -> ToolChoice:
    mode, listed = fields.get("mode"), fields.get("tools")
    if mode not in ("auto", "required"):
        raise RequestInvalid("tool_choice.mode: expected auto or required", param="tool_choice.mode")
    named: list[object] = cast("list[object]", listed) if isinstance(listed, list) else []
    if len(named) > MOST_TOOLS:
        raise RequestInvalid(f"tool_choice.tools: expected at most {MOST_TOOLS} tools", param="tool_choice.tools")
    names: list[str] = []
    for number, each in enumerate(named):
        found = _names(_fields(each), tools)
        if found is None:
            place = f"tool_choice.tools[{number}]"
            raise RequestInvalid(
                f"{place}: expected a function or custom object with its name, or an mcp object with its server_label",
                param=place,
            )
        names += found
    return ToolChoice("required" if mode == "required" else "auto", tuple(dict.fromkeys(names)))


def _fields(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _names(fields: Mapping[str, Any], tools: RequestTools) -> tuple[str, ...] | None:
    """The model's names of the tools that an object names; None where it names none."""
    kind, name = fields.get("type"), fields.get("name")
    if kind in ("function", "custom") and isinstance(name, str):
        namespace = fields.get("namespace")
        return (joined_name(name, namespace if isinstance(namespace, str) else None),)
    label = fields.get("server_label")
    if kind != "mcp" or not isinstance(label, str):
        return None
    if isinstance(name, str):
        return (tools.public(label, name) or name,)
    return tuple(entry.name for entry in tools.of_server(label))
