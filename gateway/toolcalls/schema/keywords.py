"""JSON Schema's keywords: which hold schemas, which values each takes, and how large a value from outside may be."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, Final, cast

# The keywords of JSON Schema that hold more than one schema, or none. Source: JSON Schema 2020-12 and draft 7.

BY_NAME: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keywords whose value is an object of schemas by names that are not keywords."""
DATA: Final = frozenset(("enum", "const", "default", "examples"))
"""Keywords whose value is any JSON, which may look like a schema and is none."""


# How large a JSON value from outside may be before anything reads it: values, characters, levels.
#
# Turns a value into the reason why it is too large, or None. Every reader of a stranger's schema asks here first: this
# stops at the first bound that is passed, so it costs as much as the bound allows, however large the value is. Pure.

MAX_VALUES: Final = 10_000
"""Most values in a schema: each may cost a rule of a grammar."""
MAX_CHARACTERS: Final = 256 * 1024
"""Most characters in the keys and texts of a schema. Definitions of real tools, descriptions included, have at most a
quarter of that."""
MAX_DEPTH: Final = 32
"""Most levels of objects and lists in a schema."""


def excess(value: object) -> str | None:
    """Say why a schema is too large to be read; None where it is not."""
    size, deepest, characters, level = 1, 0, _characters(value), [value]
    while level:
        # One more than what is left is enough to know.
        level = list(islice(chain.from_iterable(map(_inside, level)), MAX_VALUES + 1 - size))
        size += len(level)
        characters += sum(map(_characters, level))
        deepest += bool(level)
        if deepest > MAX_DEPTH:
            return f"it is nested deeper than {MAX_DEPTH} levels"
        if size > MAX_VALUES:
            return f"it holds more than {MAX_VALUES} values"
        if characters > MAX_CHARACTERS:
            return f"its names and texts have more than {MAX_CHARACTERS} characters"
    return None


def is_larger(value: object, values: int) -> bool:
    """Whether a JSON value holds more values than that, itself included."""
    waiting, found = [value], 1
    while waiting and found <= values:
        inner = list(islice(_inside(waiting.pop()), values))
        found += len(inner)
        waiting += inner
    return found > values


def characters_of(value: object, most: int) -> int:
    """Count the characters of all keys and texts in a JSON value; stops at the first count over `most`."""
    waiting, found = [value], 0
    while waiting and found <= most:
        item = waiting.pop()
        found += 1 + _characters(item)
        waiting += _inside(item)
    return found


def _characters(value: object) -> int:
    """The characters of a text, or of an object's keys."""
    if isinstance(value, str):
        return len(value)
    return sum(map(len, map(str, cast("dict[object, object]", value)))) if isinstance(value, dict) else 0


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return cast("dict[str, object]", value).values()
    return cast("list[object]", value) if isinstance(value, list) else ()


# Which values each keyword of JSON Schema takes: holds a schema from outside against that, in time linear in its size.
#
# Stands in for the metaschema, whose check takes 300 us a value and compiles every regular expression. Keywords that
# only describe a value, and unknown ones, take anything. Pure. Source: JSON Schema 2020-12, and draft 7's lists of
# `items`.

ValueRule = Callable[[object], bool]
InnerSchema = tuple[tuple[str, ...], Mapping[str, Any]]
"""A schema inside another, with the keys and indexes that lead to it."""

_TYPES: Final = ("object", "array", "string", "number", "integer", "boolean", "null")
_SCHEMA: Final = (
    "additionalProperties", "additionalItems", "unevaluatedProperties", "unevaluatedItems", "propertyNames", "contains",
    "items", "not", "if", "then", "else",
)  # fmt: skip
_SCHEMA_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_COUNTS: Final = (
    "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains",
)  # fmt: skip


def misfit(
    schema: Mapping[str, Any], takes: Mapping[str, ValueRule] | None = None
) -> tuple[tuple[str, ...], str, object] | None:
    """The first keyword whose value it does not take: the path of its schema, the keyword and the value."""
    takes = TAKES if takes is None else takes
    for path, part in parts(schema):
        for keyword, value in part.items():
            if (known := takes.get(keyword)) is not None and not known(value):
                return path, keyword, value
    return None


def parts(schema: Mapping[str, Any]) -> Iterator[InnerSchema]:
    """Yield a schema and all schemas inside it, each after the one that holds it."""
    waiting: list[InnerSchema] = [((), schema)]
    while waiting:
        path, part = waiting.pop()
        yield path, part
        for keyword, value in part.items():
            inner: Iterator[tuple[str, object]] = iter(())
            if keyword in _SCHEMA and isinstance(value, Mapping):
                inner = iter((("", cast("object", value)),))
            elif keyword in _SCHEMA_LISTS and isinstance(value, list):
                inner = ((str(number), each) for number, each in enumerate(cast("list[object]", value)))
            elif keyword in BY_NAME and isinstance(value, Mapping):
                inner = iter(cast("Mapping[str, object]", value).items())
            waiting += [
                ((*path, keyword, name) if name else (*path, keyword), cast("Mapping[str, Any]", each))
                for name, each in inner
                if isinstance(each, Mapping)
            ]


def is_schema(value: object) -> bool:
    """Whether a value may stand where a schema does."""
    return isinstance(value, dict | bool)


def is_table(value: object) -> bool:
    """Whether a value is an object of schemas."""
    return isinstance(value, dict) and all(map(is_schema, cast("dict[str, object]", value).values()))


def is_number(value: object) -> bool:
    """Whether a value is a number that JSON has; booleans are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value - value == 0


def is_list(value: object) -> bool:
    """Whether a value is a list."""
    return isinstance(value, list)


def is_text(value: object) -> bool:
    """Whether a value is a text."""
    return isinstance(value, str)


def _is_count(value: object) -> bool:
    return is_number(value) and value == cast("float", value) // 1 and cast("float", value) >= 0


def _is_type(value: object) -> bool:
    names = cast("list[object]", value) if isinstance(value, list) else [value]
    return bool(names) and all(name in _TYPES for name in names)


def _are_schemas(value: object) -> bool:
    given = cast("list[object]", value) if isinstance(value, list) else []
    return bool(given) and all(map(is_schema, given))


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(map(is_text, cast("list[object]", value)))


def _are_lists_of_names(value: object) -> bool:
    return isinstance(value, dict) and all(map(_are_names, cast("dict[str, object]", value).values()))


TAKES: Final[Mapping[str, ValueRule]] = {
    **dict.fromkeys(_SCHEMA, is_schema),
    **dict.fromkeys(_SCHEMA_LISTS, _are_schemas),
    **dict.fromkeys(BY_NAME, is_table),
    **dict.fromkeys(_NUMBERS, is_number),
    **dict.fromkeys(_COUNTS, _is_count),
    **dict.fromkeys(
        ("$ref", "$schema", "$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "format", "pattern"), is_text
    ),
    "multipleOf": lambda value: is_number(value) and cast("float", value) > 0,
    "uniqueItems": lambda value: isinstance(value, bool),
    "items": lambda value: is_schema(value) or value == [] or _are_schemas(value),
    "dependencies": lambda value: isinstance(value, dict),
    "dependentRequired": _are_lists_of_names,
    "type": _is_type,
    "required": _are_names,
    "enum": is_list,
}
"""What each keyword takes."""

TAKES_IN_DRAFT_4: Final[Mapping[str, ValueRule]] = {
    **TAKES,
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), lambda value: isinstance(value, bool)),
}
"""What each keyword takes in draft 4."""
