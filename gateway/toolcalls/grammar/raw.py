"""Values to GBNF in syntaxes other than JSON's: without quotes between tags, nested, and as elements."""

import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gateway.toolcalls.grammar.gbnf import Grammar, one_of, text_without
from gateway.toolcalls.grammar.patterns import PlainText, pattern_rules
from gateway.toolcalls.grammar.schema_walk import SchemaWalk, bounds, kinds, length_bounds
from gateway.toolcalls.grammar.schemas import value_rules
from gateway.toolcalls.schema.json_types import ALL, kinds_of, mapping_of
from gateway.toolcalls.schema.merge import Schema, alternatives, parts_of

# Values without quotes to GBNF: what a model may write between the tags of an argument.
#
# A string is text that does not contain its closing tag; a value of any other type is JSON that follows its schema.


def raw_value(g: Grammar, schema: object, root: Schema, closer: str, *, paired: bool = False) -> str:
    """Return the expression for a value that stands before `closer`.

    With `paired`, a newline at the beginning would be markup: a string begins with something else, or is empty.
    """
    plain = alternatives(parts_of(schema, root), root, g.work)
    if plain and all("string" not in kinds(one) for one in plain):
        return value_rules(g, schema, root, "value")
    return g.either(text for one in plain or [{}] for text in _each(g, one, root, closer, paired))


def _each(g: Grammar, schema: Schema, root: Schema, closer: str, paired: bool) -> Iterator[str]:
    """Yield the ways in which a value of a plain schema is written: JSON, and text."""
    if "enum" in schema:
        yield one_of(
            g, (each if isinstance(each, str) else json.dumps(each, ensure_ascii=False) for each in schema["enum"])
        )
        return
    known = kinds(schema)
    if others := known - {"string"} if known != ALL else None:
        yield value_rules(g, {**schema, "type": sorted(others)}, root, "value")
    if "string" in known:
        yield raw_text(g, schema, closer, paired=paired)


def python_value(g: Grammar, schema: object, root: Mapping[str, Any]) -> str:
    """Return the expression for a value in Python's spelling: like JSON's, except for a lone boolean or null."""
    known = kinds_of(schema, root)
    if known == frozenset({"boolean"}) and not {"enum", "const"} & mapping_of(schema).keys():
        return '("True" | "False")'
    return '"None"' if known == frozenset({"null"}) else f"({value_rules(g, schema, root, 'value')})"


def arguments_in_order(g: Grammar, root: Schema, write: Callable[[str, object], str], separator: str) -> str:
    """Join what `write` returns for each property, the required ones first; the others may be missing."""
    plain = [one for one in alternatives(parts_of(root, root), root, g.work) if "object" in kinds(one)] or [{}]
    return g.either(_in_order(g, one, write, separator) for one in plain)


def _in_order(g: Grammar, schema: Schema, write: Callable[[str, object], str], separator: str) -> str:
    known = mapping_of(schema.get("properties"))
    required = schema.get("required", ())
    comma = g.literal(separator)
    first = more = ""
    for key, value in reversed(list(known.items())):
        if key not in required:
            member = g.rule("member", write(key, value))
            first = g.rule("first", g.either([f"{member} {more}".strip(), first]))
            more = g.rule("more", f"({f'{comma} {member}'.strip()})? {more}".strip())
    must = [f"({write(key, value)})" for key, value in known.items() if key in required]
    between = f" {comma} " if comma else " "
    return f"{between.join(must)} {more}".strip() if must else first


def raw_text(g: Grammar, schema: Schema, closer: str, *, paired: bool = False) -> str:
    """Return the expression for a string that stands before `closer`, whatever else the schema allows.

    `paired`: see `raw_value`.
    """
    not_first = "\n" if paired else ""
    if (pattern := schema.get("pattern")) is not None:
        place = PlainText(closer[0] + not_first)
        text = g.once(("raw pattern", pattern, place), lambda: pattern_rules(g, pattern, place))
        if text is not None:
            return text
    least, most = bounds(schema, "minLength", "maxLength")
    return text_without(g, (closer,), least=least, most=most, not_first=not_first)


# Schemas to GBNF for families that spell nested values in a syntax of their own: what all of them share.
#
# A family says how it spells a member, a choice and a value of each type (`formats/gemma4.py`, and the elements below);
# `schema_walk.py` decides which rule stands for which schema.


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


# The grammar of arguments written as elements of the same names, with elements inside for members that a schema names.
#
# Text that may be a string has no mark in it; an object or a list whose contents the schema does not describe is JSON.

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
