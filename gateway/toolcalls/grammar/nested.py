"""Schemas to GBNF for families that spell nested values in a syntax of their own: what all of them share.

A family says how it spells a member, a choice and a value of each type (`nodes/gemma_object.py`, `elements.py`);
`schema_walk.py` decides which rule stands for which schema.
"""

from abc import abstractmethod
from collections.abc import Sequence

from gateway.toolcalls.grammar.raw import arguments_in_order
from gateway.toolcalls.grammar.schema_walk import SchemaWalk, kinds
from gateway.toolcalls.schema.kinds import ALL, mapping_of
from gateway.toolcalls.schema.merge import Schema, parts_of


class NestedRules(SchemaWalk):
    """The rules of one schema. A value's expression is "" where its schema has no value of finite length."""

    def arguments(self) -> str | None:
        """Return the expression for the members of the arguments object, as `members` does."""
        plain = self.plain_schemas(parts_of(self.root, self.root)) or [{}]
        found = [members for schema in plain if (members := self.members(schema)) is not None]
        return self.g.either(found) if found else None

    @abstractmethod
    def member(self, key: str, value: str) -> str:
        """Return the expression for a member whose value has the expression `value`."""

    @abstractmethod
    def choice(self, values: Sequence[object]) -> str:
        """Return the expression for one of the values of an enumeration."""

    @abstractmethod
    def of_kind(self, kind: str, schema: Schema) -> str:
        """Return the expression for a value of one type."""

    def members(self, schema: Schema, separator: str = "") -> str | None:
        """Return the members that the schema names, the required ones first; None if a required one has no value."""
        known = mapping_of(schema.get("properties"))
        values = {key: self.value(value) for key, value in known.items()}
        required = [key for key in self.required(schema) if key in values]
        if not all(values[key] for key in required):
            return None
        present = {key: known[key] for key, value in values.items() if value}
        return arguments_in_order(
            self.g,
            {"properties": present, "required": required},
            lambda key, _: self.member(key, values[key]),
            separator,
        )

    def plain(self, schema: Schema) -> str:
        """Return the expression for values of a schema that names no other on its own level."""
        if "enum" in schema:
            return self.choice(schema["enum"])
        known = kinds(schema)
        if known == ALL:
            return self.anything()
        return self.g.either(filter(None, (self.of_kind(kind, schema) for kind in sorted(known))))
