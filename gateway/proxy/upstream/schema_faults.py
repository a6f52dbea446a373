"""Why a client can't compile a JSON Schema: the first keyword whose value no validator takes.

Turns a schema into that keyword and the reason; None if there is none. Stricter than a validator has to be where
JavaScript and Python differ: a pattern counts only if it is certain that both read it. Source: Ajv 8, which the
TypeScript SDK compiles every output schema with.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast

from gateway.proxy.upstream.item_flaws import shown
from gateway.toolcalls.schema.keywords import BY_NAME
from gateway.toolcalls.schema.pointers import dead_references

_TYPES: Final = ("object", "array", "string", "number", "integer", "boolean", "null")
_MOST_PARTS: Final = 5000
_DEEPEST: Final = 64
_LONGEST: Final = 1000
_PATTERNS: Final = 100
"""Patterns of one part that are tried, at most: compiling one takes up to a millisecond."""
_ESCAPE: Final = r"[dDwWsSnrtfv0^$\\.*+?()\[\]{}|/]|u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}"
_OFTEN: Final = r"(?:(?:[?*+]|\{\d{1,4}(?:,\d{0,4})?\})\??)?"
_PLAIN_PATTERN: Final = re.compile(
    rf"(?>(?:[^\\\[\](){{}}?*+|^$]|\\(?:{_ESCAPE})|\[\^?(?:[^\\\[\]^]|\\(?:{_ESCAPE}|-))+\]|\)){_OFTEN}"
    r"|\((?:\?(?:[:=!]|<[=!]))?|[|^$]|\\[bB])*"
)
"""Patterns that Python and JavaScript (with its flag `u`) read alike, of the parts that schemas are usually made of."""
_LOOKS: Final = re.compile(r"\(\?<?[=!]")
_REPEATED: Final = re.compile(r"\)[?*+{]")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_ID: Final = re.compile(r"(?:https?://[A-Za-z0-9.-]+(?::\d{1,5})?(?:/[A-Za-z0-9_.~/-]*)?|[A-Za-z0-9_./-]*)#?")


def schema_fault(schema: Mapping[str, Any]) -> tuple[str, str] | None:
    """The keyword that can't be compiled, and why."""
    if dead := dead_references(schema):
        return "$ref", f"{shown(dead[0])} names nothing in the schema"
    names = set[str]()
    for number, (depth, part) in enumerate(_parts(schema)):
        if number > _MOST_PARTS or depth > _DEEPEST:
            return "properties", f"the schema has more than {_MOST_PARTS} parts or {_DEEPEST} levels"
        for keyword, value in part.items():
            if (takes := _KEYWORDS.get(keyword)) is not None and not takes(value):
                return keyword, f"{shown(value)} is no value for it"
            if keyword in _NAMES and value in names:
                return keyword, f"{shown(value)} names two parts of the schema"
            if keyword in _NAMES:
                names.add(value)
        if "nullable" in part and "type" not in part:
            return "nullable", "it stands without a type"
    return None


def _parts(schema: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The schema and all schemas inside it, each after the one that holds it, whose keywords were then checked."""
    waiting: list[tuple[int, Mapping[str, Any]]] = [(0, schema)]
    while waiting:
        depth, part = waiting.pop()
        yield depth, part
        for keyword, value in part.items():
            inner: list[object] = []
            if keyword in _SCHEMA:
                inner = [value]
            elif keyword in _SCHEMA_LISTS and isinstance(value, list):
                inner = cast("list[object]", value)
            elif keyword in BY_NAME and isinstance(value, Mapping):
                inner = list(cast("Mapping[str, object]", value).values())
            waiting += [(depth + 1, cast("Mapping[str, Any]", each)) for each in inner if isinstance(each, Mapping)]


def _never(_: object) -> bool:
    return False


def _is_schema(value: object) -> bool:
    return isinstance(value, dict | bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_type(value: object) -> bool:
    names: list[object] = cast("list[object]", value) if isinstance(value, list) else [value]
    return all(name in _TYPES for name in names)


def _is_pattern(value: object) -> bool:
    if not isinstance(value, str) or len(value) > _LONGEST or _PLAIN_PATTERN.fullmatch(value) is None:
        return False
    if _LOOKS.search(value) and _REPEATED.search(value):
        # JavaScript repeats no look-around; which bracket ends one is not looked for.
        return False
    try:
        re.compile(value)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def _are_patterns(table: Mapping[str, Any]) -> bool:
    return len(table) <= _PATTERNS and all(map(_is_pattern, table))


def _is_table(value: object) -> bool:
    return isinstance(value, dict) and all(_is_schema(each) for each in cast("dict[str, object]", value).values())


def _is_list(value: object) -> bool:
    return isinstance(value, list) and all(_is_schema(each) for each in cast("list[object]", value))


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in cast("list[object]", value))


_SCHEMA: Final = (
    "additionalProperties", "additionalItems", "unevaluatedProperties", "unevaluatedItems", "propertyNames", "contains",
    "items", "not", "if", "then", "else",
)  # fmt: skip
_NAMES: Final = ("$id", "$anchor", "$dynamicAnchor")
_SCHEMA_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_KEYWORDS: Final[Mapping[str, Callable[[object], bool]]] = {
    **dict.fromkeys(_SCHEMA, _is_schema),
    **dict.fromkeys(_SCHEMA_LISTS, _is_list),
    **dict.fromkeys(BY_NAME, _is_table),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), _is_number),
    **dict.fromkeys(
        (
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "minProperties",
            "maxProperties",
            "minContains",
            "maxContains",
        ),
        _is_count,
    ),
    **dict.fromkeys(("$ref", "$schema", "format", "$dynamicRef"), _is_text),
    **dict.fromkeys(
        ("$anchor", "$dynamicAnchor"), lambda value: isinstance(value, str) and bool(_NAME.fullmatch(value))
    ),
    **dict.fromkeys(("uniqueItems", "nullable"), lambda value: isinstance(value, bool)),
    "items": lambda value: _is_schema(value) or _is_list(value),
    "patternProperties": lambda value: _is_table(value) and _are_patterns(cast("dict[str, Any]", value)),
    "dependencies": lambda value: isinstance(value, dict),
    "pattern": _is_pattern,
    "type": _is_type,
    "required": _are_names,
    "enum": lambda value: isinstance(value, list) and bool(cast("list[object]", value)),
    "$id": lambda value: isinstance(value, str) and bool(_ID.fullmatch(value)),
    **dict.fromkeys(
        ("id", "formatMinimum", "formatMaximum", "formatExclusiveMinimum", "formatExclusiveMaximum"), _never
    ),
}
