"""The grammar of arguments written as elements of the same names, with elements inside for members that a schema names.

Text that may be a string has no mark in it; an object or a list whose contents the schema does not describe is JSON.
"""

import json
from collections.abc import Sequence

from gateway.toolcalls.grammar.gbnf import Grammar
from gateway.toolcalls.grammar.nested import NestedRules
from gateway.toolcalls.grammar.raw import raw_value
from gateway.toolcalls.grammar.schema_walk import length_bounds
from gateway.toolcalls.grammar.schemas import value_rules
from gateway.toolcalls.grammar.texts import one_of
from gateway.toolcalls.schema.kinds import kinds_of, mapping_of
from gateway.toolcalls.schema.merge import Schema

ITEM = "item"
"""The name of an element that is an item of a list."""


class ElementRules(NestedRules):
    """The rules of one schema, with `mark` before every tag."""

    def __init__(self, g: Grammar, root: Schema, mark: str) -> None:
        super().__init__(g, root, "element")
        self._mark = mark

    def member(self, key: str, value: str) -> str:
        """Return a value between its tags."""
        head = self.g.markup(f"{self._mark}<{{key}}>", key=key)
        return f"{head} {value} {self.g.markup(f'{self._mark}</{{key}}>', key=key)}"

    def choice(self, values: Sequence[object]) -> str:
        """Return the expression for one of some values as JSON; `raw_value` writes strings."""
        return one_of(self.g, (json.dumps(value, ensure_ascii=False) for value in values))

    def value(self, schema: object) -> str:
        """Return the expression for one value: where the schema allows a string, text without any tag."""
        if "string" in kinds_of(schema, self.root):
            return raw_value(self.g, schema, self.root, self._mark)
        return super().value(schema)

    def anything(self) -> str:
        """Return the expression for any text."""
        return raw_value(self.g, True, self.root, self._mark)

    def of_kind(self, kind: str, schema: Schema) -> str:
        """Return the expression for a value of one type: elements where the schema names what is in it, else JSON."""
        g = self.g
        if kind == "object" and mapping_of(schema.get("properties")):
            members = self.members(schema)
            return f"({members})" if members else ""
        least, most = length_bounds(schema)
        if kind == "array" and mapping_of(schema.get("items")) and "prefixItems" not in schema and most != 0:
            item = self.value(schema["items"])
            if item:
                return g.repeat(self.member(ITEM, item), "", least, most)
            return "" if least else g.literal("[]")
        return value_rules(g, {**schema, "type": kind}, self.root, "value")
