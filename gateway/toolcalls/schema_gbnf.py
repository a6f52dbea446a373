"""JSON Schema to GBNF: the arguments that a model may write under a grammar.

Keys come in the schema's order, required ones first, spelled as `json.dumps` spells them; keys that the schema does
not name are written only where `additionalProperties` asks for them, as in llama.cpp. What GBNF can't say (patterns,
formats, wide ranges, conditions) is left out, and a schema that can't be read at all means any value: the grammar
helps a model, the upstream still judges. Every length has a bound. Schemas come from outside: depth and work have one
too. Below: `gbnf`, `kinds`. Above: `format`. Source: JSON Schema 2020-12, and draft 7 where MCP servers still write it.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from gateway.toolcalls.gbnf import MAX_REPEAT, Grammar
from gateway.toolcalls.kinds import followed, hinted_kind, mapping_of, options_of, resolve
from gateway.toolcalls.schema_rules import any_object, any_value, key_other_than, shared

MAX_STRING = 512
"""Characters of a string whose schema names no maximum."""

MAX_ITEMS = 64
"""Items of an array whose schema names no maximum."""

MAX_EXTRA_KEYS = 16
"""Keys that a schema allows and does not name."""

MAX_LEVELS = 6
"""References inside references: a schema that names itself is written out so many times (`jsonscan` reads 128 deep)."""

_COMMA = ' ", " '
_MAX_DEPTH = 64
_MAX_VISITS = 10_000
_MAX_RANGE = 256

Schema = Mapping[str, Any]


def schema_rules(g: Grammar, schema: Schema, name: str) -> str:
    """Give the expression for a tool's arguments, always an object, and add its rules to the grammar under `name`."""
    return _Rules(g, schema, name).arguments()


def value_rules(g: Grammar, schema: object, root: Schema, name: str) -> str:
    """Give the expression for one value of a tool's arguments; what the schema refers to stands in `root`."""
    return _Rules(g, root, name).value(schema)


class _Rules:
    """The rules of one schema. A method gives "" where its schema has no value within the levels that are left."""

    def __init__(self, g: Grammar, root: Schema, name: str) -> None:
        self._g = g
        self._root = root
        self._name = name
        self._references: dict[tuple[str, int], str] = {}
        self._level = 0
        self._visits = 0
        self._depth = 0

    def arguments(self) -> str:
        """Give the root, as an object whatever the schema says of it."""
        return self._arguments(self._root, _MAX_DEPTH)

    def value(self, schema: object) -> str:
        """Give any value of the schema."""
        return self._value(schema) or any_value(self._g)

    def _arguments(self, schema: Schema, depth: int) -> str:
        schema = followed(schema, self._root)
        if "properties" in schema or schema.get("type") == "object":
            return self._object(schema)
        options = options_of(schema)
        if not options or depth == 0:
            return any_object(self._g)
        return self._g.either(self._arguments(mapping_of(option), depth - 1) for option in options)

    def _value(self, schema: object) -> str:
        self._visits += 1
        known = mapping_of(schema)
        if not known or self._visits > _MAX_VISITS or self._depth >= _MAX_DEPTH:
            return any_value(self._g)
        self._depth += 1
        try:
            return self._known(known)
        finally:
            self._depth -= 1

    def _known(self, schema: Schema) -> str:
        g = self._g
        if isinstance(reference := schema.get("$ref"), str):
            return self._reference(reference)
        if "const" in schema:
            return g.literal(_spell(schema["const"]))
        if isinstance(values := schema.get("enum"), list) and values:
            return g.either(g.literal(_spell(value)) for value in cast(list[object], values))
        if "properties" not in schema and (options := options_of(schema)):
            return g.either(filter(None, map(self._value, options)))
        return self._typed(schema)

    def _typed(self, schema: Schema) -> str:
        kind: object = schema.get("type", hinted_kind(schema))
        if isinstance(kind, list):
            kinds = cast(list[object], kind)
            values = [self._value({**schema, "type": one}) for one in kinds]
            return self._g.either(filter(None, values)) if kinds else any_value(self._g)
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
                return shared(self._g, "number")
            case "boolean":
                return shared(self._g, "boolean")
            case "null":
                return shared(self._g, "null")
            case _:
                return any_value(self._g)

    def _reference(self, reference: str) -> str:
        """Give a reference as a rule of its own for each level, so that no rule refers to itself.

        Beyond the last level there is no value: what can be left out is, and a schema that can't end means any value.
        """
        target = resolve(reference, self._root)
        if target is None:
            return any_value(self._g)
        if self._level == MAX_LEVELS:
            return ""
        key = reference, self._level
        if key not in self._references:
            self._level += 1
            value = self._value(target)
            self._level -= 1
            self._references[key] = self._g.rule(f"{self._name}-ref", value) if value else ""
        return self._references[key] or ("" if self._level else any_value(self._g))

    def _object(self, schema: Schema) -> str:
        g = self._g
        properties = mapping_of(schema.get("properties"))
        names = schema.get("required")
        required = (
            [name for name in cast(list[object], names) if isinstance(name, str)] if isinstance(names, list) else []
        )
        extra = schema.get("additionalProperties", "properties" not in schema)
        known = dict.fromkeys([*(name for name in properties if name in required), *required])
        members = [self._member(name, properties.get(name)) for name in known]
        optional = [self._member(name, schema) for name, schema in properties.items() if name not in known]
        if not all(members):
            return ""
        if extra is True and not members and not properties:
            return any_object(g)
        others = "" if extra is False else self._other_member(extra, [*known, *properties])
        inside = self._members(members, [member for member in optional if member], others)
        return f'("{{" {inside} "}}")' if inside else '"{}"'

    def _member(self, name: str, schema: object) -> str:
        value = self._value(schema)
        return f"{self._g.literal(f'{_spell(name)}: ')} {value}" if value else ""

    def _other_member(self, schema: object, names: Sequence[str]) -> str:
        value = self._value(schema)
        if not value:
            return ""
        key = key_other_than(self._g, dict.fromkeys(names), self._name)
        return self._g.rule(f"{self._name}-other", f'{key} ": " {value}')

    def _members(self, required: list[str], optional: list[str], others: str) -> str:
        """Give the members in order: what is required, then what may be missing, then what the schema does not name."""
        more = f'(", " {others}){{0,{MAX_EXTRA_KEYS}}}' if others else ""
        first = f"({others} {more})?" if others else ""
        # From the last to the first: `more` may follow another member, `first` may be the first of all.
        for member in reversed(optional):
            rule = self._g.rule(f"{self._name}-member", member)
            if not required:
                first = self._g.rule(f"{self._name}-first", self._g.either([f"{rule} {more}", first]))
            more = self._g.rule(f"{self._name}-more", f'(", " {rule})? {more}')
        return first if not required else f"{_COMMA.join(required)} {more}"

    def _array(self, schema: Schema) -> str:
        g = self._g
        if isinstance(fixed := schema.get("prefixItems"), list) and fixed:
            items = [self._value(item) for item in cast(list[object], fixed)]
            return f'("[" {_COMMA.join(items)} "]")' if all(items) else ""
        least, most = length_bounds(schema)
        item = self._value(schema.get("items")) if most else ""
        if not item:
            return "" if least else '"[]"'
        return f'("[" {g.repeat(item, _COMMA.strip(), least, most)} "]")'

    def _string(self, schema: Schema) -> str:
        if "minLength" not in schema and "maxLength" not in schema:
            return shared(self._g, "string")
        least = _count(schema.get("minLength"), 0)
        most = max(least, _count(schema.get("maxLength"), MAX_STRING))
        body = self._g.repeat(shared(self._g, "char"), "", least, most)
        return f'("\\"" {body} "\\"")' if body else '"\\"\\""'

    def _integer(self, schema: Schema) -> str:
        """Give whole numbers: a narrow range by its values, else by sign."""
        low, high = _bound(schema, "minimum", "exclusiveMinimum", 1), _bound(schema, "maximum", "exclusiveMaximum", -1)
        if low is not None and high is not None and 0 <= high - low < _MAX_RANGE:
            return self._g.either(self._g.literal(str(value)) for value in range(low, high + 1))
        if low is not None and low >= 0:
            return shared(self._g, "positive" if low > 0 else "natural")
        return shared(self._g, "integer")


def length_bounds(schema: Schema) -> tuple[int, int]:
    """Give how few and how many items an array may have."""
    least = _count(schema.get("minItems"), 0)
    return least, max(least, _count(schema.get("maxItems"), MAX_ITEMS))


def _count(value: object, default: int) -> int:
    """Give a length of the schema, within what llama.cpp takes; `default` where it names none."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        return default
    return min(value, MAX_REPEAT)


def _bound(schema: Schema, inclusive: str, exclusive: str, step: int) -> int | None:
    """Give the last whole number that a bound allows, None where there is none (or draft 4's boolean)."""
    bounds = [
        int(value) + shift
        for value, shift in ((schema.get(inclusive), 0), (schema.get(exclusive), step))
        if isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
    ]
    return (max(bounds) if step > 0 else min(bounds)) if bounds else None


def _spell(value: object) -> str:
    """Give JSON as `json.dumps` spells it, characters as they are where UTF-8 has them."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isascii() or text.encode("utf-8", "replace").decode() == text else json.dumps(value)
