"""Takes a JSON Schema apart: follows references, joins `allOf`, and makes one plain schema for each alternative.

A plain schema refers to no other schema on its own level; the schemas of its members are left as they are. Schemas come
from outside: one with more than `MAX_ALTERNATIVES` alternatives, or that takes too many steps, is read without its
alternatives, which allows more. Source: JSON Schema 2020-12, and draft 7's lists of `items`.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from gateway.toolcalls.schema.kinds import ALL, Kinds, hinted_kind, mapping_of, named_kinds
from gateway.toolcalls.schema.pointers import resolve

MAX_ALTERNATIVES = 64
"""Most plain schemas that one schema may give."""

MAX_WORK = 100_000
"""Most work of taking apart the schemas of one grammar: steps, values of an `enum`, members. A unit takes 3 us."""

_MAX_STEPS = 1_000
MAX_PARTS = 64
"""Most schemas considered that must all hold for one value."""

_BOUNDS: dict[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), max),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), min),
}
_OF_OBJECTS = frozenset(("properties", "required", "additionalProperties", "patternProperties"))
_OF_ARRAYS = frozenset(("items", "prefixItems", "additionalItems"))

Schema = Mapping[str, Any]
Parts = tuple[Schema, ...]


class TooMany(Exception):
    """The schema has too many alternatives, or takes too many steps."""


class Work:
    """What may still be spent on taking schemas apart: many places may lead to the same large part."""

    def __init__(self, most: int = MAX_WORK) -> None:
        """`most`: see `MAX_WORK`."""
        self._left = most

    @property
    def is_spent(self) -> bool:
        """Whether some schemas were read as if they allowed everything."""
        return self._left < 0

    def pay(self, parts: Parts, *, joined: bool = False) -> None:
        """Pay for a step with these parts, or for joining them. Raises `TooMany`."""
        self._left -= sum(map(_width, parts)) if joined else len(parts)
        if self._left < 0:
            raise TooMany


def parts_of(schema: object, root: Schema) -> Parts:
    """Return the schemas that must all hold for a value, each once: what references and `allOf` lead to."""
    found: dict[int, Schema] = {}
    todo = [schema]
    while todo and len(found) < MAX_PARTS:
        known = mapping_of(todo.pop(0))
        if not known or id(known) in found:
            continue
        found[id(known)] = known
        todo += listed(known.get("allOf"))
        if isinstance(reference := known.get("$ref"), str):
            todo.append(resolve(reference, root))
    return tuple(found.values())


def alternatives(parts: Parts, root: Schema, work: Work) -> list[Schema]:
    """Return plain schemas such that a value that fits all of `parts` fits one of them."""
    try:
        return spread(parts, root, work)
    except TooMany:
        return [{}] if work.is_spent else _joined(parts)


def spread(parts: Parts, root: Schema, work: Work, look: Callable[[Parts], None] = lambda parts: None) -> list[Schema]:
    """Like `alternatives`, but raises `TooMany`. `look` is called with the schemas that are joined into each one."""
    return _Spread(root, work, look).spread(parts, {}, frozenset())


class _Spread:
    """The alternatives of one schema."""

    def __init__(self, root: Schema, work: Work, look: Callable[[Parts], None]) -> None:
        self._root = root
        self._work = work
        self._look = look
        self._steps = 0
        self._found = 0

    def spread(
        self, parts: Parts, above: Mapping[int, frozenset[int]], done: frozenset[tuple[int, str]]
    ) -> list[Schema]:
        """Take the first choice that has not been made yet, and continue with each of its options.

        `above` holds the schemas whose options led to a part. An option that leads back to one of them adds nothing:
        whatever fits it also fits another option.
        """
        self._steps += 1
        self._work.pay(parts)
        choice = next(((part, key) for part in parts for key in _choices(part) if (id(part), key) not in done), None)
        if self._steps > _MAX_STEPS or self._found > MAX_ALTERNATIVES:
            raise TooMany
        if choice is None:
            self._work.pay(parts, joined=True)
            self._look(parts)
            plain = _joined(parts)
            self._found += len(plain)
            return plain
        part, key = choice
        lineage = above.get(id(part), frozenset()) | {id(part)}
        options = {tuple(map(id, option)): option for option in self._options(part, key)}
        found: list[Schema] = []
        for option in options.values():
            if lineage.isdisjoint(map(id, option)):
                more = tuple({id(one): one for one in (*parts, *option)}.values())
                led = {**above, **{id(one): above.get(id(one), frozenset()) | lineage for one in option}}
                found += self.spread(more, led, done | {(id(part), key)})
        return found

    def _options(self, part: Schema, key: str) -> list[Parts]:
        return [parts_of(option, self._root) for option in listed(part[key]) if option is not False]


def listed(value: object) -> list[Any]:
    """Return a part of a schema as a list, an empty one if it is not a list."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def _width(part: Schema) -> int:
    """How many values of a schema are looked at where it is joined with others."""
    return len(listed(part.get("enum"))) + len(mapping_of(part.get("properties"))) + len(listed(part.get("required")))


def _choices(part: Schema) -> list[str]:
    return [key for key in ("anyOf", "oneOf") if listed(part.get(key))]


def _joined(parts: Parts) -> list[Schema]:
    """Return a list of one schema that says what all parts say; an empty one if they contradict each other."""
    merged: dict[str, Any] = {}
    kinds = _kinds(parts)
    enums = [enum for part in parts if (enum := _enum(part)) is not None]
    if enums:
        spelled = [set(map(_text, enum)) for enum in enums[1:]]
        merged["enum"] = [value for value in enums[0] if all(_text(value) in other for other in spelled)]
    if not kinds or merged.get("enum") == []:
        return []
    if kinds != ALL:
        merged["type"] = sorted(kinds)
    _join_numbers(merged, parts)
    if not all(_OF_OBJECTS.isdisjoint(part) for part in parts):
        _join_objects(merged, parts)
    if not all(_OF_ARRAYS.isdisjoint(part) for part in parts):
        _join_arrays(merged, parts)
    patterns = [part["pattern"] for part in parts if isinstance(part.get("pattern"), str)]
    if patterns:
        merged["pattern"] = patterns[0]
    if "type" not in merged and (hint := hinted_kind(merged)):
        merged["type"] = [hint]
    return [merged]


def _kinds(parts: Parts) -> Kinds:
    """Return the types that all parts allow. An integer is a number."""
    kinds = ALL
    for part in parts:
        own = named_kinds(part.get("type"))
        kinds &= own | {"integer"} if "number" in own else own
    return kinds - {"integer"} if "number" in kinds and kinds != ALL else kinds


def _enum(part: Schema) -> list[Any] | None:
    return [part["const"]] if "const" in part else listed(part.get("enum")) or None


def _join_numbers(merged: dict[str, Any], parts: Parts) -> None:
    for part in parts:
        for key in _BOUNDS.keys() & part.keys():
            value = part[key]
            if is_number(value):
                merged[key] = _BOUNDS[key](value, merged.get(key, value))


def _join_objects(merged: dict[str, Any], parts: Parts) -> None:
    closed = [part for part in parts if part.get("additionalProperties") is False and "patternProperties" not in part]
    known = set[str].intersection(*(set(mapping_of(part.get("properties"))) for part in closed)) if closed else None
    properties: dict[str, list[object]] = {}
    for part in parts:
        for key, value in mapping_of(part.get("properties")).items():
            if known is None or key in known:
                properties.setdefault(key, []).append(value)
    if any("properties" in part for part in parts):
        merged["properties"] = {key: _all_of(values) for key, values in properties.items()}
    names = [name for part in parts for name in listed(part.get("required")) if isinstance(name, str)]
    if names:
        merged["required"] = list(dict.fromkeys(names))
    if any("patternProperties" in part for part in parts):
        # Regular expressions decide which keys these are, so any key is allowed.
        merged["additionalProperties"] = True
    elif extra := [part["additionalProperties"] for part in parts if "additionalProperties" in part]:
        merged["additionalProperties"] = _all_of(extra)


def _join_arrays(merged: dict[str, Any], parts: Parts) -> None:
    items: list[object] = []
    for part in parts:
        fixed = part.get("prefixItems", part.get("items"))
        if listed(fixed):
            merged.setdefault("prefixItems", fixed)
        rest = part.get("additionalItems" if isinstance(part.get("items"), list) else "items")
        if rest is not None:
            items.append(rest)
    if items:
        merged["items"] = _all_of(items)


def _all_of(schemas: Iterable[object]) -> object:
    """Return one schema for several; `true` adds nothing, `false` overrides all."""
    given = [schema for schema in schemas if schema is not True]
    if False in given:
        return False
    return given[0] if len(given) == 1 else {"allOf": given} if given else True


def is_number(value: object) -> bool:
    """Whether a part of a schema is a number; JSON's booleans are not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=dict)
