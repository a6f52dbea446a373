"""Which JSON types a schema allows, which decides how a value without quotes is read.

Turns a schema, with the root that its references point into, into a set of type names. A schema allows what it does not
restrict. Schemas come from outside: depth has a bound, and anything that is not a schema allows everything. Source:
JSON Schema 2020-12; `nullable` is OpenAPI's.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, cast

from gateway.toolcalls.schema.keywords import resolve

Kinds = frozenset[str]

ALL: Kinds = frozenset({"string", "integer", "number", "boolean", "null", "object", "array"})
STRING: Kinds = frozenset({"string"})
NUMBERS: Kinds = frozenset({"integer", "number"})
_ONE = {kind: frozenset({kind}) for kind in ALL}

_MAX_DEPTH = 16
_MAX_OPTIONS = 16
"""Most alternatives that are looked at for each step of a path."""
_TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
}
_HINTS = {"properties": "object", "items": "array", "prefixItems": "array", "pattern": "string", "minLength": "string"}

_ALIASES = {
    "string": ("str", "text", "varchar", "char", "enum"),
    "integer": ("int", "uint", "long", "short", "unsigned"),
    "number": ("num", "float", "double", "decimal"),
    "boolean": ("bool",),
    "object": ("dict", "map"),
    "array": ("arr", "list", "tuple", "set"),
}


def mapping_of(value: object) -> Mapping[str, Any]:
    """Return a part of a schema as a mapping, an empty one if it is not a mapping."""
    return cast("Mapping[str, Any]", value if isinstance(value, Mapping) else {})


def kinds_of(
    schema: object, root: Mapping[str, Any], depth: int = _MAX_DEPTH, met: dict[str, Kinds] | None = None
) -> Kinds:
    """Return the types that a schema allows, with `null` where OpenAPI's `nullable` asks for it.

    `met` holds the types of each reference: one is followed once, however often a schema names it.
    """
    known = mapping_of(schema)
    if not known or depth == 0:
        return ALL
    met = {} if met is None else met
    kinds = _typed(known) & _chosen(known, root, depth - 1, met)
    if isinstance(reference := known.get("$ref"), str):
        if reference not in met:
            met[reference] = ALL
            met[reference] = kinds_of(resolve(reference, root), root, depth - 1, met)
        kinds &= met[reference]
    return kinds | {"null"} if known.get("nullable") is True else kinds


class KindsInside:
    """The types that a schema allows at the paths of values inside. What is around several values is looked up once."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._found: dict[tuple[str | int, ...], list[object]] = {(): [root]}

    def at(self, path: Sequence[str | int]) -> Kinds:
        """Return the types at a path of keys, and of numbers for items of lists."""
        if len(path) > _MAX_DEPTH:
            return ALL
        kinds = (kinds_of(schema, self._root) for schema in self._schemas(tuple(path)))
        return frozenset[str]().union(*kinds) or ALL

    def _schemas(self, path: tuple[str | int, ...]) -> list[object]:
        if path not in self._found:
            above = (every_option(schema, self._root) for schema in self._schemas(path[:-1]))
            parts = islice(chain.from_iterable(above), _MAX_OPTIONS)
            self._found[path] = [found for part in parts if mapping_of(found := _inside(part, path[-1]))]
        return self._found[path]


def _inside(part: Mapping[str, Any], step: str | int) -> object:
    if isinstance(step, int):
        return None if "prefixItems" in part else part.get("items")
    return mapping_of(part.get("properties")).get(step, part.get("additionalProperties"))


def every_option(schema: object, root: Mapping[str, Any], depth: int = 8) -> Iterator[Mapping[str, Any]]:
    """Yield what a schema leads to, and all its alternatives."""
    known = followed(schema, root)
    yield known
    for option in options_of(known) if depth else ():
        yield from every_option(option, root, depth - 1)


def hinted_kind(schema: Mapping[str, Any]) -> str | None:
    """Return the type that the other keywords of a schema without `type` imply; None where they imply none."""
    return next((kind for key, kind in _HINTS.items() if key in schema), None)


def followed(schema: object, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema that a chain of references leads to; an empty one if it leads nowhere."""
    known = mapping_of(schema)
    seen: set[str] = set()
    while isinstance(reference := known.get("$ref"), str) and reference not in seen:
        seen.add(reference)
        known = mapping_of(resolve(reference, root))
    return known


def options_of(schema: Mapping[str, Any]) -> list[object]:
    """Return the schemas of which a value must fit one; a single one for `allOf`, since GBNF has no conjunction."""
    for key in ("anyOf", "oneOf", "allOf"):
        options = schema.get(key)
        if isinstance(options, list) and options and (key != "allOf" or len(cast("list[object]", options)) == 1):
            return cast("list[object]", options)
    return []


def named_kinds(names: object) -> Kinds:
    """Return the types that `type` means, one name or a list of them; all types where it means nothing."""
    if isinstance(names, str):
        return _ONE.get(names) or _named(names)
    listed = cast("list[object]", names) if isinstance(names, list) else [names]
    return frozenset[str]().union(*(_named(name) for name in listed if isinstance(name, str))) or ALL


def _typed(schema: Mapping[str, Any]) -> Kinds:
    kind: object = schema.get("type")
    if isinstance(kind, str | list):
        return named_kinds(cast("object", kind))
    if isinstance(values := schema.get("enum"), list) and values:
        return frozenset(map(_kind_of, cast("list[object]", values)))
    if "const" in schema:
        return frozenset({_kind_of(schema["const"])})
    hint = hinted_kind(schema)
    return frozenset({hint}) if hint else ALL


def _named(kind: str) -> Kinds:
    """Return what a type's name means; those of other languages are not JSON Schema, but tools use them anyway."""
    if kind in ALL:
        return frozenset({kind})
    found = next((name for name, starts in _ALIASES.items() if kind.lower().startswith(starts)), None)
    return frozenset({found}) if found else ALL


def _kind_of(value: object) -> str:
    return _TYPES.get(type(value), "null")


def _chosen(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int, met: dict[str, Kinds]) -> Kinds:
    kinds = ALL
    for key in ("anyOf", "oneOf", "allOf"):
        options: object = schema.get(key)
        if isinstance(options, list) and options:
            each = [kinds_of(option, root, depth, met) for option in cast("list[object]", options)]
            kinds &= ALL.intersection(*each) if key == "allOf" else frozenset[str]().union(*each)
    return kinds
