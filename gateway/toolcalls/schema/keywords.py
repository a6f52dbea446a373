"""JSON Schema's keywords: which hold schemas, which values each takes, and what the references among them name.

A schema comes from outside, so it is said first how large a value may be that is read at all.
"""

import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
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
_NESTED: Final = (dict, list)
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
    return values_in(value, values) > values


def values_in(value: object, most: int) -> int:
    """Count the values in a JSON value, itself included; stops at the first count over `most`."""
    waiting: list[object] = [value]
    found = 1
    while waiting and found <= most:
        inner = _inside(waiting.pop())
        found += len(inner)
        # Most values have no others inside.
        waiting += [each for each in inner if isinstance(each, _NESTED)]
    return found


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


def _inside(value: object) -> Collection[object]:
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


# What a `$ref` names: a JSON pointer into the same schema, an anchor, or a part with an `$id`. Nothing is fetched.
#
# Turns a reference and the schema's root into the part that it names. Schemas come from outside: any JSON is taken, the
# search for anchors has a bound, and a reference that leads nowhere allows any value. Sources: RFC 6901 (pointers, also
# as URI fragments), JSON Schema 2020-12 (`$anchor`, `$id`), draft 7 (`$id` of the form `#name`).

_MAX_PARTS: Final = 500
"""Most parts of a schema in which an anchor is looked for: each reference may look anew."""
_MAX_REFERENCES: Final = 10_000
_VALUES: Final = 10
"""Values that are looked at for each part that may be found: lists may be wide."""
SchemaNames = Mapping[str, Mapping[str, Any]]
_PERCENT: Final = re.compile(r"(?:%[0-9A-Fa-f]{2})+")


def resolve(reference: str, root: Mapping[str, Any]) -> object:
    """Return what a reference names; None where it names nothing in this schema, which is never changed."""
    address, _, fragment = reference.partition("#")
    base: Mapping[str, Any] | None = root
    if address and address != root.get("$id"):
        base = _identified(address, root, _names(_Same(root)))
    if not fragment or base is None:
        return base
    if fragment.startswith("/"):
        found = _pointed(unquoted(fragment), base)
        # Who does not know that a fragment is a part of a URI writes `%` as it stands.
        return found if found is not None or "%" not in fragment else _pointed(fragment, base)
    return _names(_Same(base)).get(f"#{unquoted(fragment)}")


def unquoted(fragment: str) -> str:
    """Return a fragment of a URI without percent encoding; what is not UTF-8 stays as it is."""
    return _PERCENT.sub(lambda found: _decoded(found.group()), fragment)


def steps(pointer: str) -> list[str]:
    """Return the names of a pointer, without escapes."""
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def escaped(name: str) -> str:
    """Return a name as a step of a pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def dead_references(schema: Mapping[str, Any]) -> list[str]:
    """Return the references of a schema that lead nowhere in it, each once."""
    references = (part.get("$ref") for part in _mappings(schema, _MAX_REFERENCES))
    each_once = dict.fromkeys(each for each in references if isinstance(each, str))
    return [each for each in each_once if not isinstance(resolve(each, schema), Mapping | bool)]


def _decoded(written: str) -> str:
    try:
        return bytes.fromhex(written.replace("%", "")).decode()
    except UnicodeDecodeError:
        return written


def _pointed(pointer: str, found: object) -> object:
    for step in steps(pointer):
        if isinstance(found, Mapping):
            found = cast("Mapping[str, object]", found).get(step)
        elif isinstance(found, list) and step.isdecimal() and step.isascii() and (step == "0" or step[0] != "0"):
            items = cast("list[object]", found)
            found = items[int(step)] if len(step) <= len(str(len(items))) and int(step) < len(items) else None
        else:
            return None
    return found


def _identified(address: str, root: Mapping[str, Any], names: SchemaNames) -> Mapping[str, Any] | None:
    """The part whose `$id` is this address, which may be relative to that of the schema."""
    own = root.get("$id")
    whole = f"{own.rpartition('/')[0]}/{address}" if isinstance(own, str) and "/" in own else address
    return next((names[each] for each in (address, whole, f"{address}#") if each in names), None)


@dataclass(frozen=True, slots=True)
class _Same:
    """A part of a schema, equal to itself alone."""

    part: Mapping[str, Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.part is self.part

    def __hash__(self) -> int:
        return id(self.part)


# A schema may have thousands of references, and each search takes a millisecond.
@lru_cache(maxsize=16)
def _names(base: _Same) -> SchemaNames:
    """The parts of a schema by their `$id`, and by `#` and their anchors; the first of each name."""
    found = dict[str, Mapping[str, Any]]()
    for part in _mappings(base.part):
        named = (part.get("$id"), *(f"#{part[key]}" for key in ("$anchor", "$dynamicAnchor") if key in part))
        for name in named:
            if isinstance(name, str):
                found.setdefault(name, part)
    return found


def _mappings(schema: Mapping[str, Any], most: int = _MAX_PARTS) -> Iterator[Mapping[str, Any]]:
    """Yield the mappings inside a schema, itself first, but none in a value of data; at most `most`."""
    waiting, room = deque[object]([schema]), most * _VALUES
    while waiting and most > 0:
        each, values = waiting.popleft(), list[object]()
        if isinstance(each, Mapping):
            known = cast("Mapping[str, Any]", each)
            yield known
            most -= 1
            values = [value for key, value in islice(known.items(), room) if key not in DATA]
        else:
            values = list(islice(cast("list[object]", each), room))
        room -= len(values)
        waiting += [value for value in values if isinstance(value, dict | list)]
