"""The schemas of a tool's arguments and results, in the form that strict clients read.

Turns a schema as it came into one whose top the official SDKs accept. What is inside of the schema of arguments is left
as it is: only its properties' own schemas are read. An output schema that clients can't compile is dropped (the
TypeScript SDK refuses the whole list for one): nothing says which results would fit it.
"""

from collections.abc import Mapping
from typing import Any, Final

from gateway.proxy.upstream.items.item_flaws import (
    GONE,
    Flaw,
    Reader,
    dropped,
    inside,
    list_in,
    mended,
    object_in,
    read_fields,
    text,
    unusable,
)
from gateway.proxy.upstream.items.schema_faults import schema_fault

_OBJECT: Final = "object"


def read_input_schema(value: object, at: str, flaws: list[Flaw]) -> object:
    """Read the schema of a tool's arguments (`Reader`)."""
    if value is GONE or value is None or value is True or value == []:
        return mended(value, at, "an object", flaws, {"type": _OBJECT})
    if (found := object_in(value)) is None:
        return unusable(value, at, "an object", flaws)
    if (schema := _with_type(found, at, flaws)) is None:
        return unusable(found["type"], inside(at, "type"), "'object'", flaws)
    return read_fields(schema, _TOP, at, flaws)


def read_output_schema(*, any_type: bool) -> Reader:
    """A reader of the schema of a tool's results. `any_type`: they may be other than objects."""

    def read(value: object, at: str, flaws: list[Flaw]) -> object:
        schema = object_in(value)
        if schema is None or not (schema or any_type):
            return dropped(value, at, "a schema of type object", flaws)
        if not any_type:
            typed = _with_type(schema, at, flaws)
            if typed is None:
                return dropped(schema["type"], inside(at, "type"), "'object'", flaws)
            schema = read_fields(typed, _TOP, at, flaws)
        if any(flaw.left_out for flaw in flaws):
            return schema
        if (fault := schema_fault(schema)) is not None:
            flaws.append(Flaw(inside(at, fault[0]), f"{fault[1]}, so clients can't compile it; {at} is dropped"))
            return GONE
        return schema

    return read


def _with_type(schema: dict[str, Any], at: str, flaws: list[Flaw]) -> dict[str, Any] | None:
    """The schema with the type `object`; None if it allows no objects."""
    kind: object = schema.get("type", GONE)
    if kind == _OBJECT:
        return schema
    names = list_in(kind) or [kind]
    if kind is GONE or kind is None or any(isinstance(name, str) and name.lower() == _OBJECT for name in names):
        return {**schema, "type": mended(kind, inside(at, "type"), "'object'", flaws, _OBJECT)}
    return None


def _properties(value: object, at: str, flaws: list[Flaw]) -> object:
    if value is None:
        return dropped(value, at, "an object", flaws)
    if value == []:
        return mended(value, at, "an object", flaws, {})
    if (found := object_in(value)) is None:
        return unusable(value, at, "an object", flaws)
    return read_fields(found, dict.fromkeys(_odd(found), _property), at, flaws)


def _odd(properties: Mapping[str, object]) -> list[str]:
    return [name for name, schema in properties.items() if not isinstance(schema, dict)]


def _property(value: object, at: str, flaws: list[Flaw]) -> object:
    if value is None or value is True or value == []:
        return mended(value, at, "a schema", flaws, {})
    if value is False:
        return mended(value, at, "a schema that is an object", flaws, {"not": {}})
    return unusable(value, at, "a schema", flaws)


def _required(value: object, at: str, flaws: list[Flaw]) -> object:
    if isinstance(value, str):
        return mended(value, at, "a list of names", flaws, [value])
    if (names := list_in(value)) is None:
        return dropped(value, at, "a list of names", flaws)
    texts = [name for name in names if isinstance(name, str)]
    return names if len(texts) == len(names) else mended(names, at, "a list of names", flaws, texts)


_TOP: Final[Mapping[str, Reader]] = {"$schema": text, "properties": _properties, "required": _required}
