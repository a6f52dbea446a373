"""The tools of a client in a request, in the agent's terms, whichever API's shape they have.

Clients send the definitions that they have to whichever API they find: OpenAI's nested and flat ones, Anthropic's and
MCP's are all read. A free-form tool, whose input is one text, is offered as a function with that text as its only
parameter. A `format` that is a simple regular expression becomes its pattern; of any other the model is only told.
Pure.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from gateway.errors import RequestInvalid
from gateway.observe.escape import cut_text
from gateway.toolcalls import AnswerForm, ToolSpec
from gateway.toolcalls.schema.spec import flat_tool

_SHOWN: Final = 64
_NAME: Final = 256
"""Most characters of a tool's name."""


@dataclass(frozen=True, slots=True)
class ClientTool:
    """A tool that the client runs."""

    kind: Literal["function", "custom"]
    """`custom`: its input is one text, which is the only argument of the model's call."""
    spec: ToolSpec
    has_unheld_format: bool = False
    """Whether its input has a format that no grammar of ours expresses: the model is told of it, no more."""


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
        return ClientTool("function", ToolSpec(name, description, fields["parameters"]))
    return _free_form(name, description, _mapping(fields.get("format")))


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
    return ClientTool("custom", ToolSpec(name, words, _input()), has_unheld_format=True)


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
