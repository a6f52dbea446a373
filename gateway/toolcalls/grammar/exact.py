"""A JSON Schema to a grammar all of whose texts fit it, or the reason why there is none.

Calls may be held loosely, since their arguments are checked again before a tool sees them; an answer goes to its client
as it is written. So what GBNF can't say here is refused by its keyword, and so is what the walk would leave out of a
schema that is too large. Keywords that only describe a value are passed over. Source: JSON Schema 2020-12, and draft 7.
"""

import re
from collections.abc import Mapping
from itertools import combinations
from typing import Final, Never

from gateway.toolcalls.grammar.gbnf import MAX_COUNT, MAX_COUNTED, Grammar
from gateway.toolcalls.grammar.numbers import integer_bounds
from gateway.toolcalls.grammar.schema_walk import MAX_KEYS, Key, bounds, kinds
from gateway.toolcalls.grammar.schemas import MAX_NEEDED, JsonRules
from gateway.toolcalls.schema.kinds import ALL, Kinds, mapping_of, resolve
from gateway.toolcalls.schema.merge import MAX_ALTERNATIVES, MAX_PARTS, Parts, Schema, TooMany, listed, parts_of, spread

_DESCRIBING: Final = frozenset(
    (
        *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "$schema"),
        *("$id", "$anchor", "$defs", "definitions", "discriminator", "contentMediaType", "contentEncoding", "format"),
        *("contentSchema", "example", "externalDocs", "xml", "id"),
    )
)
_HELD: Final = frozenset(
    (
        *("type", "enum", "const", "allOf", "anyOf", "oneOf", "$ref"),
        *("properties", "required", "additionalProperties", "minProperties", "maxProperties"),
        *("items", "prefixItems", "additionalItems", "minItems", "maxItems"),
        *("minLength", "maxLength", "pattern"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    )
)
_NOTHING: Final[Mapping[str, tuple[object, ...]]] = {
    "uniqueItems": (False,),
    "minContains": (1,),
    "nullable": (False,),
    "patternProperties": ({},),
    "propertyNames": ({}, True),
    "unevaluatedProperties": (True, {}),
    "unevaluatedItems": (True, {}),
    "dependentRequired": ({},),
    "dependentSchemas": ({},),
    "dependencies": ({},),
}
"""Keywords that are not held, with what they say nothing by."""
_BY_KIND: Final = {
    "object": ("properties", "required", "additionalProperties", "minProperties", "maxProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "string": ("minLength", "maxLength", "pattern"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
}
_NEGATED: Final = re.compile(r"(?<!\\)(?:\\\\)*\\[DSW]")
_TOO_MANY: Final = "the schema has too many alternatives in one place"
_WHOLE: Final = 10**20
_OLD: Final = re.compile(r"draft-0\d|2019-09")
_POINTER: Final = re.compile(r"#(/[^%]*)?")


class NotHeld(Exception):
    """No grammar says just what the schema says; the message is the reason."""


def exact_rules(g: Grammar, schema: object, name: str) -> str:
    """Give the expression for the values of a schema. Raises `NotHeld`."""
    if schema is False:
        _refuse("no value fits the schema `false`")
    root = mapping_of(schema)
    written = _Exact(g, root, name).value(root) or _refuse("no value of finite length fits the schema")
    if not g.exact:
        _refuse(f"its counts are greater than {MAX_COUNT}, or {MAX_COUNTED} in all, the most that a grammar takes")
    return written


class _Exact(JsonRules):
    """The rules of one schema, as JSON, none of which takes more than it says."""

    def __init__(self, g: Grammar, root: Schema, name: str) -> None:
        super().__init__(g, root, name)
        self._looked_at: dict[Key, Parts] = {}

    def beyond(self) -> str:
        """A part that is too large to be written."""
        _refuse("the schema is too large or too deep")

    def plain_schemas(self, parts: Parts) -> list[Schema]:
        """Give the plain schemas of which a value fits one; refuse what would be left out of them."""
        key = frozenset(map(id, parts))
        if key not in self._looked_at:
            self._looked_at[key] = parts
            self._look_at(parts)
        return super().plain_schemas(parts)

    def alternatives(self, parts: Parts) -> list[Schema]:
        """Give all of them, or refuse."""
        try:
            plain = spread(parts, self.root)
        except TooMany:
            _refuse(_TOO_MANY)
        for schema in plain:
            self._check(schema)
        return [_with_fitting(schema) for schema in plain]

    def _look_at(self, parts: Parts) -> None:
        """Refuse what a part says that is not held, and what several say that is held of one alone."""
        if len(parts) >= MAX_PARTS:
            self.beyond()
        for part in parts:
            _check_keywords(part)
            if part is not self.root and ("$id" in part or "$schema" in part):
                _refuse("a schema inside the schema has an `$id` or `$schema` of its own")
            if "prefixItems" in part and _OLD.search(str(self.root.get("$schema"))):
                _refuse("`prefixItems` is no keyword of its `$schema`")
            self._check_references(part)
            self._check_one_of(part)
        with_patterns = [part for part in parts if "pattern" in part]
        if len(with_patterns) > 1:
            _refuse("two `pattern`s hold for one value")
        arrays = [part for part in parts if any(key in part for key in ("items", "prefixItems", "additionalItems"))]
        if len(arrays) > 1 and any("prefixItems" in part or listed(part.get("items")) for part in arrays):
            _refuse("lists of items by place hold for one value together with another schema of items")
        extra = [part for part in parts if mapping_of(part.get("additionalProperties"))]
        if extra and sum("properties" in part or "additionalProperties" in part for part in parts) > 1:
            _refuse("a schema in `additionalProperties` holds for one value together with another schema of members")

    def _check_references(self, part: Schema) -> None:
        reference = part.get("$ref")
        if reference is not None and (
            not isinstance(reference, str)
            or not _POINTER.fullmatch(reference)
            or not isinstance(resolve(reference, self.root), Mapping)
        ):
            _refuse(f"`$ref` {str(reference)[:100]!r} names no schema of this one; `#/$defs/NAME` does")
        if False in listed(part.get("allOf")):
            _refuse("no value fits `false` in `allOf`")

    def _check_one_of(self, part: Schema) -> None:
        given = [option for option in listed(part.get("oneOf")) if option is not False]
        if len(given) > MAX_ALTERNATIVES:
            # Before each is compared with every other.
            _refuse(_TOO_MANY)
        options = [_Option(parts_of(option, self.root)) for option in given]
        for one, other in combinations(options, 2):
            if not one.is_apart(other):
                _refuse("a value may fit two schemas of `oneOf`; say `anyOf`, or give each a `const` of its own")

    def _check(self, schema: Schema) -> None:
        """Refuse what a plain schema says that is not held."""
        _check_kinds(schema)
        known = kinds(schema)
        if "enum" in schema:
            if beside := sorted(key for keys in _BY_KIND.values() for key in keys if key in schema):
                _refuse(f"`enum` or `const` stands beside `{beside[0]}`")
            return
        if "object" in known:
            _check_object(schema)
        if "array" in known:
            _check_array(schema)
        if "string" in known:
            _check_string(schema)
        if known & {"integer", "number"}:
            _check_number(schema, known)

    def pattern(self, pattern: str) -> str:
        """Give a pattern's texts."""
        if _NEGATED.search(pattern):
            _refuse(f"`pattern` {pattern[:100]!r} negates a class by a letter, which readers read differently")
        return super().pattern(pattern) or _refuse(f"`pattern` {pattern[:100]!r} is not one of simple texts")


def _check_keywords(part: Schema) -> None:
    for key, value in part.items():
        if key in _HELD or key in _DESCRIBING or key.startswith("x-"):
            continue
        if key not in _NOTHING or value not in _NOTHING[key]:
            _refuse(f"`{key[:60]}` is not held by a grammar")
    if "const" in part and "enum" in part:
        _refuse("`const` stands beside `enum`")


def _check_kinds(schema: Schema) -> None:
    if "type" in schema or "enum" in schema:
        return
    said = [key for keys in _BY_KIND.values() for key in keys if key in schema]
    if said:
        _refuse(f"`{said[0]}` stands without a `type`")


def _check_object(schema: Schema) -> None:
    properties = mapping_of(schema.get("properties"))
    required = dict.fromkeys(name for name in listed(schema.get("required")) if isinstance(name, str))
    optional = sum(name not in required for name in properties)
    extra = schema.get("additionalProperties", True)
    if len(properties) > MAX_KEYS:
        _refuse(f"an object names more than {MAX_KEYS} members")
    if extra is False and (missing := [name for name in required if name not in properties]):
        _refuse(f"the member {missing[0][:100]!r} is required, and no additional one may be")
    least, most = _counts(schema, "minProperties", "maxProperties")
    open_ended = extra is not False and ("additionalProperties" in schema or "properties" not in schema)
    room = None if open_ended else len(properties)
    if most is not None and (room is None or most < room) and (optional or most < len(required)):
        _refuse("`maxProperties` is less than the members that are named")
    needed = max(0, least - len(required))
    if needed and (open_ended or needed > optional or needed * optional > MAX_NEEDED):
        _refuse("`minProperties` asks for more than the members that are named")


def _check_array(schema: Schema) -> None:
    _, most = _counts(schema, "minItems", "maxItems")
    if most is not None and most < len(listed(schema.get("prefixItems"))):
        _refuse("`maxItems` is less than the items that have a place")


def _check_string(schema: Schema) -> None:
    least, most = _counts(schema, "minLength", "maxLength")
    if "pattern" in schema and (least or most is not None):
        _refuse("`pattern` stands beside a bound of the length; say it in the pattern")


def _check_number(schema: Schema, known: Kinds) -> None:
    if any(isinstance(schema.get(key), int | float) and abs(schema[key]) >= _WHOLE for key in _BY_KIND["number"]):
        _refuse("a bound of a number has more than 20 digits")
    low, high = integer_bounds(schema)
    if "integer" in known and low is not None and high is not None and low > high:
        _refuse("the bounds of an integer leave none")
    if "number" in known:
        said = [key for key in _BY_KIND["number"] if key in schema]
        if said and (said != ["minimum"] or schema["minimum"] != 0):
            _refuse(f"`{said[0]}` of a number that may have a fraction is not held; say integer")


def _counts(schema: Schema, least_key: str, most_key: str) -> tuple[int, int | None]:
    least, most = bounds(schema, least_key, most_key)
    if isinstance(given := schema.get(most_key), int | float) and given < least:
        _refuse(f"`{least_key}` is greater than `{most_key}`")
    return least, most


def _with_fitting(schema: Schema) -> Schema:
    """Give a plain schema with those of its given values that are of its types."""
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


class _Option:
    """One schema of `oneOf`, as it is compared with the others: read once."""

    def __init__(self, parts: Parts) -> None:
        self._kinds = _said_kinds(parts)
        self._values = _values(parts)
        self._tags = _tags(parts)

    def is_apart(self, other: "_Option") -> bool:
        """Whether no value fits both: by type, or by a member that must be there and can't be the same in both."""
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
    """Give the values of which a schema's is one, where it lists them and they are simple; 1 is 1.0, and not true."""
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


def _refuse(why: str) -> Never:
    raise NotHeld(why)
