"""Which types a schema allows, and where its depth is no longer followed."""

from typing import Any

import pytest

from gateway.toolcalls.schema.json_types import (
    ALL,
    STRING,
    KindsInside,
    every_option,
    kinds_of,
    named_kinds,
    options_of,
)
from tests.cases import each_of


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"anyOf": [schema]}
    return schema


@pytest.mark.parametrize(("levels", "expected"), [(0, STRING), (15, STRING), (16, ALL), (17, ALL)])
def test_choices_are_followed_through_15_levels(levels: int, expected: frozenset[str]) -> None:
    assert kinds_of(nested(levels), {}) == expected


@pytest.mark.parametrize(("levels", "expected"), [(0, 1), (7, 8), (8, 9), (9, 9), (30, 9)])
def test_options_of_options_are_given_through_8_levels(levels: int, expected: int) -> None:
    assert len(list(every_option(nested(levels), {}))) == expected


@each_of(
    ("name", "kinds"),
    [
        ("string", STRING),
        ("varchar(9)", STRING),
        ("Uint8", {"integer"}),
        ("tuple", {"array"}),
        ("spam", ALL),
        ("", ALL),
        (["str", "null"], {"string", "null"}),
        ([], ALL),
        ([7], ALL),
        (7, ALL),
    ],
)
def test_types_of_other_languages_mean_json_s(name: object, kinds: set[str]) -> None:
    assert named_kinds(name) == frozenset(kinds)


def test_all_of_is_a_choice_only_where_it_holds_one_schema() -> None:
    one, other = {"type": "string"}, {"type": "null"}

    assert options_of({"allOf": [one]}) == [one]
    assert options_of({"allOf": [one, other]}) == []
    assert options_of({"oneOf": [one, other], "anyOf": []}) == [one, other]
    assert options_of({"anyOf": one}) == []


def test_types_inside_are_those_of_all_alternatives_and_looked_up_once() -> None:
    reads: list[str] = []

    class Table(dict[str, Any]):
        def get(self, key: str, default: Any = None) -> Any:
            reads.append(key)
            return super().get(key, default)

    inner = Table(a={"type": "string"})
    root = {"anyOf": [{"properties": inner}, {"additionalProperties": {"items": {"type": "integer"}}}]}
    inside = KindsInside(root)
    first = inside.at(["a"])
    count = len(reads)

    assert first == {"string"} | ALL & {"array"}
    assert (inside.at(["a"]), len(reads)) == (first, count)
    assert inside.at(["b", 0]) == {"integer"}
    assert inside.at(["b"] * 16) == ALL
    assert inside.at(["b"] * 17) == ALL


def test_alternatives_around_a_value_are_looked_at_up_to_16() -> None:
    def with_last(kind: str, count: int) -> dict[str, Any]:
        return {"anyOf": [*({"properties": {}} for _ in range(count - 1)), {"properties": {"a": {"type": kind}}}]}

    # The schema around them is one itself.
    assert KindsInside(with_last("null", 15)).at(["a"]) == {"null"}
    assert KindsInside(with_last("null", 16)).at(["a"]) == ALL


def chain(steps: int) -> dict[str, Any]:
    """A chain of so many references, the last to a schema of texts."""
    return {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(steps)} | {f"d{steps}": {"type": "string"}}


@pytest.mark.parametrize(("steps", "expected"), [(0, STRING), (14, STRING), (15, ALL), (40, ALL)])
def test_references_are_followed_through_15_levels(steps: int, expected: frozenset[str]) -> None:
    assert kinds_of({"$ref": "#/$defs/d0"}, {"$defs": chain(steps)}) == expected


def test_types_are_told_16_levels_inside() -> None:
    inside = KindsInside({"type": "object", "additionalProperties": {"$ref": "#"}})

    assert [inside.at(["b"] * levels) for levels in (0, 1, 16)] == [{"object"}] * 3
    assert inside.at(["b"] * 17) == ALL


@each_of(
    ("schema", "kinds"),
    [
        ({"enum": ["a", 1, 1.5, True, None, [], {}]}, ALL),
        ({"enum": ["a", None]}, {"string", "null"}),
        ({"enum": []}, ALL),
        ({"enum": "a"}, ALL),
        ({"const": 1}, {"integer"}),
        ({"const": None}, {"null"}),
        ({"type": "string", "const": 1}, STRING),
        ({"properties": {}}, {"object"}),
        ({"minLength": 1}, STRING),
        ({"type": "string", "nullable": True}, {"string", "null"}),
        ({"type": "string", "nullable": "yes"}, STRING),
        ({"anyOf": [{"type": "string"}, {"type": "null"}], "allOf": [{"type": "string"}]}, STRING),
        ({"allOf": [{"type": "string"}, {"type": ["string", "null"]}]}, STRING),
        ({"oneOf": [{"type": "string"}, {"const": 1}]}, {"string", "integer"}),
        ({"anyOf": []}, ALL),
        ({"$ref": "#/$defs/text", "type": ["string", "null"]}, STRING),
        ({"$ref": "#/$defs/loop"}, STRING),
        ({"$ref": 7}, ALL),
        (True, ALL),
        (7, ALL),
    ],
)
def test_types_that_a_schema_allows(schema: Any, kinds: set[str]) -> None:
    loop = {"type": "string", "anyOf": [{"$ref": "#/$defs/loop"}, {"type": "integer"}]}

    assert kinds_of(schema, {"$defs": {"text": {"type": "string"}, "loop": loop}}) == frozenset(kinds)


def test_items_with_places_are_of_any_type() -> None:
    inside = KindsInside({"prefixItems": [{"type": "null"}], "items": {"type": "integer"}})

    assert inside.at([0]) == inside.at([1]) == ALL
