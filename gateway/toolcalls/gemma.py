"""A call as Gemma 4 writes it: `call:f{city:<|"|>Paris<|"|>,days:3}`, read into a name and a JSON object.

Keys stand without quotes, strings between markers of their own and without escapes. Below: `literal`, by way of
`typed`, and `raw_gbnf`. Above: `formats`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from gateway.toolcalls.cursor import Cursor
from gateway.toolcalls.gbnf import Grammar
from gateway.toolcalls.kinds import ALL, followed, kinds_of, mapping_of, options_of, resolve
from gateway.toolcalls.literal import GEMMA
from gateway.toolcalls.nodes import First, Marker, Node, Steps
from gateway.toolcalls.raw_gbnf import arguments_in_order, choices_of, raw_text
from gateway.toolcalls.schema_gbnf import MAX_LEVELS, length_bounds, value_rules
from gateway.toolcalls.spelling import Spelling
from gateway.toolcalls.typed import read_literal

_QUOTE = GEMMA.quotes[0]
_MAX_DEPTH = 32

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class GemmaObject(Node):
    """The arguments object; the call is told where it begins."""

    def first(self, spelling: Spelling) -> First:
        """Give the opening brace."""
        return ("{",)

    def run(self, at: Cursor) -> Steps:
        """Tell the call, and its arguments as they come."""
        at.start_call()
        return (yield from read_literal(at, GEMMA))

    def grammar(self, g: Grammar) -> str:
        """Give the object, after the tool's schema."""
        root = g.current.parameters
        return _Rules(g, root).arguments(followed(root, root)) or g.literal("{}")

    def children(self) -> tuple[Node, ...]:
        """Give the marker around strings."""
        return (Marker(_QUOTE),)


class _Rules:
    """The rules of one schema. A method gives "" where its schema has no value within the levels that are left."""

    def __init__(self, g: Grammar, root: Schema) -> None:
        self._g = g
        self._root = root
        self._references: dict[tuple[str, int], str] = {}
        self._level = 0
        self._depth = 0

    def arguments(self, schema: Schema) -> str:
        """Give an object with the members that the schema names."""
        known = mapping_of(schema.get("properties"))
        values = {key: self._value(value) for key, value in known.items()}
        required = [key for key in _listed(schema.get("required")) if key in values]
        if not all(values[key] for key in required):
            return ""

        def write(key: str, _: object) -> str:
            return f"{self._g.literal(f'{key}:')} {values[key]}"

        present = {key: known[key] for key, value in values.items() if value}
        members = arguments_in_order(self._g, {"properties": present, "required": required}, write, ",")
        return " ".join(filter(None, (self._g.literal("{"), members, self._g.literal("}"))))

    def _value(self, schema: object) -> str:
        """Give one value; a schema that is nested too deep, as none that people write is, means any text."""
        known = mapping_of(schema)
        if self._depth == _MAX_DEPTH:
            return self._of_kind("string", {})
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
            value = self._value(resolve(reference, self._root))
            self._level -= 1
            self._references[key] = self._g.rule("ref", value) if value else ""
        return self._references[key]

    def _known(self, schema: Schema) -> str:
        g = self._g
        if choices := choices_of(schema):
            return g.either(self._literal(choice) for choice in choices)
        if "properties" not in schema and (options := options_of(schema)):
            return g.either(filter(None, map(self._value, options)))
        kinds = kinds_of(schema, self._root)
        kinds = frozenset({"string", "number", "boolean"}) if kinds == ALL else kinds
        return g.either(filter(None, (self._of_kind(kind, schema) for kind in sorted(kinds))))

    def _literal(self, value: object) -> str:
        if isinstance(value, str):
            return f"({self._g.markup(f'{_QUOTE}{{value}}{_QUOTE}', value=value)})"
        return self._g.literal(json.dumps(value, ensure_ascii=False))

    def _of_kind(self, kind: str, schema: Schema) -> str:
        g = self._g
        match kind:
            case "string":
                return f"({g.markup(_QUOTE)} {raw_text(g, schema, _QUOTE)} {g.markup(_QUOTE)})"
            case "object":
                value = self.arguments(schema)
                return f"({value})" if value else ""
            case "array":
                return self._array(schema)
            case _:
                return value_rules(g, {**schema, "type": kind}, self._root, "value")

    def _array(self, schema: Schema) -> str:
        g = self._g
        if fixed := _listed(schema.get("prefixItems")):
            values = list(map(self._value, fixed))
            inside = f" {g.literal(',')} ".join(values)
            return f"({g.literal('[')} {inside} {g.literal(']')})" if all(values) else ""
        least, most = length_bounds(schema)
        item = self._value(schema.get("items")) if most else ""
        if least and not item:
            return ""
        items = g.repeat(item, g.literal(","), least, most)
        return f"({' '.join(filter(None, (g.literal('['), items, g.literal(']'))))})"


def _listed(value: object) -> list[Any]:
    return cast(list[Any], value) if isinstance(value, list) else []
