"""What a grammar holds exactly: one schema's keywords, several schemas of one value, and the schema joined from them.

Each check refuses by name what the grammar would leave out. Pure.
"""

from collections.abc import Mapping
from typing import Final, Never

from gateway.toolcalls.grammar.gbnf import Grammar
from gateway.toolcalls.grammar.numbers import NumberBounds, integer_bounds, number_rules
from gateway.toolcalls.grammar.schema_walk import MAX_KEYS, bounds, kinds
from gateway.toolcalls.grammar.schemas import MAX_NEEDED, schema_rules
from gateway.toolcalls.schema.json_types import Kinds, mapping_of
from gateway.toolcalls.schema.merge import MAX_PARTS, Parts, Schema, listed

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
"""Keywords that are not held, with the values that have no effect."""
_BY_KIND: Final = {
    "object": ("properties", "required", "additionalProperties", "minProperties", "maxProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "string": ("minLength", "maxLength", "pattern"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
}
_WHOLE: Final = 10**20


class NotHeld(Exception):
    """No grammar says exactly what the schema says; the message is the reason."""


def refuse(why: str) -> Never:
    """Raise `NotHeld` with the reason why no grammar is exact."""
    raise NotHeld(why)


def check_plain(schema: Schema) -> None:
    """Refuse a plain schema that says something that is not held."""
    _check_kinds(schema)
    known = kinds(schema)
    if "enum" in schema:
        if beside := sorted(key for keys in _BY_KIND.values() for key in keys if key in schema):
            refuse(f"`{beside[0]}` can't be combined with `enum` or `const`; leave it out")
        return
    if "object" in known:
        _check_object(schema)
    if "array" in known:
        _check_array(schema)
    if "string" in known:
        _check_string(schema)
    if known & {"integer", "number"}:
        _check_number(schema, known)


def check_together(parts: Parts) -> None:
    """Refuse what is held for one schema of a value, but not for several together."""
    if len(parts) >= MAX_PARTS:
        refuse("too many schemas apply to one value")
    if sum("pattern" in part for part in parts) > 1:
        refuse("two `pattern`s apply to one value")
    arrays = [part for part in parts if any(key in part for key in ("items", "prefixItems", "additionalItems"))]
    if len(arrays) > 1 and any("prefixItems" in part or listed(part.get("items")) for part in arrays):
        refuse("two schemas describe the items of one array, one of them item by item (`prefixItems`); keep one")
    extra = [part for part in parts if mapping_of(part.get("additionalProperties"))]
    if extra and sum("properties" in part or "additionalProperties" in part for part in parts) > 1:
        refuse("two schemas describe the members of one object, one of them by `additionalProperties`; keep one")


def check_keywords(part: Schema) -> None:
    """Refuse keywords that are not held."""
    for key, value in part.items():
        if key in _HELD or key in _DESCRIBING or key.startswith("x-"):
            continue
        if key not in _NOTHING or value not in _NOTHING[key]:
            refuse(f"a grammar can't express `{key[:60]}`")
    if "const" in part and "enum" in part:
        refuse("`const` can't be combined with `enum`; keep one of them")


def _check_kinds(schema: Schema) -> None:
    if "type" in schema or "enum" in schema:
        return
    said = [key for keys in _BY_KIND.values() for key in keys if key in schema]
    if said:
        refuse(f"`{said[0]}` needs a `type` beside it")


def _check_object(schema: Schema) -> None:
    properties = mapping_of(schema.get("properties"))
    required = dict.fromkeys(name for name in listed(schema.get("required")) if isinstance(name, str))
    optional = sum(name not in required for name in properties)
    extra = schema.get("additionalProperties", True)
    if len(properties) > MAX_KEYS:
        refuse(f"an object names more than {MAX_KEYS} members")
    if extra is False and (missing := [name for name in required if name not in properties]):
        refuse(f"the member {missing[0][:100]!r} is required, but not in `properties`, and no others are allowed")
    least, most = _counts(schema, "minProperties", "maxProperties")
    open_ended = extra is not False and ("additionalProperties" in schema or "properties" not in schema)
    room = None if open_ended else len({*properties, *required})
    if most is not None and (room is None or most < room) and (optional or most < len(required)):
        refuse("`maxProperties` limits an object that names members, and a grammar can't count those")
    needed = max(0, least - len(required))
    if needed and (open_ended or needed > optional or needed * optional > MAX_NEEDED):
        refuse(
            "`minProperties` exceeds the number of required members; a grammar can hold that only for a few optional "
            "members, all of them in `properties`"
        )


def _check_array(schema: Schema) -> None:
    _, most = _counts(schema, "minItems", "maxItems")
    if most is not None and most < len(listed(schema.get("prefixItems"))):
        refuse("`maxItems` is less than the number of items in `prefixItems`")


def _check_string(schema: Schema) -> None:
    least, most = _counts(schema, "minLength", "maxLength")
    if "pattern" in schema and (least or most is not None):
        refuse("`pattern` can't be combined with `minLength` or `maxLength`; put the length into the pattern")


def _check_number(schema: Schema, known: Kinds) -> None:
    if any(isinstance(schema.get(key), int | float) and abs(schema[key]) >= _WHOLE for key in _BY_KIND["number"]):
        refuse("a bound of a number has more than 20 digits")
    low, high = integer_bounds(schema)
    if "integer" in known and low is not None and high is not None and low > high:
        refuse("no integer is within the bounds")
    if "number" in known:
        bounds = NumberBounds.of(schema)
        if bounds is None:
            refuse("a bound of a number has more than 15 digits")
        if bounds != NumberBounds() and not number_rules(Grammar((), parallel=False, schemas=schema_rules), bounds):
            refuse("no number is within the bounds")


def _counts(schema: Schema, least_key: str, most_key: str) -> tuple[int, int | None]:
    least, most = bounds(schema, least_key, most_key)
    if isinstance(given := schema.get(most_key), int | float) and given < least:
        refuse(f"`{least_key}` is greater than `{most_key}`")
    return least, most
