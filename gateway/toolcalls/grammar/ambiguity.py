"""How many ways a grammar may have to keep open at once for one schema, and whether that is too many for an engine.

llama.cpp follows all alternatives that begin alike side by side, each as a stack of its own, and tries every token of
the vocabulary against every stack, in the loop that serves everybody. Alternatives inside alternatives multiply: 18
nested choices of three arrays each are 3^18 stacks. The number found here is at least the real one. Pure.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from gateway.toolcalls.grammar.gbnf import Grammar
from gateway.toolcalls.grammar.schema_walk import MAX_VISITS, SchemaWalk, kinds
from gateway.toolcalls.grammar.schemas import JsonRules, schema_rules
from gateway.toolcalls.schema.budget import excess
from gateway.toolcalls.schema.keyword_values import parts
from gateway.toolcalls.schema.kinds import mapping_of
from gateway.toolcalls.schema.merge import Schema, Work, listed, parts_of

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
