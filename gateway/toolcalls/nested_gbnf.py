"""Schemas to GBNF for families that spell nested values in a syntax of their own: what all of them share.

Walks a schema with its references, alternatives, members and lists; a family says how it spells each (`gemma`,
`element_gbnf`). Every depth has a bound: references become a rule for each level, so that no rule refers to itself.
Below: `gbnf`, `kinds`, `raw_gbnf`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, cast

from gateway.toolcalls.gbnf import Grammar
from gateway.toolcalls.kinds import ALL, Kinds, followed, kinds_of, mapping_of, options_of, resolve
from gateway.toolcalls.raw_gbnf import arguments_in_order, choices_of
from gateway.toolcalls.schema_gbnf import MAX_LEVELS

_MAX_DEPTH = 32

Schema = Mapping[str, Any]


class NestedRules(ABC):
    """The rules of one schema. A value is "" where its schema has none within the levels that are left."""

    def __init__(self, g: Grammar, root: Schema) -> None:
        self.g = g
        self.root = root
        self._references: dict[tuple[str, int], str] = {}
        self._level = 0
        self._depth = 0

    def arguments(self) -> str | None:
        """Give the members of the arguments object, as `members` does."""
        return self.members(followed(self.root, self.root))

    @abstractmethod
    def member(self, key: str, value: str) -> str:
        """Give a member whose value is written so."""

    @abstractmethod
    def choice(self, value: object) -> str:
        """Give one value of an enumeration."""

    @abstractmethod
    def of_kind(self, kind: str, schema: Schema) -> str:
        """Give a value of one type."""

    def text(self, schema: Schema, kinds: Kinds) -> str:
        """Give a value whose text decides what it is, "" where nothing in these types does."""
        del schema, kinds
        return ""

    def members(self, schema: Schema, separator: str = "") -> str | None:
        """Give the members that the schema names, the required ones first; None if a required one has no value."""
        known = mapping_of(schema.get("properties"))
        values = {key: self.value(value) for key, value in known.items()}
        required = [key for key in listed(schema.get("required")) if key in values]
        if not all(values[key] for key in required):
            return None
        present = {key: known[key] for key, value in values.items() if value}
        return arguments_in_order(
            self.g,
            {"properties": present, "required": required},
            lambda key, _: self.member(key, values[key]),
            separator,
        )

    def value(self, schema: object) -> str:
        """Give one value; a schema that is nested too deep, as none that people write is, means any text."""
        known = mapping_of(schema)
        if self._depth == _MAX_DEPTH:
            return self.of_kind("string", {})
        self._depth += 1
        reference = known.get("$ref")
        value = self._reference(reference) if isinstance(reference, str) else self._known(known)
        self._depth -= 1
        return value

    def _reference(self, reference: str) -> str:
        """Give a reference as a rule of its own for each level, so that no rule refers to itself."""
        key = reference, self._level
        if self._level == MAX_LEVELS:
            return ""
        if key not in self._references:
            self._level += 1
            value = self.value(resolve(reference, self.root))
            self._level -= 1
            self._references[key] = self.g.rule("ref", value) if value else ""
        return self._references[key]

    def _known(self, schema: Schema) -> str:
        kinds = kinds_of(schema, self.root)
        if text := self.text(schema, kinds):
            return text
        if choices := choices_of(schema):
            return self.g.either(self.choice(choice) for choice in choices)
        if "properties" not in schema and (options := options_of(schema)):
            return self.g.either(filter(None, map(self.value, options)))
        kinds = frozenset({"string", "number", "boolean"}) if kinds == ALL else kinds
        return self.g.either(filter(None, (self.of_kind(kind, schema) for kind in sorted(kinds))))


def listed(value: object) -> list[Any]:
    """Give a part of a schema as a list, an empty one where it is none."""
    return cast(list[Any], value) if isinstance(value, list) else []
