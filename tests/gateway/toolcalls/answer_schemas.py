"""Schemas that answers were asked to fit: those that a grammar says exactly, and those that it can't say, with why."""

from functools import reduce
from typing import Any

NODE = {"type": "object", "properties": {"value": {"type": "integer"}, "next": {"$ref": "#"}}, "required": ["value"]}
TREE = {
    "$defs": {
        "tree": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": 5},
                "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2},
            },
            "required": ["name", "children"],
            "additionalProperties": False,
        }
    },
    "$ref": "#/$defs/tree",
}
EXPRESSION = {
    "$defs": {
        "expr": {"anyOf": [{"type": "number"}, {"$ref": "#/$defs/sum"}, {"$ref": "#/$defs/not"}]},
        "sum": {
            "type": "object",
            "properties": {
                "op": {"enum": ["+", "-", '"']},
                "args": {"type": "array", "items": {"$ref": "#/$defs/expr"}, "minItems": 2, "maxItems": 3},
            },
            "required": ["op", "args"],
        },
        "not": {"type": "object", "properties": {"not": {"$ref": "#/$defs/expr"}}, "required": ["not"]},
    },
    "$ref": "#/$defs/expr",
}


def members(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def list_of(items: Any, **bounds: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **bounds}


STRING, INTEGER = {"type": "string"}, {"type": "integer"}
NO_EFFECT: dict[str, Any] = {
    "uniqueItems": False,
    "minContains": 1,
    "nullable": False,
    "patternProperties": {},
    "propertyNames": True,
    "unevaluatedProperties": True,
    "unevaluatedItems": {},
    "dependentRequired": {},
    "dependentSchemas": {},
    "dependencies": {},
}
THIRTY = {f"m{n}": {"type": "string", "maxLength": 900 + n} for n in range(30)}

HELD: dict[str, Any] = {
    "a list that ends": NODE,
    "a tree": TREE,
    "two that name each other": EXPRESSION,
    "a root that may be anything": {},
    "a scalar at the root": {"type": ["integer", "null"]},
    "an array at the root": {"type": "array", "items": members("a", a=INTEGER), "minItems": 1},
    "quotes, slashes and tags in an enum": {
        "enum": ['"', "\\", "\n", "</think>", "<tool_call>", "\u2028", "é", 'a"b', ""]
    },
    "an enum of every type": {"enum": [1, 1.5, True, None, {"a": [1, {"b": "c"}]}, [], "1"]},
    "an enum of which one is of the type": {"type": "string", "enum": ["a", 1, None]},
    "a const with quotes": members("kind", kind={"const": '{"kind": "x"}'}),
    "keys with quotes": members('a"b', "c\\", **{'a"b': INTEGER, "c\\": STRING, "": STRING}),
    "a member called name, and one called arguments": members(
        "name", "arguments", name=STRING, arguments={"type": "object"}
    ),
    "a union of types": members("v", v={"anyOf": [STRING, INTEGER, {"type": "null"}, members("x", x=STRING)]}),
    "a union told apart by a tag": members(
        "shape",
        shape={
            "oneOf": [
                members("kind", "r", kind={"const": "circle"}, r=INTEGER),
                members("kind", "w", "h", kind={"const": "box"}, w=INTEGER, h=INTEGER),
            ],
            "discriminator": {"propertyName": "kind"},
        },
    ),
    "a union told apart by types": {"oneOf": [STRING, {"type": "array", "items": STRING}, {"type": "number"}]},
    "unions in unions": {"anyOf": [{"anyOf": [INTEGER, {"anyOf": [STRING, {"type": "null"}]}]}, {"type": "boolean"}]},
    "a union beside what all have": {
        **members("id", id=INTEGER, a=STRING, b=STRING),
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    },
    "lists of lists": {
        "type": "array",
        "items": {"type": "array", "items": {"type": "array", "items": INTEGER, "maxItems": 2}},
    },
    "a tuple": {"type": "array", "prefixItems": [STRING, INTEGER], "items": False, "minItems": 2},
    "a tuple with more behind": {
        "type": "array",
        "prefixItems": [STRING],
        "items": INTEGER,
        "minItems": 3,
        "maxItems": 4,
    },
    "a list of draft 7": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "array",
        "items": [STRING, INTEGER],
        "additionalItems": {"type": "null"},
    },
    "a list of exactly nothing": members("l", l={"type": "array", "maxItems": 0}),
    "bounds of a list and of its texts": {
        "type": "array",
        "items": {**STRING, "minLength": 2, "maxLength": 3},
        "minItems": 2,
        "maxItems": 5,
    },
    "bounds of an integer": {
        "type": "array",
        "items": {**INTEGER, "minimum": -17, "exclusiveMaximum": 120},
        "minItems": 5,
    },
    "an integer above a bound": {"type": "array", "items": {**INTEGER, "exclusiveMinimum": 999}, "minItems": 3},
    "a number that is not negative": {"type": "array", "items": {"type": "number", "minimum": 0}, "minItems": 3},
    "bounds of a number": list_of({"type": "number", "exclusiveMinimum": 0, "maximum": 2.5}, minItems=4),
    "patterns": members(
        "d", "i", d={**STRING, "pattern": r"^\d{4}-\d{2}-\d{2}$"}, i={**STRING, "pattern": "^[a-f]+|x$"}
    ),
    "a map": {"type": "object", "additionalProperties": {"type": "array", "items": INTEGER}},
    "a map beside members": {
        "type": "object",
        "properties": {"a": STRING},
        "additionalProperties": INTEGER,
        "maxProperties": 9,
    }
    | {"maxProperties": 9, "minProperties": 0, "properties": {}},
    "all of two objects": {
        "allOf": [
            {"type": "object", "properties": {"a": INTEGER}, "required": ["a"]},
            {"type": "object", "properties": {"b": STRING, "a": {"type": "integer", "minimum": 5}}, "required": ["b"]},
        ]
    },
    "all of, through references": {
        "$defs": {"base": {"type": "object", "properties": {"id": INTEGER}, "required": ["id"]}},
        "allOf": [{"$ref": "#/$defs/base"}, {"properties": {"note": STRING}, "type": "object"}],
    },
    "through an index": {
        "type": "object",
        "properties": {"a": {"anyOf": [INTEGER, STRING]}, "b": {"$ref": "#/properties/a/anyOf/1"}},
        "required": ["b"],
    },
    "through an escaped name": {
        "type": "object",
        "properties": {"a/b c": STRING, "d": {"$ref": "#/properties/a~1b%20c"}},
        "required": ["d"],
    },
    "through an anchor, to itself": {
        "$anchor": "node",
        "type": "object",
        "properties": {"value": INTEGER, "next": {"$ref": "#node"}},
        "required": ["value"],
    },
    "all of enums": {"allOf": [{"enum": ["a", "b", 1]}, {"enum": ["b", 1, "c"]}]},
    "all of bounds": {"allOf": [{**INTEGER, "minimum": 3}, {"type": "number", "maximum": 5}]},
    "some of many members": {
        "type": "object",
        "properties": {f"m{n}": INTEGER for n in range(8)},
        "additionalProperties": False,
        "minProperties": 3,
    },
    "what is required and not named": {"type": "object", "properties": {"a": STRING}, "required": ["b"]},
    "what only describes": {
        **members("at", at={**STRING, "format": "date-time", "default": "now", "examples": ["now"]}),
        "title": "T",
        "$comment": "c",
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://example.com/t.json",
        "x-order": 1,
    },
    "keywords with values that have no effect": list_of(INTEGER, **NO_EFFECT),
    "as many schemas of one value as are read": {"allOf": [{**STRING, "title": str(n)} for n in range(62)]},
}

UNHELD: dict[str, tuple[Any, str]] = {
    # Refused before all are compared with all: two of them are alike.
    "many of one": ({"oneOf": [{"const": n} for n in (0, *range(64))]}, "too many alternatives"),
    "no schema": ({"type": "strange"}, "can't be used as a JSON Schema"),
    "false": (False, "an object"),
    "one that has no end": ({"type": "object", "properties": {"n": {"$ref": "#"}}, "required": ["n"]}, "finite length"),
    "a contradiction": ({"allOf": [STRING, INTEGER]}, "finite length"),
    "false in allOf": ({"allOf": [False]}, "`false` in `allOf`"),
    "elsewhere": ({"$ref": "https://example.com/other.json"}, "points to no schema inside"),
    "a name that is not there": ({"properties": {"b": {"$ref": "#a"}}, "type": "object"}, "points to no schema inside"),
    "a list": (
        {"type": "object", "properties": {"b": {"$ref": "#/required"}}, "required": ["b"]},
        "points to no schema",
    ),
    "an index too large": (
        members("b", a={"anyOf": [STRING]}, b={"$ref": "#/properties/a/anyOf/1"}),
        "points to no schema",
    ),
    "nothing": ({"$ref": "#/$defs/none"}, "points to no schema inside"),
    "a part with an address of its own": (
        list_of({"$id": "https://example.com/item.json", **STRING}),
        "an `$id` or `$schema` of its own",
    ),
    "references behind references": (
        {"$defs": {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(70)} | {"d70": STRING}, "$ref": "#/$defs/d0"},
        "too large or too deeply nested",
    ),
    "more schemas of one value than are read": (
        {"allOf": [{**STRING, "title": str(n)} for n in range(63)]},
        "too many schemas apply to one value",
    ),
    "a circle": ({"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}, "refers to itself"),
    "bounds of a number that leave none": (
        {"type": "number", "minimum": 1, "exclusiveMaximum": 1},
        "within the bounds",
    ),
    "a keyword in an option": ({"anyOf": [{"type": "array", "uniqueItems": True}]}, "`uniqueItems`"),
    "one of any and an integer": ({"oneOf": [{"oneOf": [{}, INTEGER]}]}, "`oneOf`"),
    "unique items": ({"type": "array", "items": INTEGER, "uniqueItems": True}, "`uniqueItems`"),
    "steps": ({**INTEGER, "multipleOf": 5}, "`multipleOf`"),
    "not": ({"not": STRING}, "`not`"),
    "if": ({"type": "object", "if": {}, "then": {}}, "`if`"),
    "contains": ({"type": "array", "contains": INTEGER}, "`contains`"),
    "patterns of keys": ({"type": "object", "patternProperties": {"^a": INTEGER}}, "`patternProperties`"),
    "names of keys": ({"type": "object", "propertyNames": {"maxLength": 3}}, "`propertyNames`"),
    "what depends": ({"type": "object", "dependentRequired": {"a": ["b"]}}, "`dependentRequired`"),
    "unevaluated": ({"type": "object", "unevaluatedProperties": False}, "`unevaluatedProperties`"),
    "a word that nobody knows": ({"type": "object", "mustBe": "nice"}, "`mustBe`"),
    "one of two that both fit": ({"oneOf": [STRING, {**STRING, "maxLength": 3}]}, "`oneOf`"),
    "one of an integer and a number": ({"oneOf": [INTEGER, {"type": "number"}]}, "`oneOf`"),
    "a look ahead": ({**STRING, "pattern": "^(?=a)b"}, "too complex for a grammar"),
    "a negated letter": ({**STRING, "pattern": r"^\D$"}, "a negated class such as"),
    "a pattern and a length": ({**STRING, "pattern": "^a*$", "maxLength": 3}, "put the length into the pattern"),
    "two patterns": ({"allOf": [{**STRING, "pattern": "a"}, {"pattern": "b"}]}, "two `pattern`s"),
    "a count too large": ({**STRING, "maxLength": 5000}, "the most that a grammar takes"),
    "a long text that must be": ({**STRING, "minLength": 5000}, "the most that a grammar takes"),
    "counts too large together": (members(*THIRTY, **THIRTY), "the most that a grammar takes"),
    "a bound of no type": ({"minimum": 3}, "needs a `type`"),
    "required of no type": ({"required": ["a"]}, "needs a `type`"),
    "bounds that contradict each other": ({**INTEGER, "minimum": 5, "maximum": 4}, "within the bounds"),
    "lengths that contradict each other": ({**STRING, "minLength": 5, "maxLength": 4}, "greater than"),
    "what is required and may not be": (
        {"type": "object", "required": ["a"], "additionalProperties": False},
        "is required",
    ),
    "fewer members than there are": (members("a", a=STRING, b=STRING) | {"maxProperties": 1}, "`maxProperties`"),
    "more members than there are": (members("a", a=STRING) | {"minProperties": 2}, "`minProperties`"),
    "a tuple longer than the list": ({"type": "array", "prefixItems": [STRING, STRING], "maxItems": 1}, "`maxItems`"),
    "an enum beside a pattern": ({**STRING, "enum": ["a", "b"], "pattern": "a"}, "can't be combined with `enum`"),
    "an enum beside a const": ({"enum": [1, 2], "const": 1}, "can't be combined with `enum`"),
    "a tuple in a draft that has other ones": (
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "prefixItems": [STRING]},
        "`prefixItems` is not a keyword of the draft",
    ),
    "an old draft": ({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer"}, "draft 6"),
    "too deep": (
        reduce(lambda inner, _: list_of(inner), range(40), STRING),
        "deeper",
    ),
    "too wide": (members(**{f"m{n}": STRING for n in range(300)}), "more than 256 members"),
}
