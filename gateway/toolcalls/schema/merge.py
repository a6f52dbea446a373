"""Takes a JSON Schema apart: follows references, joins `allOf`, and makes one plain schema for each alternative.

A plain schema refers to no other schema on its own level; the schemas of its members are left as they are. Schemas come
from outside: one with more than `MAX_ALTERNATIVES` alternatives, or that takes too many steps, is read without its
alternatives, which allows more. Source: JSON Schema 2020-12, and draft 7's lists of `items`.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from gateway.toolcalls.schema.json_types import ALL, Kinds, followed, hinted_kind, kinds_of, mapping_of, named_kinds
from gateway.toolcalls.schema.keywords import BY_NAME, resolve

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
        if self._steps > _MAX_STEPS or self._found >= MAX_ALTERNATIVES:
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
    # What one part says of all further items, another may say of single ones: the longest list leaves none out.
    fixed = max((listed(part.get("prefixItems", part.get("items"))) for part in parts), key=len)
    if fixed:
        merged["prefixItems"] = fixed
    items: list[object] = []
    for part in parts:
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


# Alternatives that differ only in how many items, members or characters they allow, as one.
#
# A grammar would write each with the same beginning. The union is exact: counts with a gap between them stay apart.
# Pure.

_PAIRS: Final = (("minItems", "maxItems"), ("minLength", "maxLength"), ("minProperties", "maxProperties"))


def united(plain: Sequence[Schema]) -> list[Schema]:
    """Return plain schemas that allow the same values as these together, as few as their counts show."""
    found = list(plain)
    for low, high in _PAIRS:
        if len(found) > 1 and any(low in each or high in each for each in found):
            found = _united_by(found, low, high)
    return found


def _united_by(plain: Sequence[Schema], low: str, high: str) -> list[Schema]:
    alike: dict[str, list[Schema]] = {}
    for each in plain:
        rest = {key: value for key, value in each.items() if key not in (low, high)}
        alike.setdefault(json.dumps(rest, sort_keys=True, default=dict), []).append(each)
    return [one for group in alike.values() for one in (_joined_counts(group, low, high) if len(group) > 1 else group)]


def _joined_counts(group: Sequence[Schema], low: str, high: str) -> list[Schema]:
    """Join the ranges of schemas that are otherwise the same; ranges that no reader can be sure of stay as they are."""
    if not all(is_number(each.get(key, 0)) for each in group for key in (low, high)):
        return list(group)
    ranges: list[tuple[float, float]] = []
    for least, most in sorted((each.get(low, 0), each.get(high, float("inf"))) for each in group):
        if ranges and least <= ranges[-1][1] + 1:
            ranges[-1] = ranges[-1][0], max(most, ranges[-1][1])
        elif least <= most:
            ranges.append((least, most))
    return [_ranged(group[0], low, least, high, most) for least, most in ranges] or list(group)


def _ranged(schema: Mapping[str, Any], low: str, least: float, high: str, most: float) -> Schema:
    rest = {key: value for key, value in schema.items() if key not in (low, high)}
    return {**rest, **({low: least} if least else {}), **({high: most} if most != float("inf") else {})}


# Simpler forms of a tool's schema, for chat templates that fail on a legal one.
#
# Templates read schemas as their authors met them: `param.default` fails on a property that is `true`, `type in (...)`
# where there is no `type`, a loop on `required` where that is null. `tidied` mends and fills in what they trip over,
# and says the same or less; `typed` gives every part one plain type and drops the rest. Only what the model reads
# changes: calls are read and checked by the tool's own schema. Schemas come from outside, so any JSON is taken. Pure.

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
