"""Which JSON types a schema allows, which decides how a value without quotes is read, and what its references name.

Turns a schema, with the root that its references point into, into a set of type names. A schema allows what it does not
restrict. Schemas come from outside: depth has a bound, and anything that is not a schema allows everything. Source:
JSON Schema 2020-12; `nullable` is OpenAPI's.
"""

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from typing import Any, Final, cast

from gateway.toolcalls.schema.keywords import DATA

# What a `$ref` names: a JSON pointer into the same schema, an anchor, or a part with an `$id`. Nothing is fetched.
#
# Turns a reference and the schema's root into the part that it names. Schemas come from outside: any JSON is taken, the
# search for anchors has a bound, and a reference that leads nowhere allows any value. Sources: RFC 6901 (pointers, also
# as URI fragments), JSON Schema 2020-12 (`$anchor`, `$id`), draft 7 (`$id` of the form `#name`).

_MAX_PARTS: Final = 500
"""Most parts of a schema in which an anchor is looked for: each reference may look anew."""
_MAX_REFERENCES: Final = 10_000
_VALUES: Final = 10
"""Values that are looked at for each part that may be found: lists may be wide."""
SchemaNames = Mapping[str, Mapping[str, Any]]
_PERCENT: Final = re.compile(r"(?:%[0-9A-Fa-f]{2})+")


def resolve(reference: str, root: Mapping[str, Any]) -> object:
    """Return what a reference names; None where it names nothing in this schema, which is never changed."""
    address, _, fragment = reference.partition("#")
    base: Mapping[str, Any] | None = root
    if address and address != root.get("$id"):
        base = _identified(address, root, _names(_Same(root)))
    if not fragment or base is None:
        return base
    if fragment.startswith("/"):
        found = _pointed(unquoted(fragment), base)
        # Who does not know that a fragment is a part of a URI writes `%` as it stands.
        return found if found is not None or "%" not in fragment else _pointed(fragment, base)
    return _names(_Same(base)).get(f"#{unquoted(fragment)}")


def unquoted(fragment: str) -> str:
    """Return a fragment of a URI without percent encoding; what is not UTF-8 stays as it is."""
    return _PERCENT.sub(lambda found: _decoded(found.group()), fragment)


def steps(pointer: str) -> list[str]:
    """Return the names of a pointer, without escapes."""
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def escaped(name: str) -> str:
    """Return a name as a step of a pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def dead_references(schema: Mapping[str, Any]) -> list[str]:
    """Return the references of a schema that lead nowhere in it, each once."""
    references = (part.get("$ref") for part in _parts(schema, _MAX_REFERENCES))
    each_once = dict.fromkeys(each for each in references if isinstance(each, str))
    return [each for each in each_once if not _is_schema(resolve(each, schema))]


def _decoded(written: str) -> str:
    try:
        return bytes.fromhex(written.replace("%", "")).decode()
    except UnicodeDecodeError:
        return written


def _is_schema(value: object) -> bool:
    return isinstance(value, Mapping | bool)


def _pointed(pointer: str, found: object) -> object:
    for step in steps(pointer):
        if isinstance(found, Mapping):
            found = cast("Mapping[str, object]", found).get(step)
        elif isinstance(found, list) and step.isdecimal() and step.isascii() and (step == "0" or step[0] != "0"):
            items = cast("list[object]", found)
            found = items[int(step)] if len(step) <= len(str(len(items))) and int(step) < len(items) else None
        else:
            return None
    return found


def _identified(address: str, root: Mapping[str, Any], names: SchemaNames) -> Mapping[str, Any] | None:
    """The part whose `$id` is this address, which may be relative to that of the schema."""
    own = root.get("$id")
    whole = f"{own.rpartition('/')[0]}/{address}" if isinstance(own, str) and "/" in own else address
    return next((names[each] for each in (address, whole, f"{address}#") if each in names), None)


@dataclass(frozen=True, slots=True)
class _Same:
    """A part of a schema, equal to itself alone."""

    part: Mapping[str, Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.part is self.part

    def __hash__(self) -> int:
        return id(self.part)


# A schema may have thousands of references, and each search takes a millisecond.
@lru_cache(maxsize=16)
def _names(base: _Same) -> SchemaNames:
    """The parts of a schema by their `$id`, and by `#` and their anchors; the first of each name."""
    found = dict[str, Mapping[str, Any]]()
    for part in _parts(base.part):
        named = (part.get("$id"), *(f"#{part[key]}" for key in ("$anchor", "$dynamicAnchor") if key in part))
        for name in named:
            if isinstance(name, str):
                found.setdefault(name, part)
    return found


def _parts(schema: Mapping[str, Any], most: int = _MAX_PARTS) -> Iterator[Mapping[str, Any]]:
    """Yield the mappings inside a schema, itself first, but none in a value of data; at most `most`."""
    waiting, room = deque[object]([schema]), most * _VALUES
    while waiting and most > 0:
        each, values = waiting.popleft(), list[object]()
        if isinstance(each, Mapping):
            known = cast("Mapping[str, Any]", each)
            yield known
            most -= 1
            values = [value for key, value in islice(known.items(), room) if key not in DATA]
        else:
            values = list(islice(cast("list[object]", each), room))
        room -= len(values)
        waiting += [value for value in values if isinstance(value, dict | list)]


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
