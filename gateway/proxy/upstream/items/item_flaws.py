"""What is wrong with an item of a server's list or with its schemas, and the form that strict clients read."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from pydantic_core import to_json

from gateway.escape import escape_text
from gateway.toolcalls.schema.keywords import (
    TAKES,
    ValueRule,
    dead_references,
    excess,
    is_list,
    is_table,
    misfit,
    parts,
)

_VALUE: Final = 60
_FIELD: Final = 120
_MOST: Final = 100
"""Flaws of one item that are noted, at most: a list may hold a million odd values."""
GONE: Final = object()
"""What a reader returns for a field that is dropped."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """What is wrong with one field of one item, and what became of it."""

    field: str
    """The field, after the fields that it is inside of, with dots between them; empty: the item itself."""
    reason: str
    left_out: bool = False
    """Whether the whole item is left out."""


FieldReader = Callable[[object, str, list[Flaw]], object]


def dropped(value: object, at: str, expected: str, flaws: list[Flaw]) -> object:
    """Note that a field is dropped, and return `GONE`."""
    if len(flaws) < _MOST:
        flaws.append(Flaw(at, f"expected {expected}, got {shown(value)}; the field is dropped"))
    return GONE


def mended(value: object, at: str, expected: str, flaws: list[Flaw], instead: object) -> Any:
    """Note that a field is read as something else, and return that."""
    if len(flaws) < _MOST:
        flaws.append(Flaw(at, f"expected {expected}, got {shown(value)}; it is read as {shown(instead)}"))
    return instead


def unusable(value: object, at: str, expected: str, flaws: list[Flaw]) -> object:
    """Note that the item is left out for this field, and return the value."""
    if len(flaws) < _MOST or not flaws[-1].left_out:
        flaws.append(Flaw(at, f"expected {expected}, got {shown(value)}", left_out=True))
    return value


def shown(value: object) -> str:
    """A JSON value in a few characters."""
    if value is GONE:
        return "nothing"
    if isinstance(value, str):
        return escape_text(repr(value[: 2 * _VALUE]), _VALUE)
    if isinstance(value, list | dict) and len(cast("list[object]", value)) > _VALUE:
        return "a long list" if isinstance(value, list) else "a large object"
    return escape_text(to_json(value, inf_nan_mode="constants").decode("utf-8", "replace"), _VALUE)


def inside(at: str, name: str) -> str:
    """Where a field of an object is."""
    return escape_text(f"{at}.{name}" if at else name, _FIELD)


def object_in(value: object) -> dict[str, Any] | None:
    """The value if it is an object."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def list_in(value: object) -> list[object] | None:
    """The value if it is a list."""
    return cast("list[object]", value) if isinstance(value, list) else None


def read_fields(
    found: dict[str, Any], readers: Mapping[str, FieldReader], at: str, flaws: list[Flaw]
) -> dict[str, Any]:
    """The object with each known field as its reader returns it; the same object if nothing is to be changed."""
    result = found
    for name, read in readers.items():
        if name not in found:
            continue
        value = read(found[name], inside(at, name), flaws)
        if value is found[name]:
            continue
        if result is found:
            result = dict(found)
        if value is GONE:
            del result[name]
        else:
            result[name] = value
    return result


def read_items(found: list[object], read: FieldReader, at: str, flaws: list[Flaw]) -> list[object]:
    """The list with each item as its reader returns it; the same list if nothing is to be changed."""
    result = [read(each, f"{at}[{number}]", flaws) for number, each in enumerate(found)]
    if all(new is old for new, old in zip(result, found, strict=True)):
        return found
    return [each for each in result if each is not GONE]


def text(value: object, at: str, flaws: list[Flaw]) -> object:
    """Read an optional string."""
    return value if isinstance(value, str) else dropped(value, at, "a string", flaws)


def flag(value: object, at: str, flaws: list[Flaw]) -> object:
    """Read an optional boolean."""
    return value if isinstance(value, bool) else dropped(value, at, "true or false", flaws)


def required_text(value: object, at: str, flaws: list[Flaw]) -> object:
    """Read a string without which the item is of no use."""
    return value if isinstance(value, str) else unusable(value, at, "a string", flaws)


def fields(readers: Mapping[str, FieldReader]) -> FieldReader:
    """A reader of an optional object with these fields."""

    def read(value: object, at: str, flaws: list[Flaw]) -> object:
        found = object_in(value)
        return dropped(value, at, "an object", flaws) if found is None else read_fields(found, readers, at, flaws)

    return read


# Stricter than a validator has to be where JavaScript and Python differ: a pattern counts only if it is certain that
# both read it. Source: Ajv 8, which the TypeScript SDK compiles every output schema with.

_LONGEST: Final = 1000
_ESCAPE: Final = r"[dDwWsSnrtfv0^$\\.*+?()\[\]{}|/]|u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}"
_OFTEN: Final = r"(?:(?:[?*+]|\{\d{1,4}(?:,\d{0,4})?\})\??)?"
_PLAIN_PATTERN: Final = re.compile(
    rf"(?>(?:[^\\\[\](){{}}?*+|^$]|\\(?:{_ESCAPE})|\[\^?(?:[^\\\[\]^]|\\(?:{_ESCAPE}|-))+\]|\)){_OFTEN}"
    r"|\((?:\?(?:[:=!]|<[=!]))?|[|^$]|\\[bB])*"
)
"""Patterns that Python and JavaScript (with its flag `u`) read alike, of the parts that schemas are usually made of."""
_LOOKS: Final = re.compile(r"\(\?<?[=!]")
_REPEATED: Final = re.compile(r"\)[?*+{]")
_MEMBER: Final = re.compile(r"\\(?:u.{4}|x.{2}|.)|.", re.DOTALL)
_PIECE: Final = re.compile(r"\\.|\[\^?(?P<inside>(?:[^\\\]]|\\.)+)\]|\{(?P<least>\d+),(?P<most>\d*)\}|[()]", re.DOTALL)
_CONTROLS: Final = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "0": "\0"}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_ID: Final = re.compile(r"(?:https?://[A-Za-z0-9.-]+(?::\d{1,5})?(?:/[A-Za-z0-9_.~/-]*)?|[A-Za-z0-9_./-]*)#?")


def schema_fault(schema: Mapping[str, Any]) -> tuple[str, str] | None:
    """The keyword that can't be compiled, and why."""
    if (too_large := excess(schema)) is not None:
        return "", too_large
    if dead := dead_references(schema):
        return "$ref", f"{shown(dead[0])} names nothing in the schema"
    if (found := misfit(schema, _TAKES)) is not None:
        _, keyword, value = found
        return keyword, f"{shown(value)} is no value for it"
    names = set[str]()
    for _, part in parts(schema):
        for keyword in _NAMES & part.keys():
            if part[keyword] in names:
                return keyword, f"{shown(part[keyword])} names two parts of the schema"
            names.add(part[keyword])
        if "nullable" in part and "type" not in part:
            return "nullable", "it stands without a type"
    return None


def _is_pattern(value: object) -> bool:
    """Whether Python and JavaScript certainly read a pattern; found without compiling it.

    Python's compiler takes 8 ms for 7 bytes such as `[!-\uffff]`, and these are a server's.
    """
    if not isinstance(value, str) or len(value) > _LONGEST or _PLAIN_PATTERN.fullmatch(value) is None:
        return False
    if "(?<" in value or (_LOOKS.search(value) and _REPEATED.search(value)):
        # JavaScript repeats no look-around, Python looks back no varying distance; where one ends is not looked for.
        return False
    depth = 0
    for found in _PIECE.finditer(value):
        depth += {"(": 1, ")": -1}.get(found.group(), 0)
        if depth < 0 or not (_is_ordered(found["least"], found["most"]) and _is_class(found["inside"] or "")):
            return False
    return depth == 0


def _is_ordered(least: str | None, most: str | None) -> bool:
    return not least or not most or int(least) <= int(most)


def _is_class(inside: str) -> bool:
    """Whether the ends of each range in a class are two characters in order."""
    members, at = [found.group() for found in _MEMBER.finditer(inside)], 0
    while at + 2 < len(members):
        if members[at + 1] != "-":
            at += 1
            continue
        low, high = _code(members[at]), _code(members[at + 2])
        if low is None or high is None or low > high:
            return False
        at += 3
    return True


def _code(member: str) -> int | None:
    """The code point of a class's member; None for a set of characters."""
    if len(member) == 1:
        return ord(member)
    if member[1] in "xu":
        return int(member[2:], 16)
    return None if member[1] in "dDwWsS" else ord(_CONTROLS.get(member[1], member[1]))


_NAMES: Final = frozenset(("$id", "$anchor", "$dynamicAnchor"))
_TAKES: Final[Mapping[str, ValueRule]] = {
    **TAKES,
    **dict.fromkeys(
        ("$anchor", "$dynamicAnchor"), lambda value: isinstance(value, str) and bool(_NAME.fullmatch(value))
    ),
    "nullable": lambda value: isinstance(value, bool),
    "patternProperties": lambda value: is_table(value) and all(map(_is_pattern, cast("dict[str, object]", value))),
    "pattern": _is_pattern,
    "enum": lambda value: is_list(value) and bool(value),
    "$id": lambda value: isinstance(value, str) and bool(_ID.fullmatch(value)),
    **dict.fromkeys(
        ("id", "formatMinimum", "formatMaximum", "formatExclusiveMinimum", "formatExclusiveMaximum"), lambda _: False
    ),
}
"""What clients' validators take, which is less than JSON Schema allows."""


# Of the schema of arguments only its properties' own schemas are read. An output schema that clients can't compile is
# dropped (the TypeScript SDK refuses the whole list for one): nothing says which results would fit it.

_OBJECT: Final = "object"


def read_input_schema(value: object, at: str, flaws: list[Flaw]) -> object:
    """Read the schema of a tool's arguments (`FieldReader`)."""
    if value is GONE or value is None or value is True or value == []:
        return mended(value, at, "an object", flaws, {"type": _OBJECT})
    if (found := object_in(value)) is None:
        return unusable(value, at, "an object", flaws)
    if (schema := _with_type(found, at, flaws)) is None:
        return unusable(found["type"], inside(at, "type"), "'object'", flaws)
    return read_fields(schema, _TOP, at, flaws)


def read_output_schema(*, any_type: bool) -> FieldReader:
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


_TOP: Final[Mapping[str, FieldReader]] = {"$schema": text, "properties": _properties, "required": _required}
