"""Schemas of parameters that llama.cpp's converter rejects, by their reports: ten or more variations of each."""

from typing import Any

Schema = dict[str, Any]

NAMES = (
    *("File", "Image", "Object", "Tool", "Name", "Text", "Repo", "Start", "End", "User", "System", "Token", "Message"),
    *("tool_call", "im_start", "a/b", "m~n", "x y", "é"),
)
EMPTY_PARTS: tuple[Schema, ...] = (
    *({"enum": []}, {"enum": None}, {"enum": "red"}, {"anyOf": []}, {"oneOf": []}, {"allOf": []}),
    *({"type": "array", "items": []}, {"pattern": "("}, {"pattern": "(?<=a)b"}, {"pattern": 5}, {"format": 5}),
    *({"minLength": 9, "maxLength": 1}, {"minimum": "a"}, {"required": "x"}, {"properties": ["a"]}),
)
ADDRESS: Schema = {"type": "object", "properties": {"zip": {"type": "string"}, "of": {"type": "array", "items": {}}}}
TYPES: tuple[Any, ...] = (
    *("any", "datetime", "date", "file", "String", "int", "float", "dict", "list", "None", "object | null", ""),
    *("array<string>", ["any"], ["string", "any"], [], None, 5, {}, {"type": "string"}, True),
)


def pointer(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def of(**parts: Any) -> Schema:
    """The schema of a tool whose parameter `x` is to be held."""
    return {"type": "object", "properties": {"x": parts.pop("x")}, **parts}


def _shaped(number: int, reference: Schema) -> Schema:
    shapes = (reference, {"type": "array", "items": reference}, {"anyOf": [reference, {"type": "null"}]})
    return shapes[number % len(shapes)]


NAMED = {
    f"{group} {name}": of(
        x=_shaped(number, {"$ref": f"#/{group}/{pointer(name)}"}),
        **{group: {name: ({"type": "string", "enum": ["red", "green"]}, ADDRESS)[number % 2]}},
    )
    for number, name in enumerate(NAMES)
    for group in ("$defs", "definitions")
}
BESIDE = {
    reference: {"type": "object", "properties": {"x": {"$ref": reference}, "start": ADDRESS, "a/b": ADDRESS, "m n": {}}}
    for reference in (
        *("#/properties/start", "#/properties/start/properties/zip", "#/properties/start/properties/of"),
        *("#/properties/start/properties/of/items", "#/properties/a~1b", "#/properties/a~1b/properties/zip"),
        *("#/properties/m n", "#/properties/m%20n", "#/properties/start/type", "#/properties/x"),
    )
}
INDEXED = {
    f"{keyword}/{index}": {
        "type": "object",
        "properties": {
            "x": {"$ref": f"#/properties/y/{keyword}/{index}"},
            "y": {keyword: [{"type": "string"}, ADDRESS]},
        },
    }
    for keyword in ("anyOf", "oneOf", "allOf", "prefixItems", "items")
    for index in (0, 1, 2, "01", "-")
}
RECURSIVE = {
    str(number): of(x=part, **{"$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}, "N": node}})
    for node in ({"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}]}}},)
    for number, part in enumerate(
        (
            *({"$ref": "#"}, {"type": "array", "items": {"$ref": "#"}}, {"anyOf": [{"$ref": "#"}, {"type": "null"}]}),
            *({"type": "object", "additionalProperties": {"$ref": "#"}}, {"allOf": [{"$ref": "#"}]}),
            *({"$ref": "#/$defs/A"}, {"$ref": "#/$defs/N"}, {"type": "array", "prefixItems": [{"$ref": "#/$defs/N"}]}),
            *({"$ref": "#/properties/x"}, {"oneOf": [{"$ref": "#/$defs/N"}, {"$ref": "#/$defs/N"}]}),
            *({"not": {"$ref": "#"}}, {"type": "object", "patternProperties": {"^a": {"$ref": "#"}}}),
        )
    )
}
TRUE = {
    str(number): of(x=part, **{"$defs": {"T": True}})
    for number, part in enumerate(
        (
            *(True, False, {"type": "array", "items": True}, {"type": "object", "properties": {"y": True}}),
            *({"type": "object", "additionalProperties": True}, {"anyOf": [True, {"type": "null"}]}),
            *({"allOf": [True]}, {"oneOf": [True]}, {"$ref": "#/$defs/T"}, {"type": "array", "prefixItems": [True]}),
            *({"not": False}, {"type": "object", "patternProperties": {"^a": True}}, {"if": True, "then": True}),
        )
    )
}
TYPED = {str(number): of(x={"type": kind}) for number, kind in enumerate(TYPES)}
NOWHERE = {
    str(reference): of(x={"$ref": reference})
    for reference in (
        *("#/$defs/Nothing", "#/nothing/at/all", "#/properties/x/items/7", "#here", "https://example.com/schema.json"),
        *("file.json#/x", "", "#/%ZZ", "#/~2", "urn:uuid:5", 5, None, ["#"]),
    )
}
EMPTY = {str(number): of(x=part) for number, part in enumerate(EMPTY_PARTS)}
CLASSES: dict[str, dict[str, Schema]] = {
    "definition named like a marker": NAMED,
    "reference to a property": BESIDE,
    "reference with an index": INDEXED,
    "recursion": RECURSIVE,
    "true and false": TRUE,
    "unknown type": TYPED,
    "reference to nowhere": NOWHERE,
    "no value": EMPTY,
}
