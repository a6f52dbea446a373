"""Schemas that a stranger would write to make an engine slow: alternatives that begin alike, one inside the other."""

import json
import random
from collections.abc import Sequence
from typing import Any

LONGEST = 16 * 1024


def nested(levels: int, differ: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Choices inside choices: at each level arrays of the level below that differ in these keywords."""
    below: Any = {"type": "string"}
    found: dict[str, Any] = {}
    for level in range(levels):
        found[f"s{level}"] = {"anyOf": [{"type": "array", "items": below, **each} for each in differ]}
        below = {"$ref": f"#/$defs/s{level}"}
    return {"$defs": found, **below}


def nasty(source: random.Random) -> dict[str, Any]:
    """One of very many, of at most 16 KB."""
    while True:
        schema = source.choice((_layers, _layers, _members, _texts, _patterns))(source)
        if len(json.dumps(schema)) <= LONGEST:
            return schema


def _layers(source: random.Random) -> dict[str, Any]:
    levels, ways = source.randint(2, 20), source.randint(2, 6)
    below: Any = source.choice(({"type": "string"}, {"enum": ["a", "ab"]}, {}, {"type": "integer", "maximum": 9}))
    found: dict[str, Any] = {}
    for level in range(levels):
        found[f"s{level}"] = {source.choice(("anyOf", "anyOf", "oneOf")): [_way(source, below, n) for n in range(ways)]}
        below = {"$ref": f"#/$defs/s{source.randint(max(0, level - 2), level)}"}
    return {
        "type": "object",
        "properties": {"v": below},
        "required": ["v"],
        "additionalProperties": False,
        "$defs": found,
    }


def _way(source: random.Random, below: Any, number: int) -> dict[str, Any]:
    match source.randint(0, 5):
        case 0:
            return {"type": "array", "items": below, "minItems": source.randint(0, 3)}
        case 1:
            return {"type": "array", "items": below, "maxItems": source.randint(1, 900)}
        case 2:
            return {"type": "array", "prefixItems": [below] * source.randint(1, 3), "items": False}
        case 3:
            required = source.choice((["v"], []))
            properties = {"v": below, f"k{number}": {"type": "null"}}
            return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        case 4:
            return {"type": "array", "items": {"anyOf": [below, {"type": "array", "items": below}]}}
        case _:
            return {"type": "string", "pattern": source.choice(("^(a|aa){1,50}$", "^a{0,60}b?a{0,60}$", "^[^b]+$"))}


def _members(source: random.Random) -> dict[str, Any]:
    names = [f"{'k' * 30}{n}" for n in range(source.randint(50, 250))]
    one = {"type": "object", "properties": {name: {"type": "null"} for name in names}, "additionalProperties": False}
    return {"anyOf": [{**one, "minProperties": n} for n in range(source.randint(1, 3))], "type": "object"}


def _texts(source: random.Random) -> dict[str, Any]:
    texts = [f"{'v' * source.randint(1, 20)}{n}" for n in range(source.randint(100, 900))]
    return _object({"enum": texts})


def _patterns(source: random.Random) -> dict[str, Any]:
    piece = ("a", "[a-z]", "(a|aa)", "(a|b|ab)", ".", "a?", "(a|[a-c])")
    count = ("*", "+", "{1,40}", "{30}", "{0,300}", "{2,}", "")
    pattern = "".join(source.choice(piece) + source.choice(count) for _ in range(source.randint(1, 9)))
    return _object({"type": "string", "pattern": source.choice(("^{}$", "{}", "^({})*$")).format(pattern)})


def _object(value: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"v": value}, "required": ["v"], "additionalProperties": False}
