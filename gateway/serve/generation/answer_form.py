"""The form that a request wants its answer to have, whichever API's shape says so.

OpenAI's chats put a JSON Schema into an object of its own, its Responses and Anthropic beside the type; llama.cpp's
server also takes one beside `json_object`. Pure.
"""

from collections.abc import Mapping
from typing import Any, cast

from gateway.errors import RequestInvalid
from gateway.toolcalls import AnswerForm


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


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
