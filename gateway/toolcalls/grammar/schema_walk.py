"""Schemas to GBNF in any syntax: which rule stands for which schema, and which schemas have a value at all.

A schema that refers to itself becomes a rule that does: only the length of the answer bounds how deep a value goes. Two
schemas that consist of the same parts share a rule. Work on a schema from outside has a bound; beyond it a value is any
JSON.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator

from gateway.toolcalls.grammar.gbnf import Grammar
from gateway.toolcalls.schema.json_types import ALL, mapping_of, named_kinds
from gateway.toolcalls.schema.merge import Parts, Schema, alternatives, is_number, listed, parts_of, united

MAX_VISITS = 10_000
"""Most schemas that are visited for one tool."""

MAX_DEPTH = 64
"""Most levels of schemas inside schemas, before one of them occurs again."""

MAX_KEYS = 256
"""Most optional members that an object may name: the engine tries each that may come next, one after the other."""

Key = frozenset[int]


class SchemaWalk(ABC):
    """The rules of one schema. A value's expression is "" where the schema has no value of finite length."""

    def __init__(self, g: Grammar, root: Schema, name: str) -> None:
        self.g = g
        self.root = root
        self.name = name
        self._rules: dict[Key, str] = {}
        self._known: dict[Key, list[Schema]] = {}
        self._ending: set[Key] = set()
        self._parts: list[Parts] = []
        self._visits = 0
        self._depth = 0

    @abstractmethod
    def plain(self, schema: Schema) -> str:
        """Return the expression for values of a schema without references and alternatives; "" where it has none."""

    @abstractmethod
    def anything(self) -> str:
        """Return the expression for any value."""

    def beyond(self) -> str:
        """Return the expression for a schema that is too large to be read: by default any value."""
        return self.anything()

    def alternatives(self, parts: Parts) -> list[Schema]:
        """Return the plain schemas of which a value that fits all of `parts` fits one."""
        return alternatives(parts, self.root, self.g.work)

    def value(self, schema: object) -> str:
        """Return the expression for values of any schema."""
        if schema is False:
            return ""
        parts = parts_of(schema, self.root)
        key = self.key(parts)
        if not key:
            return self.anything()
        if self._visits > MAX_VISITS or self._depth == MAX_DEPTH:
            return self.beyond()
        if key in self._rules:
            return self._rules[key]
        if not self._ends(parts, frozenset()):
            return ""
        self._depth += 1
        value = self._ruled(key, parts)
        self._depth -= 1
        return value

    def _ruled(self, key: Key, parts: Parts) -> str:
        """Write the expression for a value; as a rule of its own where the value may contain itself."""
        self._visits += 1
        plain = self.plain_schemas(parts)
        if all(kinds(schema).isdisjoint(("object", "array")) for schema in plain):
            return self.g.either(filter(None, map(self.plain, plain)))
        name = self._rules[key] = self.g.reserve(f"{self.name}-value")
        self.g.define(name, self.g.either(filter(None, map(self.plain, plain))) or self.beyond())
        return name

    def plain_schemas(self, parts: Parts) -> list[Schema]:
        """Return the plain schemas of which a value must fit one."""
        key = self.key(parts)
        if key not in self._known:
            self._known[key] = united(self.alternatives(parts))
        return self._known[key]

    def required(self, schema: Schema) -> list[str]:
        """Return the required members: those that the schema describes, in its order, then the others."""
        names, known = schema.get("required", ()), schema.get("properties", ())
        return [*(key for key in known if key in names), *(key for key in names if key not in known)]

    def key(self, parts: Parts) -> Key:
        """Return a key for a schema: the addresses of its parts, which are the same objects wherever they are used.

        The parts are kept, so that no address is reused.
        """
        self._parts.append(parts)
        return frozenset(map(id, parts))

    def _ends(self, parts: Parts, inside: frozenset[Key]) -> bool:
        """Whether a value of finite length fits; `inside` are the schemas that the value would be in."""
        key = self.key(parts)
        self._visits += 1
        if not key or key in self._ending or self._visits > MAX_VISITS:
            return True
        if key in inside or len(inside) > MAX_DEPTH:
            return len(inside) > MAX_DEPTH
        if any(self._plain_ends(schema, inside | {key}) for schema in self.plain_schemas(parts)):
            self._ending.add(key)
        return key in self._ending

    def _plain_ends(self, schema: Schema, inside: frozenset[Key]) -> bool:
        if kinds(schema) - {"object", "array"} or "enum" in schema:
            return True
        return any(
            all(each is not False and self._ends(parts_of(each, self.root), inside) for each in must)
            for must in self._needed(schema)
        )

    def _needed(self, schema: Schema) -> Iterator[list[object]]:
        """Yield, for each container type that a schema allows, the schemas of its required contents."""
        properties = mapping_of(schema.get("properties"))
        if "object" in kinds(schema):
            yield [properties.get(name, unnamed(schema)) for name in self.required(schema)]
        if "array" in kinds(schema):
            fixed = listed(schema.get("prefixItems"))
            least, _ = length_bounds(schema)
            yield [*fixed, *([schema.get("items", True)] if least > len(fixed) else [])]


def unnamed(schema: Schema) -> object:
    """Return the schema for a required member that has none of its own."""
    return schema.get("additionalProperties") or True


def kinds(schema: Schema) -> frozenset[str]:
    """Return the types of a plain schema."""
    return named_kinds(schema["type"]) if "type" in schema else ALL


def length_bounds(schema: Schema) -> tuple[int, int | None]:
    """Return the least and the greatest number of items in an array; None: no greatest."""
    return bounds(schema, "minItems", "maxItems")


def bounds(schema: Schema, least: str, most: str) -> tuple[int, int | None]:
    """Return a least and a greatest count of the schema; where they contradict each other, the least one wins."""
    low, high = _count(schema.get(least)) or 0, _count(schema.get(most))
    return low, None if high is None else max(low, high)


def _count(value: object) -> int | None:
    return int(value) if is_number(value) and isinstance(value, int | float) and 0 <= value < 2**53 else None
