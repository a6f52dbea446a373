"""A tool's schema as a form, and a filled-in form as arguments.

Turns the properties of a JSON Schema into fields: a line for a simple value, JSON for a nested one, and JSON for all
arguments where the schema describes no properties. Schemas come from servers: there is a form whatever they hold.
Property names never become names of inputs. Pure.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Final, Literal, cast

from gateway.errors import RequestInvalid

WHOLE: Final = "arguments"
"""Name of the input that takes all arguments as JSON; if it is filled in, the other fields are ignored."""
_MOST: Final = 50
"""Maximum number of properties that get their own field."""
_CHOICES: Final = 200
_CHARACTERS: Final = 10_000
"""Maximum number of choices of a field, and of characters in all of them; a field with more offers no choices."""
Kind = Literal["text", "number", "integer", "choice", "json"]
_KINDS: Final[Mapping[str, Kind]] = {"string": "text", "number": "number", "integer": "integer"}


@dataclass(frozen=True, slots=True)
class Field:
    """One argument."""

    key: str
    """Name of the input."""
    name: str
    kind: Kind
    required: bool
    hint: str
    choices: tuple[str, ...] = ()
    """Values to choose from, as JSON."""
    given: str = ""
    """What was filled in before."""


def fields_of(schema: object, form: Mapping[str, str] | None = None) -> tuple[Field, ...]:
    """The fields for the first properties of an object's schema. `form`: what was filled in before."""
    table = _table(schema)
    required: object = table.get("required")
    names: list[object] = cast("list[object]", required) if isinstance(required, list) else []
    properties = list(_table(table.get("properties")).items())[:_MOST]
    fields = [_field(f"a{n}", name, value, required=name in names) for n, (name, value) in enumerate(properties)]
    return tuple(fields) if form is None else tuple(replace(each, given=form.get(each.key, "")) for each in fields)


def arguments_of(schema: object, form: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of a filled-in form. Empty fields are left out, except required texts. Raises `RequestInvalid`: a
    field's value is not of its kind."""
    if form.get(WHOLE, "").strip():
        whole = _read_json("the arguments", form[WHOLE])
        if not isinstance(whole, dict):
            raise RequestInvalid("the arguments must be a JSON object")
        return cast("dict[str, Any]", whole)
    fields = [each for each in fields_of(schema, form) if each.given or (each.required and each.kind == "text")]
    return {each.name: _value(each) for each in fields}


def _field(key: str, name: str, schema: object, *, required: bool) -> Field:
    said = _table(schema)
    simple = _without_null(said)
    hint = said.get("description") or simple.get("description") or ""
    choices = _choices(simple)
    kind: Kind = "choice" if choices else _KINDS.get(str(simple.get("type")), "json")
    return Field(key, name, kind, required, hint if isinstance(hint, str) else "", choices)


def _choices(schema: Mapping[str, Any]) -> tuple[str, ...]:
    if schema.get("type") == "boolean":
        return ("true", "false")
    values: object = schema.get("enum")
    if not isinstance(values, list) or len(cast("list[object]", values)) > _CHOICES:
        return ()
    told = tuple(json.dumps(value) for value in cast("list[object]", values))
    return told if sum(map(len, told)) <= _CHARACTERS else ()


def _without_null(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema without null, where it allows null besides one type: `["string", "null"]`, or `anyOf` the two."""
    kinds: object = schema.get("type")
    if isinstance(kinds, list):
        left = [each for each in cast("list[object]", kinds) if each != "null"]
        return {**schema, "type": left[0]} if len(left) == 1 else {}
    either: object = schema.get("anyOf")
    if isinstance(either, list):
        some = [_table(each) for each in cast("list[object]", either)]
        left = [each for each in some if each.get("type") != "null"]
        return left[0] if len(left) == 1 else {}
    return schema


def _value(field: Field) -> Any:
    if field.kind == "text":
        return field.given
    value = _read_json(repr(field.name), field.given)
    if field.kind == "integer" and (not isinstance(value, int) or isinstance(value, bool)):
        raise RequestInvalid(f"{field.name!r}: expected a whole number")
    if field.kind == "number" and not _is_number(value):
        raise RequestInvalid(f"{field.name!r}: expected a number")
    if field.kind == "choice" and field.given not in field.choices:
        raise RequestInvalid(f"{field.name!r}: expected one of the choices")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _read_json(what: str, text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise RequestInvalid(f"{what}: expected valid JSON ({error})") from None


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON number")


def _table(value: object) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
