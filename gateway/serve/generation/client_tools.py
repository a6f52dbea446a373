"""The tools of a client in a request and its choice of one, in the agent's terms, whichever API's shape they have."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, Literal, cast

from gateway.agent import ToolChoice
from gateway.errors import RequestInvalid
from gateway.escape import cut_text, escape_text
from gateway.toolcalls.formats.answer import AnswerForm
from gateway.toolcalls.schema.keywords import is_larger
from gateway.toolcalls.schema.spec import ToolSpec, flat_tool

# How many tools a request may define, and how much their schemas may hold. Pure.

MOST_TOOLS: Final = 1024
"""Maximum number of tools of a request (OpenAI takes 128)."""
_VALUES: Final = 50_000
"""Maximum number of values in the schemas of all tools of a request: each is written for the template by itself."""


def check_schemas(schemas: Iterable[object]) -> None:
    """Raise `RequestInvalid` where the schemas of a request's tools hold too many values in all."""
    # The list of them is a value too.
    if is_larger(list(schemas), _VALUES + 1):
        raise RequestInvalid(
            f"tools: the schemas have more than {_VALUES} values in all: send fewer or smaller ones", param="tools"
        )


# The tools of a client in a request, in the agent's terms, whichever API's shape they have.
#
# Clients send the definitions that they have to whichever API they find: OpenAI's nested and flat ones, Anthropic's and
# MCP's are all read. A free-form tool, whose input is one text, is offered as a function with that text as its only
# parameter. A `format` that is a simple regular expression becomes its pattern; of any other the model is only told.
# Pure.

_SHOWN: Final = 64
_READ: Final = frozenset(("type", "name", "description", "parameters", "format", "cache_control", "defer_loading"))
"""Fields of definitions, as `flat_tool` returns them, that have an effect in one of the APIs."""
_UNUSED: Final = 16
"""Most fields of one definition that are named as unused."""
_NAME: Final = 256
"""Most characters of a tool's name."""


@dataclass(frozen=True, slots=True)
class ClientTool:
    """A tool that the client runs."""

    kind: Literal["function", "custom"]
    """`custom`: its input is one text, which is the only argument of the model's call."""
    spec: ToolSpec
    unused: tuple[str, ...] = ()
    """Fields of its definition without effect, `format` among them where no grammar of ours expresses it."""
    deferred: bool = False
    """Whether its definition is to stay out of the prompt until the model finds it."""


def read_client_tool(tool: Mapping[str, Any], where: str) -> ClientTool | None:
    """Read a definition; None where it is neither a function nor a free-form tool. Raises `RequestInvalid`."""
    fields = flat_tool(tool)
    kind = fields["type"]
    if kind not in ("function", "custom"):
        return None
    name, described = fields.get("name"), fields.get("description")
    if not isinstance(name, str) or not 0 < len(name) <= _NAME:
        words = f"expected the tool's name, of 1 to {_NAME} characters; got {cut_text(repr(name), _SHOWN)}"
        raise RequestInvalid(f"{where}.name: {words}", param=f"{where}.name")
    description = described if isinstance(described, str) else ""
    if kind == "function":
        read = ClientTool("function", ToolSpec(name, description, fields["parameters"]))
    else:
        read = _free_form(name, description, _mapping(fields.get("format")))
    # What is empty or false asks for nothing.
    others = (escape_text(key, _SHOWN) for key, value in fields.items() if value and key not in _READ)
    deferred = fields.get("defer_loading") is True
    return replace(read, unused=(*read.unused, *islice(others, _UNUSED)), deferred=deferred)


def _free_form(name: str, description: str, form: Mapping[str, Any]) -> ClientTool:
    # Chats have the grammar in an object of its own, Responses beside the type.
    grammar = _mapping(form.get("grammar")) or form
    definition, syntax = grammar.get("definition"), grammar.get("syntax")
    if not isinstance(definition, str) or not definition:
        return ClientTool("custom", ToolSpec(name, description, _input()))
    kind = syntax if syntax in ("lark", "regex") else ""
    words = f"{description}\n\nThe input follows this {kind} grammar:\n{definition}".strip()
    held = _input(pattern=f"^(?:{definition})$")
    if syntax == "regex" and _can_be_held(held):
        return ClientTool("custom", ToolSpec(name, words, held))
    return ClientTool("custom", ToolSpec(name, words, _input()), unused=("format",))


def _input(**more: str) -> dict[str, Any]:
    text = {"type": "string", "description": "The whole input, as free-form text.", **more}
    return {"type": "object", "properties": {"input": text}, "required": ["input"], "additionalProperties": False}


def _can_be_held(schema: Mapping[str, Any]) -> bool:
    try:
        AnswerForm.of_schema(schema, "tools")
    except RequestInvalid:
        return False
    return True


def input_of(arguments: str) -> str:
    """The input in a free-form tool's arguments; all of the arguments where they are not as expected."""
    try:
        value: object = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    text = _mapping(value).get("input")
    # JSON can spell a lone surrogate, which can't be encoded for a stream.
    return text.encode("utf-8", "replace").decode() if isinstance(text, str) else arguments


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


# `tool_choice` of a request, in the agent's terms, whichever API's shape it has.
#
# OpenAI's chats name a tool in an object of its own, its Responses beside the type; its old form has only the name;
# Anthropic's modes are objects and its tools of the type `tool`. Which tools an object names, the API says. Pure.

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
