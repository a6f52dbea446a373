"""A JSON Schema to a grammar that accepts only texts that fit it, or the reason why there is none.

Calls may be held loosely, since their arguments are checked again before a tool sees them; an answer goes to its client
as it is written. So a keyword that GBNF can't express is refused by name, and so is a schema so large that the walk
would leave something out. Keywords that only describe a value are ignored. Source: JSON Schema 2020-12, and draft 7.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Any, Final

from gateway.toolcalls.grammar.gbnf import MAX_COUNT, MAX_COUNTED, Grammar
from gateway.toolcalls.grammar.schema_walk import MAX_VISITS, SchemaWalk, kinds
from gateway.toolcalls.grammar.schemas import JsonRules, schema_rules
from gateway.toolcalls.grammar.supported_keywords import check_keywords, check_plain, check_together, refuse
from gateway.toolcalls.schema.json_types import ALL, mapping_of
from gateway.toolcalls.schema.keywords import excess, parts, resolve
from gateway.toolcalls.schema.merge import (
    MAX_ALTERNATIVES,
    MAX_PARTS,
    Parts,
    Schema,
    TooMany,
    Work,
    listed,
    parts_of,
    spread,
)

# Which listed values are of a schema's types, and whether two schemas may share a value. Pure.


def with_fitting(schema: Schema) -> Schema:
    """Return a plain schema with only those of its `enum` values that are of its types."""
    if "enum" not in schema or "type" not in schema:
        return schema
    return {**schema, "enum": [value for value in schema["enum"] if _kinds_of(value) & kinds(schema)]}


def _kinds_of(value: object) -> frozenset[str]:
    match value:
        case None:
            return frozenset({"null"})
        case bool():
            return frozenset({"boolean"})
        case int() | float():
            return frozenset({"integer", "number"} if value == value // 1 else {"number"})
        case str():
            return frozenset({"string"})
        case list():
            return frozenset({"array"})
        case _:
            return frozenset({"object"})


class Option:
    """One schema of `oneOf`, read once for comparison with the others."""

    def __init__(self, parts: Parts) -> None:
        self._kinds = _said_kinds(parts)
        self._values = _values(parts)
        self._tags = _tags(parts)

    def is_apart(self, other: "Option") -> bool:
        """Whether no value can fit both, by type, by listed values, or by a required member that must differ."""
        if self._kinds.isdisjoint(other._kinds):
            return True
        if self._values is not None and other._values is not None:
            return self._values.isdisjoint(other._values)
        if self._kinds | other._kinds != frozenset({"object"}):
            return False
        both = self._tags.keys() & other._tags.keys()
        return any(self._tags[name].isdisjoint(other._tags[name]) for name in both)


def _said_kinds(parts: Parts) -> frozenset[str]:
    found: frozenset[str] = ALL
    for part in parts:
        if "type" in part:
            found &= kinds(part) | ({"integer"} if "number" in kinds(part) else set())
    return found


def _values(parts: Parts) -> frozenset[object] | None:
    """Return the values that a schema lists, if it does and they are simple; 1 equals 1.0, but not true."""
    given: list[list[object]] = [
        [part["const"]] if "const" in part else listed(part["enum"])
        for part in parts
        if "const" in part or "enum" in part
    ]
    if not given or any(isinstance(value, list | dict) for value in given[0]):
        return None
    return frozenset((isinstance(value, bool), value) for value in given[0])


def _tags(parts: Parts) -> dict[str, frozenset[object]]:
    required = {name for part in parts for name in listed(part.get("required")) if isinstance(name, str)}
    members = [(name, member) for part in parts for name, member in mapping_of(part.get("properties")).items()]
    found = {name: _values((mapping_of(member),)) for name, member in members if name in required}
    return {name: values for name, values in found.items() if values is not None}


# How many ways a grammar may have to keep open at once for one schema, and whether that is too many for an engine.
#
# llama.cpp follows all alternatives that begin alike side by side, each as a stack of its own, and tries every token of
# the vocabulary against every stack, in the loop that serves everybody. Alternatives inside alternatives multiply: 18
# nested choices of three arrays each are 3^18 stacks. The number found here is at least the real one. Pure.

MAX_WAYS: Final = 128
"""Most ways in which what was written so far can be read: a few milliseconds a token for the engine."""
MAX_KEY_WAYS: Final = 512
"""The same where the name of a member comes next, which is soon decided."""

_LEAST_WORK: Final = 1_000
"""Work for a schema without a character; each character adds one, so that many tools cost no more than a large one."""
_CHOICES: Final = frozenset(("anyOf", "oneOf", "allOf", "$ref"))


def has_too_many_ways(schema: Mapping[str, Any]) -> bool:
    """Whether no grammar should hold a tool to this schema: it is too large, or an engine could not follow it."""
    return excess(schema) is not None or _has_too_many_ways(json.dumps(schema, default=dict))


@lru_cache(maxsize=512)
def _has_too_many_ways(schema_text: str) -> bool:
    schema: Mapping[str, Any] = json.loads(schema_text)
    if not _has_choices(schema):
        return False
    g = Grammar((), parallel=False, schemas=schema_rules, work=Work(_LEAST_WORK + len(schema_text)))
    return is_ambiguous(JsonRules(g, schema, "x")) or g.work.is_spent


def is_ambiguous(walk: SchemaWalk) -> bool:
    """Whether some value of a schema can be read in more than `MAX_WAYS` ways while it is being written."""
    waiting: list[tuple[object, int]] = [(walk.root, 1)]
    most: dict[frozenset[int], int] = {}
    for _ in range(MAX_VISITS):
        if not waiting:
            return False
        schema, ways = waiting.pop()
        joined = parts_of(schema, walk.root)
        key = walk.key(joined)
        if not key or most.get(key, 0) >= ways:
            continue
        most[key] = ways
        plain = walk.plain_schemas(joined)
        for each in plain:
            together = ways * sum(_may_begin_alike(each, other) for other in plain)
            if together > MAX_WAYS or together * _own_ways(each) > MAX_KEY_WAYS:
                return True
            waiting += ((inner, together) for inner in _inside(each))
    return True


def _has_choices(schema: Mapping[str, Any]) -> bool:
    """Whether a schema has any alternatives at all, which most of tools don't have."""
    return any(not _CHOICES.isdisjoint(part) for _, part in parts(schema))


def _may_begin_alike(one: Schema, other: Schema) -> bool:
    """Whether values of two plain schemas can have the same beginning, up to the first value inside them."""
    both = kinds(one) & kinds(other)
    if "enum" in one or "enum" in other:
        return one is other
    return bool(both - {"object"}) or ("object" in both and not _are_told_apart(_first(one), _first(other)))


def _first(schema: Schema) -> tuple[str, Sequence[object] | None] | None:
    """The name of an object's first member, with its values if they are listed; None where several may be first."""
    required, properties = listed(schema.get("required")), mapping_of(schema.get("properties"))
    name = next((each for each in properties if each in required), None)
    if name is None:
        return None
    first = mapping_of(properties[name])
    return name, [first["const"]] if "const" in first else listed(first.get("enum")) or None


def _are_told_apart(
    one: tuple[str, Sequence[object] | None] | None, other: tuple[str, Sequence[object] | None] | None
) -> bool:
    if one is None or other is None:
        return False
    if one[0] != other[0]:
        return True
    return one[1] is not None and other[1] is not None and not any(value in other[1] for value in one[1])


def _own_ways(schema: Schema) -> int:
    """The ways that one plain schema has by itself: members that may come next, alternatives of a pattern."""
    required = listed(schema.get("required"))
    optional = sum(name not in required for name in mapping_of(schema.get("properties")))
    pattern = schema.get("pattern")
    return max(1, optional, 1 + pattern.count("|") if isinstance(pattern, str) else 1)


def _inside(schema: Schema) -> Iterator[object]:
    known = kinds(schema)
    if "enum" in schema:
        return
    if "object" in known:
        yield from mapping_of(schema.get("properties")).values()
        yield schema.get("additionalProperties")
    if "array" in known:
        yield from listed(schema.get("prefixItems"))
        yield schema.get("items")


_TOO_MANY: Final = "the schema has too many alternatives in one place"
_NEGATED: Final = re.compile(r"(?<!\\)(?:\\\\)*\\[DSW]")
_OLD: Final = re.compile(r"draft-0\d|2019-09")


def exact_rules(g: Grammar, schema: Schema, name: str) -> str:
    """Return the expression for the values of a schema. Raises `NotHeld`."""
    walk = _Exact(g, schema, name)
    if is_ambiguous(walk):
        refuse(
            "too many of its alternatives begin alike, one inside the other; give each a first required member with a "
            "`const` of its own, or fewer alternatives"
        )
    written = walk.value(schema) or refuse("no value of finite length fits the schema")
    if not g.exact:
        refuse(f"a count exceeds {MAX_COUNT}, or all of them together {MAX_COUNTED}, the most that a grammar takes")
    return written


class _Exact(JsonRules):
    """The rules of one schema, as JSON; none accepts more than the schema does."""

    def __init__(self, g: Grammar, root: Schema, name: str) -> None:
        super().__init__(g, root, name)
        self._surveyed: dict[int, Schema | None] = {}
        """Surveyed schemas, by their addresses; None while their parts are being surveyed."""

    def beyond(self) -> str:
        """Refuse a part that is too large to be written."""
        refuse("the schema is too large or too deeply nested")

    def alternatives(self, parts: Parts) -> list[Schema]:
        """Return all plain schemas, or refuse."""
        for part in parts:
            self._survey(part, 0)
        try:
            plain = spread(parts, self.root, self.g.work, check_together)
        except TooMany:
            refuse(_TOO_MANY)
        for schema in plain:
            check_plain(schema)
        return [fitting for schema in plain if (fitting := with_fitting(schema)).get("enum") != []]

    def _survey(self, part: Schema, depth: int) -> None:
        """Look at a schema, and at all others that may hold for the same value; refuse whatever is not held."""
        if id(part) in self._surveyed:
            if self._surveyed[id(part)] is None:
                refuse("a schema refers to itself without a member or an item in between")
            return
        if depth > MAX_PARTS:
            self.beyond()
        self._surveyed[id(part)] = None
        self._look_at(part)
        beside = [option for key in ("allOf", "anyOf", "oneOf") for option in listed(part.get(key))]
        if "$ref" in part:
            beside.append(resolve(part["$ref"], self.root))
        for other in filter(None, map(mapping_of, beside)):
            self._survey(other, depth + 1)
        self._surveyed[id(part)] = part

    def _look_at(self, part: Schema) -> None:
        check_keywords(part)
        self._check_references(part)
        self._check_one_of(part)
        if part is not self.root and ("$id" in part or "$schema" in part):
            refuse("a schema inside the schema has an `$id` or `$schema` of its own")
        if "prefixItems" in part and _OLD.search(str(self.root.get("$schema"))):
            refuse("`prefixItems` is not a keyword of the draft that `$schema` names")

    def _check_references(self, part: Schema) -> None:
        reference = part.get("$ref")
        if reference is not None and (
            not isinstance(reference, str) or not isinstance(resolve(reference, self.root), Mapping)
        ):
            refuse(f"`$ref` {str(reference)[:100]!r} points to no schema inside this one; write it as `#/$defs/NAME`")
        if False in listed(part.get("allOf")):
            refuse("no value fits `false` in `allOf`")

    def _check_one_of(self, part: Schema) -> None:
        given = [option for option in listed(part.get("oneOf")) if option is not False]
        if len(given) > MAX_ALTERNATIVES:
            # Checked before every one is compared with every other.
            refuse(_TOO_MANY)
        options = [Option(parts_of(option, self.root)) for option in given]
        for one, other in combinations(options, 2):
            if not one.is_apart(other):
                refuse("a value may fit two schemas of `oneOf`; use `anyOf`, or give each a `const` of its own")

    def pattern(self, pattern: str) -> str:
        """Return the expression for the texts in which a pattern matches, or refuse."""
        if _NEGATED.search(pattern):
            refuse(
                f"`pattern` {pattern[:100]!r} uses `\\D`, `\\S` or `\\W`, whose meaning differs between readers; "
                "use a negated class such as `[^0-9]`"
            )
        return super().pattern(pattern) or refuse(
            f"`pattern` {pattern[:100]!r} is too long or too complex for a grammar, which can express "
            "characters, classes, groups, alternatives and counts"
        )
