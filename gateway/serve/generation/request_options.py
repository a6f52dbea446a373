"""Options that requests of several APIs share, in the agent's terms: the answer's form, reasoning, tools. Pure."""

import json
from collections.abc import Callable, Container, Mapping
from typing import Any, Final, Literal, cast

from gateway.agent import EVERY_TOOL, NO_TOOL, ToolChoice, ToolScope
from gateway.errors import RequestInvalid
from gateway.toolcalls.formats.answer import AnswerForm

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
        try:
            given = json.loads(given)
        except ValueError as error:
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


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


# Options that requests of several APIs share, in the agent's terms: reasoning, tools, the answer's beginning. Pure.

GatewayTools = Literal["all", "none"]

_SWITCHES: Final = ("enable_thinking", "thinking", "reasoning")
"""Names of the option that switches reasoning on and off: a chat template that has it uses one of these."""


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
