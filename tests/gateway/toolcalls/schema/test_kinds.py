"""Which types a schema allows, and where its depth is no longer followed."""

from typing import Any

import pytest

from gateway.toolcalls.schema.kinds import (
    ALL,
    STRING,
    KindsInside,
    every_option,
    kinds_of,
    named_kinds,
    options_of,
)


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


@pytest.mark.parametrize(
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
