"""Simpler forms of a tool's schema, for chat templates that fail on a legal one.

Templates read schemas as their authors met them: `param.default` fails on a property that is `true`, `type in (...)`
where there is no `type`, a loop on `required` where that is null. `tidied` mends and fills in what they trip over, and
says the same or less; `typed` gives every part one plain type and drops the rest. Only what the model reads changes:
calls are read and checked by the tool's own schema. Schemas come from outside, so any JSON is taken. Pure.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gateway.toolcalls.schema.keywords import BY_NAME
from gateway.toolcalls.schema.kinds import followed, kinds_of, mapping_of
from gateway.toolcalls.schema.merge import listed

Schema = Mapping[str, Any]

NO_PARAMETERS: Final[Schema] = {"type": "object", "properties": {}}
"""The schema of a tool of which no parameter is shown."""

_DEEPEST: Final = 16
_MOST: Final = 2000
"""Parts that are written, at most: references that lead in circles would be written for ever."""
_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_WORDS: Final = ("description", "title", "format", "pattern")
_ORDER: Final = ("object", "array", "string", "boolean", "number", "integer")


def tidied(schema: Schema) -> dict[str, Any]:
    """Return the schema of a tool's arguments without what templates trip over: it allows the same, or more."""
    root = _tidied(schema, _DEEPEST)
    return {**root, "type": "object", "properties": root.get("properties", {})}


def typed(schema: Schema) -> dict[str, Any]:
    """Return the schema of a tool's arguments with one plain type for each part, its words, and nothing else."""
    root = _typed(schema, schema, _DEEPEST, iter(range(_MOST)))
    return {**root, "type": "object", "properties": root.get("properties", {})}


def _tidied(schema: object, depth: int) -> dict[str, Any]:
    """A part that is not a mapping (`true`), or too deep, allows everything."""
    known: Schema = mapping_of(schema) if depth else {}
    found: dict[str, Any] = {}
    for key, each in known.items():
        if (value := _part(str(key), each, depth - 1)) is not None:
            found[str(key)] = value
    kinds: object = known.get("type")
    if kinds == "array" or isinstance(kinds, list):
        # Templates take `items` of a mapping without that key for the mapping's method.
        found.setdefault("items", {})
    if kinds == "string":
        found["enum"] = [each for each in found.get("enum", ()) if isinstance(each, str)]
    names = found.get("properties", {})
    found["required"] = [name for name in found.get("required", ()) if name in names]
    return {key: value for key, value in found.items() if value or key not in ("enum", "required")}


def _part(key: str, value: object, depth: int) -> object:
    """The value of one keyword; None where it can't be read."""
    if key in BY_NAME:
        return {str(name): _tidied(each, depth) for name, each in mapping_of(value).items()}
    if key in _LISTS:
        return [_tidied(each, depth) for each in listed(value)] or None
    match key:
        case "items":
            # Draft 7's list of `items` has a schema for each place.
            return _tidied(value, depth)
        case "additionalProperties":
            return value is not False and (mapping_of(value) == {} or _tidied(value, depth))
        case "required":
            return _strings(value)
        case "enum":
            return listed(value) or None
        case "type":
            return value if isinstance(value, str) else _strings(value) or None
        case _:
            return value if key not in _WORDS or isinstance(value, str) else None


def _typed(schema: object, root: Schema, depth: int, room: Iterator[int]) -> dict[str, Any]:
    """`room`: gives a number for each part that may have parts of its own."""
    depth = depth if next(room, None) is not None else 0
    known = followed(schema, root)
    kinds = kinds_of(known, root) - {"null"}
    kind = next((each for each in _ORDER if each in kinds), "string") if len(kinds) < len(_ORDER) else "string"
    found: dict[str, Any] = {"type": kind}
    for words in (mapping_of(schema).get("description"), known.get("description")):
        if isinstance(words, str):
            found.setdefault("description", words)
    if kind == "array":
        found["items"] = _typed(known.get("items"), root, depth - 1, room) if depth else {"type": "string"}
    parts: Schema = mapping_of(known.get("properties")) if depth else {}
    if kind == "object" and parts:
        found["properties"] = {str(name): _typed(each, root, depth - 1, room) for name, each in parts.items()}
        found["required"] = [name for name in _strings(known.get("required")) if name in parts]
    if kind == "string" and (strings := _strings(known.get("enum"))):
        found["enum"] = strings
    return found


def _strings(value: object) -> list[str]:
    return [each for each in listed(value) if isinstance(each, str)]
