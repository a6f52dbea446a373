"""Tools whose schemas ask a grammar for everything that it can say, in three sets and a fourth that asks for nothing.

Nearly every string, list and number of the three has a bound: what a model writes under their grammars ends of itself,
and a generation that meets the token limit is a fault of the grammar.
"""

from typing import Any

from gateway.toolcalls.schema.spec import ToolSpec


def _object(properties: dict[str, Any], required: list[str], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, **more}


_NODE = _object(
    {
        "value": {"anyOf": [{"type": "boolean"}, {"type": "integer", "minimum": -9, "maximum": 9}, {"const": None}]},
        "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}, "maxItems": 1},
    },
    ["value"],
)

TOOL_SETS: dict[str, tuple[ToolSpec, ...]] = {
    "flat": (
        ToolSpec(
            "get_weather",
            "Weather of a city.",
            _object(
                {
                    "city": {"type": "string", "minLength": 1, "maxLength": 10},
                    "days": {"type": "integer", "minimum": 1, "maximum": 14},
                    "unit": {"enum": ["°C", "°F", 'say "K"', "a\\b"]},
                },
                ["city"],
            ),
        ),
        ToolSpec("now", "The time.", {"type": "object", "properties": {}, "additionalProperties": False}),
    ),
    "nested": (
        ToolSpec(
            "plant",
            "Plants a tree.",
            _object(
                {
                    "root": {"$ref": "#/$defs/Node"},
                    "note": {"type": ["string", "null"], "maxLength": 8},
                    "place": _object({"x": {"type": "integer"}, "wet": {"type": "boolean"}}, ["x"]),
                },
                ["root", "note"],
                **{"$defs": {"Node": _NODE}},
            ),
        ),
    ),
    "odd": (
        ToolSpec(
            "files.set-options",
            "Sets options.",
            _object(
                {
                    "dry-run": {"type": "boolean"},
                    "mode": {"const": "fast"},
                    "größe": {"type": "array", "items": {"enum": ["<b>", "ß", 7, None]}, "minItems": 1, "maxItems": 2},
                    "either": {"oneOf": [{"type": "string", "maxLength": 6}, {"type": "integer"}]},
                    "point": {"prefixItems": [{"type": "integer", "exclusiveMinimum": 0}, {"type": "null"}]},
                },
                ["dry-run", "größe"],
            ),
        ),
        ToolSpec("ping", "", _object({"ratio": {"type": "number"}, "hosts": {"maxItems": 0, "type": "array"}}, [])),
    ),
}

SHELF = (
    ToolSpec(
        "shelve",
        "Puts books on a shelf.",
        _object(
            {
                "books": {"type": "array", "items": {"$ref": "#/$defs/Book"}, "minItems": 1},
                "note": {"type": ["string", "null"]},
                "place": {"allOf": [{"$ref": "#/$defs/Book"}, {"properties": {"title": {"minLength": 2}}}]},
            },
            ["books"],
            **{"$defs": {"Book": _object({"title": {"type": "string"}, "year": {"type": "integer"}}, ["title"])}},
        ),
    ),
)

ANYTHING = (ToolSpec("note", "Takes anything.", {"type": "object", "properties": {"x": {}}, "required": ["x"]}),)

MAP = (ToolSpec("flags", "", _object({}, [], additionalProperties={"type": "boolean"})),)
