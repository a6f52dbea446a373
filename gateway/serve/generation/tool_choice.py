"""`tool_choice` of a request, in the agent's terms, whichever API's shape it has.

OpenAI's chats name a tool in an object of its own, its Responses beside the type; its old form has only the name;
Anthropic's modes are objects and its tools of the type `tool`. Which tools an object names, the API says. Pure.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, cast

from gateway.agent import ToolChoice
from gateway.errors import RequestInvalid
from gateway.serve.generation.schemas import MOST_TOOLS

_MODES: Final[Mapping[str, Literal["auto", "none", "required"]]] = {
    "auto": "auto",
    "none": "none",
    "required": "required",
    "any": "required",
}
"""OpenAI's modes, and `any` of Anthropic and Mistral."""
_KINDS: Final = ("function", "custom", "tool")

Names = Callable[[Mapping[str, Any]], tuple[str, ...] | None]
"""Returns the model's names of the tools that an object with `type` and `name` names; None where it names none."""


def named_tool(fields: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The name in an object that names one tool by itself."""
    name = fields.get("name")
    return (name,) if fields.get("type") in _KINDS and isinstance(name, str) else None


def read_choice(given: object, names: Names = named_tool) -> ToolChoice:
    """Which tools may be called, and whether one must be. Raises `RequestInvalid` for anything that is not a choice."""
    fields = _flat(given)
    mode = given if isinstance(given, str) else fields.get("type")
    if isinstance(mode, str) and mode in _MODES:
        return ToolChoice(_MODES[mode])
    if mode == "allowed_tools":
        return _allowed(fields, names)
    named = names(fields)
    if named is None:
        raise RequestInvalid(
            f"tool_choice: expected one of {', '.join(_MODES)}, or an object of type function, custom, tool, mcp or "
            "allowed_tools",
            param="tool_choice",
        )
    return ToolChoice("required", named, lasts=False)


def _allowed(fields: Mapping[str, Any], names: Names) -> ToolChoice:
    mode, listed = fields.get("mode"), fields.get("tools")
    if mode not in ("auto", "required"):
        raise RequestInvalid("tool_choice.mode: expected auto or required", param="tool_choice.mode")
    named: list[object] = cast("list[object]", listed) if isinstance(listed, list) else []
    if not 0 < len(named) <= MOST_TOOLS:
        raise RequestInvalid(f"tool_choice.tools: expected 1 to {MOST_TOOLS} tools", param="tool_choice.tools")
    found: list[str] = []
    for number, each in enumerate(named):
        some = names(_flat(each))
        if some is None:
            place = f"tool_choice.tools[{number}]"
            raise RequestInvalid(
                f"{place}: expected a function or custom object with its name, or an mcp object with its server_label",
                param=place,
            )
        found += some
    return ToolChoice("required" if mode == "required" else "auto", tuple(dict.fromkeys(found)))


def _flat(value: object) -> Mapping[str, Any]:
    """An object with what it names beside its type."""
    fields = dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else {}
    for kind in ("function", "custom", "allowed_tools"):
        inside: object = fields.get(kind)
        if isinstance(inside, Mapping):
            return {**cast("Mapping[str, Any]", inside), "type": kind}
    return fields if "type" in fields or "name" not in fields else {**fields, "type": "function"}
