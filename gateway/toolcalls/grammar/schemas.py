"""JSON Schema to GBNF: the arguments that a model may write under a grammar.

Keys come in the schema's order, required ones first, spelled as `json.dumps` spells them; keys that the schema does not
name are written only where `additionalProperties` asks for them, as in llama.cpp. No bound is set that the schema does
not name: the length of the answer bounds everything. `NOT_HELD` says what is left out; a schema that can't be read at
all means any value: the grammar helps a model, the upstream still decides. Source: JSON Schema 2020-12, and draft 7
where MCP servers still write it.
"""

import json
from collections.abc import Iterable, Sequence
from decimal import Decimal

from gateway.toolcalls.grammar.gbnf import Grammar, one_of
from gateway.toolcalls.grammar.numbers import (
    MAX_DIGITS,
    NUMBER_BOUNDS,
    NumberBounds,
    integer_bounds,
    integer_rules,
    most_digits,
    number_rules,
)
from gateway.toolcalls.grammar.patterns import JsonText, pattern_rules
from gateway.toolcalls.grammar.schema_walk import MAX_KEYS, SchemaWalk, bounds, kinds, length_bounds, unnamed
from gateway.toolcalls.schema.json_types import ALL, mapping_of
from gateway.toolcalls.schema.merge import Schema, listed, parts_of

# The rules that all schemas share: JSON's own values, and keys that are not among given ones.
#
# Each grammar that uses them gets them once. Only numbers have a bound, that of what readers keep of one: the model
# decides how long a text or a list is, and how deep it goes, up to the length of its answer.

_NOT_PLAIN = r'"\\\u007F\u0000-\u001F'

_RULES = {
    # No half of a surrogate pair: the text must be encodable in UTF-8 too.
    "char": r'[^"\\\u007F\u0000-\u001F] | "\\" (["\\/bfnrt] | "u" ([0-9a-cA-Ce-fE-F] hex{3} | [dD] [0-7] hex{2}))',
    "hex": "[0-9a-fA-F]",
    "plain": f"[^{_NOT_PLAIN}]",
    "string": r'"\"" char* "\""',
    "positive": f"[1-9] [0-9]{{0,{MAX_DIGITS - 1}}}",
    "natural": '"0" | positive',
    "integer": '"-"? natural',
    "amount": f'natural ("." [0-9]{{1,{MAX_DIGITS}}})? ([eE] [-+]? [0-9]{{1,2}})?',
    "number": '"-"? amount',
    "boolean": '"true" | "false"',
    "null": '"null"',
    "value": "string | number | boolean | null | array | object",
    "array": '"[" (value (", " value)*)? "]"',
    "object": '"{" (member (", " member)*)? "}"',
    "member": 'string ": " value',
}
_NEEDS = {
    "char": ("hex",),
    "string": ("char",),
    "natural": ("positive",),
    "integer": ("natural",),
    "amount": ("natural",),
    "number": ("amount",),
    "value": ("string", "number", "boolean", "null", "array", "object"),
    "array": ("value",),
    "object": ("member",),
    "member": ("string", "value"),
}


def shared(g: Grammar, name: str) -> str:
    """Add the rule for one of JSON's own values, or a part of one, with the rules that it needs; return its name."""
    todo = [name]
    while todo:
        one = todo.pop()
        if not g.has(one):
            g.define(one, _RULES[one])
            todo += _NEEDS.get(one, ())
    return name


def key_other_than(g: Grammar, names: Iterable[str], rule: str) -> str:
    """Return the expression for a quoted key that is none of `names`; without escapes, which could spell one of them.

    The rules are a tree of the names' prefixes: each may continue with a character that leaves the tree, or end where
    no name ends.
    """
    rest = f"{shared(g, 'plain')}*"
    known = frozenset(name for name in names if json.dumps(name, ensure_ascii=False) == f'"{name}"')
    starts = {name[:length] for name in known for length in range(len(name) + 1)} | {""}
    rules = {start: g.reserve(f"{rule}-key") for start in sorted(starts, key=lambda start: (len(start), start))}
    following: dict[str, list[str]] = {start: [] for start in rules}
    for start in rules:
        if start:
            following[start[:-1]].append(start[-1])
    for start, chars in following.items():
        steps = [f"{g.one_of(char)} {rules[start + char]}" for char in chars]
        body = f"({' | '.join([*steps, f'{g.none_of(chars, _NOT_PLAIN)} {rest}'])})"
        g.define(rules[start], body if start in known or not start else f"{body}?")
    return f'("\\"" {rules[""]} "\\"")'


NOT_HELD = (
    "`format`",
    "`contentEncoding`",
    "`multipleOf`",
    "`uniqueItems`",
    "`contains`",
    "`patternProperties`",
    "`propertyNames`",
    "`maxProperties` for members that the schema names",
    "`dependentRequired`",
    "`dependentSchemas`",
    "`unevaluatedItems`",
    "`unevaluatedProperties`",
    "`not`",
    "`if`",
    "that a value fits only one schema of `oneOf`",
)
"""The parts of JSON Schema that a grammar does not hold a model to; docs/tool-formats.md lists them."""

MAX_NEEDED = 512
"""Most rules that a `minProperties` may cost."""

_COMMA = '", "'


def schema_rules(g: Grammar, schema: Schema, name: str) -> str:
    """Return the expression for a tool's arguments, always an object, and add its rules to the grammar under `name`."""
    return JsonRules(g, schema, name).arguments()


def value_rules(g: Grammar, schema: object, root: Schema, name: str) -> str:
    """Return the expression for one value of a tool's arguments; the schema's references point into `root`."""
    return JsonRules(g, root, name).value(schema) or shared(g, "value")


class JsonRules(SchemaWalk):
    """The rules of one schema, as JSON."""

    def arguments(self) -> str:
        """Return the expression for the root, always an object whatever the schema says."""
        plain = self.plain_schemas(parts_of(self.root, self.root))
        objects = [self._object(schema) for schema in plain if "object" in kinds(schema)]
        return self.g.either(filter(None, objects)) or shared(self.g, "object")

    def anything(self) -> str:
        """Return the expression for any JSON."""
        return shared(self.g, "value")

    def plain(self, schema: Schema) -> str:
        """Return the expression for values of a schema that names no other on its own level."""
        if "enum" in schema:
            return one_of(self.g, map(spelled, schema["enum"]))
        known = kinds(schema)
        if known == ALL:
            return self.anything()
        return self.g.either(filter(None, (self._of_kind(kind, schema) for kind in sorted(known))))

    def _of_kind(self, kind: str, schema: Schema) -> str:
        match kind:
            case "object":
                return self._object(schema)
            case "array":
                return self._array(schema)
            case "string":
                return self._string(schema)
            case "integer":
                return self._integer(schema)
            case "number":
                return self._number(schema)
            case _:
                return shared(self.g, kind)

    def _object(self, schema: Schema) -> str:
        properties = mapping_of(schema.get("properties"))
        required = self.required(schema)
        extra = schema.get("additionalProperties", "properties" not in schema)
        optional = [name for name in properties if name not in required]
        least, most = bounds(schema, "minProperties", "maxProperties")
        if len(optional) > MAX_KEYS or (extra is True and not (properties or required or least or most is not None)):
            return shared(self.g, "object")
        must = [self._member(name, properties.get(name, unnamed(schema))) for name in required]
        if not all(must):
            return ""
        room = None if most is None else max(0, most - len(must))
        optional = [] if room == 0 else optional
        may = [member for member in (self._member(name, properties[name]) for name in optional) if member]
        others = self._other_member(extra, [*required, *properties])
        inside = _Members(self.g, self.name, may, others, room).after(must, max(0, least - len(must)))
        return f'("{{" {inside} "}}")' if inside else '"{}"'

    def _member(self, name: str, schema: object) -> str:
        value = self.value(schema)
        return f"{self.g.literal(f'{spelled(name)}: ')} {value}" if value else ""

    def _other_member(self, schema: object, names: Sequence[str]) -> str:
        value = self.value(schema)
        if not value:
            return ""
        key = key_other_than(self.g, dict.fromkeys(names), self.name)
        return self.g.rule(f"{self.name}-other", f'{key} ": " {value}')

    def _array(self, schema: Schema) -> str:
        least, most = length_bounds(schema)
        fixed = [self.value(item) for item in listed(schema.get("prefixItems"))]
        if not all(fixed):
            return ""
        more = schema.get("items", not fixed or least > len(fixed))
        room = None if most is None else max(0, most - len(fixed))
        item = self.value(more) if room != 0 else ""
        needed = max(0, least - len(fixed))
        if needed and not item:
            return ""
        if not fixed:
            items = self.g.repeat(item, _COMMA, needed, room)
        else:
            rest = self.g.repeat(f"{_COMMA} {item}", "", needed, room) if item else ""
            items = f"{f' {_COMMA} '.join(fixed)} {rest}".strip()
        return f'("[" {items} "]")' if items else '"[]"'

    def _string(self, schema: Schema) -> str:
        g = self.g
        char = shared(g, "char")
        if (pattern := schema.get("pattern")) is not None:
            text = self.pattern(pattern)
            if text is not None:
                return f'("\\"" {text} "\\"")'
        least, most = bounds(schema, "minLength", "maxLength")
        if not least and most is None:
            return shared(g, "string")
        return g.once(("string", least, most), lambda: f'("\\"" {g.repeat(char, "", least, most)} "\\"")')

    def pattern(self, pattern: str) -> str | None:
        """Return the expression for the texts in which a pattern matches; None where it is not simple."""
        return self.g.once(("pattern", pattern), lambda: pattern_rules(self.g, pattern, JsonText()))

    def _number(self, schema: Schema) -> str:
        if not NUMBER_BOUNDS & schema.keys():
            return shared(self.g, "number")
        bounds = NumberBounds.of(schema)
        if bounds == NumberBounds(Decimal(0)):
            return shared(self.g, "amount")
        # A range without numbers in it is treated as for integers.
        written = self.g.once(("number", bounds), lambda: number_rules(self.g, bounds)) if bounds is not None else ""
        return written or shared(self.g, "number")

    def _integer(self, schema: Schema) -> str:
        if not NUMBER_BOUNDS & schema.keys():
            return shared(self.g, "integer")
        written = (*integer_bounds(schema), most_digits(schema))
        # A range without numbers in it is a mistake in the schema: any number will do.
        return self.g.once(("integer", *written), lambda: integer_rules(self.g, *written)) or shared(self.g, "integer")


class _Members:
    """The members that may follow the required ones: those that the schema names, in order, then others."""

    def __init__(self, g: Grammar, name: str, may: list[str], others: str, room: int | None) -> None:
        self._g = g
        self._name = name
        self._may = [g.rule(f"{name}-member", member) for member in may]
        self._others = others
        self._room = room

    def after(self, must: list[str], needed: int) -> str:
        """Return the expression for all members, at least `needed` of them besides the required ones."""
        first, more = self._written(needed)
        return f"{f' {_COMMA} '.join(must)} {more or ''}".strip() if must else first or ""

    def _written(self, needed: int) -> tuple[str | None, str | None]:
        """Return the expressions for the members where nothing precedes them, and after another member."""
        if not self._others:
            needed = min(needed, len(self._may))
        if not self._may:
            # No list of all counts up to it: a schema may ask for any number of members.
            return self._last(needed, ""), self._last(needed, _COMMA)
        if needed * len(self._may) > MAX_NEEDED:
            needed = 1
        more: list[str | None] = [self._last(count, _COMMA) for count in range(needed + 1)]
        first: list[str | None] = [self._last(count, "") for count in range(needed + 1)]
        for member in reversed(self._may):
            first = [self._step("first", member, "", more[max(0, n - 1)], first[n]) for n in range(needed + 1)]
            more = [self._step("more", member, f"{_COMMA} ", more[max(0, n - 1)], more[n]) for n in range(needed + 1)]
        return first[needed], more[needed]

    def _last(self, needed: int, comma: str) -> str | None:
        """Return the expression for what follows all named members: others, or nothing where none is needed."""
        if not self._others or self._room == 0:
            return None if needed else ""
        if comma:
            return self._g.repeat(f"{comma} {self._others}", "", needed, self._room)
        return self._g.repeat(self._others, _COMMA, needed, self._room)

    def _step(self, rule: str, member: str, comma: str, taken: str | None, left: str | None) -> str | None:
        """Return the rule for the members from this one on: with it, or without it."""
        ways = [] if taken is None else [f"{comma}{member} {taken}".strip()]
        if left is not None:
            ways.append(left)
        return self._g.rule(f"{self._name}-{rule}", self._g.either(ways)) if ways else None


def spelled(value: object) -> str:
    """Return JSON as `json.dumps` spells it, with non-ASCII characters unescaped where UTF-8 can encode them."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isascii() or text.encode("utf-8", "replace").decode() == text else json.dumps(value)
