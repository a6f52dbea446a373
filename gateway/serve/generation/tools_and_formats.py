"""Options and tools that requests of several APIs share, in the agent's terms, whichever API's shape they have. Pure.

The answer's form, reasoning, the client's tools and its choice of one, the gateway's tools that it may use.
"""

import json
import marshal
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any, Final, Literal, cast

from gateway.agent import EVERY_TOOL, NO_TOOL, ToolChoice, ToolScope
from gateway.errors import RequestInvalid
from gateway.escape import cut_text, escape_text
from gateway.toolcalls.formats.structured_output import AnswerForm
from gateway.toolcalls.schema.keywords import MAX_CHARACTERS, values_in
from gateway.toolcalls.schema.spec import ToolSpec, flat_tool

MOST_TOOLS: Final = 1024
"""Maximum number of tools of a request (OpenAI takes 128)."""
_VALUES: Final = 50_000
"""Maximum number of values in the schemas of all tools of a request: each is written for the template by itself."""
_SCHEMA_TEXT: Final = 4 * MAX_CHARACTERS
"""Most characters of a schema's JSON text: nothing has counted the values in it before it is read."""
_SHOWN: Final = 64
_EXACT: Final = 2
"""The version of marshal whose bytes depend on the value alone."""
_KEPT: Final = 8192
"""Most bytes of a definition that is kept. The worst, of empty objects alone, takes 36 times as many in memory."""
_READ: Final = frozenset(("type", "name", "description", "parameters", "format", "cache_control", "defer_loading"))
"""Fields of definitions, as `flat_tool` returns them, that have an effect in one of the APIs."""
_UNUSED: Final = 16
"""Most fields of one definition that are named as unused."""
_NAME: Final = 256
"""Most characters of a tool's name."""
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
GatewayTools = Literal["all", "none"]
_SWITCHES: Final = ("enable_thinking", "thinking", "reasoning")
"""Names of the option that switches reasoning on and off: a chat template that has it uses one of these."""


def check_schemas(schemas: Sequence[object]) -> None:
    """Raise `RequestInvalid` where the schemas of a request's tools hold too many values in all."""
    # The list of them is a value too.
    check_values(values_in(list(schemas), _VALUES + 1) - 1)


def check_values(values: int) -> None:
    """Raise `RequestInvalid` where there are too many values in the schemas of a request's tools."""
    if values > _VALUES:
        raise RequestInvalid(
            f"tools: the schemas have more than {_VALUES} values in all: send fewer or smaller ones", param="tools"
        )


# The tools of a client in a request, in the agent's terms, whichever API's shape they have.
#
# Clients send the definitions that they have to whichever API they find: OpenAI's nested and flat ones, Anthropic's and
# MCP's are all read. A free-form tool, whose input is one text, is offered as a function with that text as its only
# parameter. A `format` that is a simple regular expression becomes its pattern; of any other the model is only told.
# Pure.


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
    values: int = 0
    """The values in its schema, for `check_values`."""


def read_client_tool(tool: Mapping[str, Any], where: str) -> ClientTool | None:
    """Read a definition; None where it is neither a function nor a free-form tool. Raises `RequestInvalid`."""
    try:
        # Unlike JSON, it costs less than the reading; unlike equality, it tells 1 from 1.0 and one order from another.
        written = marshal.dumps(cast("Any", tool), _EXACT)
    except ValueError:
        return _read(tool, where)
    return _read_again(written, where) if len(written) <= _KEPT else _read(tool, where)


# Agents send the same definitions with each request. What is found of a schema is kept by the schema's identity.
@lru_cache(maxsize=256)
def _read_again(written: bytes, where: str) -> ClientTool | None:
    return _read(marshal.loads(written), where)  # noqa: S302 - written here


def _read(tool: Mapping[str, Any], where: str) -> ClientTool | None:
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
    unused, values = (*read.unused, *islice(others, _UNUSED)), values_in(read.spec.parameters, _VALUES)
    return replace(read, unused=unused, deferred=deferred, values=values)


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


# The form that a request wants its answer to have, whichever API's or engine's shape says so.
#
# OpenAI's chats put a JSON Schema into an object of its own, its Responses and Anthropic beside the type; llama.cpp's
# server also takes one beside `json_object`, or as a field of the request, and vLLM has fields for schemas, choices and
# regular expressions. Pure.


def flat_form(given: object) -> dict[str, Any]:
    """The form with its schema beside the type; nothing where it is no object."""
    fields = dict(_mapping(given))
    inside = _mapping(fields.pop("json_schema", None))
    named = {"name": ""} if fields.get("type") == "json_schema" else {}
    return {**named, **fields, **{key: value for key, value in inside.items() if key != "type"}}


def read_form(given: object, where: str) -> AnswerForm | None:
    """Return the form; None: any. Raises `RequestInvalid` for what is no form, or for an unenforceable schema."""
    fields = flat_form(given)
    kind, schema = fields.get("type"), fields.get("schema")
    if given is None or kind == "text":
        return None
    if kind == "json_object" and not schema:
        return AnswerForm()
    if kind in ("json_object", "json_schema") and schema is not None:
        return AnswerForm.of_schema(schema, where)
    raise RequestInvalid(
        f"{where}: expected an object of type text, json_object, or json_schema with its schema", param=where
    )


def read_only_form(fields: Mapping[str, object]) -> AnswerForm | None:
    """Return the form that one of a request's fields asks for; None: any. Raises `RequestInvalid`, also for two."""
    read = {name: read(fields[name], name) for name, read in FORM_FIELDS.items() if fields.get(name) is not None}
    forms = {name: form for name, form in read.items() if form is not None}
    if len(forms) > 1:
        one, other, *_ = forms
        raise RequestInvalid(f"{other}: the answer already has the form of {one}: leave out one of them", param=other)
    return next(iter(forms.values()), None)


def _of_schema(given: object, where: str) -> AnswerForm:
    """vLLM's clients write a schema as an object, or as its JSON text."""
    if isinstance(given, str):
        if len(given) > _SCHEMA_TEXT:
            raise RequestInvalid(
                f"{where}: the schema's JSON text has more than {_SCHEMA_TEXT} characters", param=where
            )
        try:
            given = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise RequestInvalid(f"{where}: expected a JSON Schema, or its JSON text: {error}", param=where) from error
    return AnswerForm.of_schema(given, where)


def _of_choice(given: object, where: str) -> AnswerForm:
    texts = cast("list[object]", given) if isinstance(given, list) else []
    if not texts or not all(isinstance(text, str) for text in texts):
        raise RequestInvalid(f"{where}: expected a list of at least one text", param=where)
    return AnswerForm.of_schema({"enum": texts}, where, bare=True)


def _of_regex(given: object, where: str) -> AnswerForm:
    if not isinstance(given, str):
        raise RequestInvalid(f"{where}: expected a regular expression as a text", param=where)
    # The whole answer has to match, so anchors at its ends change nothing; inside a group no grammar could hold them.
    inside = given.removeprefix("^")
    if inside.endswith("$") and (len(inside) - len(inside[:-1].rstrip("\\"))) % 2:
        inside = inside[:-1]
    return AnswerForm.of_schema({"type": "string", "pattern": f"^(?:{inside})$"}, where, bare=True)


def _of_structured(given: object, where: str) -> AnswerForm | None:
    """Read vLLM's newer field, which has the older ones inside."""
    fields = _mapping(given)
    named = [name for name in ("json", "choice", "regex", "json_object") if fields.get(name)]
    if len(named) != 1:
        words = "expected an object with one of json, choice, regex or json_object; no other grammar is taken"
        raise RequestInvalid(f"{where}: {words}", param=where)
    if named == ["json_object"]:
        return AnswerForm()
    read = {"json": _of_schema, "choice": _of_choice, "regex": _of_regex}[named[0]]
    return read(fields[named[0]], f"{where}.{named[0]}")


FORM_FIELDS: Final[Mapping[str, Callable[[object, str], AnswerForm | None]]] = {
    "response_format": read_form,
    "json_schema": _of_schema,
    "guided_json": _of_schema,
    "guided_choice": _of_choice,
    "guided_regex": _of_regex,
    "structured_outputs": _of_structured,
}
"""The fields of chats and plain completions that give the answer a form: OpenAI's, llama.cpp's and vLLM's."""


# Options that requests of several APIs share, in the agent's terms: reasoning, tools, the answer's beginning. Pure.


def thinking_options(effort: str | None, *, thinks: bool | None = None) -> dict[str, str | bool]:
    """The chat template's options for how much to think. `thinks`: whether to think at all, where the request says."""
    wanted = False if effort == "none" else thinks
    switched: dict[str, str | bool] = {} if wanted is None else dict.fromkeys(_SWITCHES, wanted)
    return switched if effort is None else {"reasoning_effort": effort, **switched}


def ignores_effort(effort: str | None, used: Container[str]) -> bool:
    """Whether the template ignores the effort asked for. `used`: the options that the template knows."""
    return effort is not None and not any(name in used for name in thinking_options(effort))


def scope_of(gateway_tools: GatewayTools, servers: Mapping[str, frozenset[str] | None] | None) -> ToolScope:
    """The gateway's tools that a request wants. `servers`: those that it restricts itself to; None: no restriction."""
    if gateway_tools == "none":
        return NO_TOOL
    return EVERY_TOOL if servers is None else ToolScope(servers)


def check_continuation(form: AnswerForm | None, choice: ToolChoice, where: str, way_out: str) -> None:
    """Raise `RequestInvalid` for an answer that must continue a text and also follow a grammar from its first id."""
    if form is not None or choice.mode == "required":
        words = f"{where}: an answer with a required form or a required call can't continue a text: "
        raise RequestInvalid(words + way_out, param=where)
