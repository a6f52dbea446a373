"""Which listed values are of a schema's types, and whether two schemas may share a value. Pure."""

from gateway.toolcalls.grammar.schema_walk import kinds
from gateway.toolcalls.schema.kinds import ALL, mapping_of
from gateway.toolcalls.schema.merge import Parts, Schema, listed


def with_fitting(schema: Schema) -> Schema:
    """Return a plain schema with only those of its `enum` values that are of its types."""
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


class Option:
    """One schema of `oneOf`, read once for comparison with the others."""

    def __init__(self, parts: Parts) -> None:
        self._kinds = _said_kinds(parts)
        self._values = _values(parts)
        self._tags = _tags(parts)

    def is_apart(self, other: "Option") -> bool:
        """Whether no value can fit both, by type, by listed values, or by a required member that must differ."""
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
    """Return the values that a schema lists, if it does and they are simple; 1 equals 1.0, but not true."""
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
