"""Which types a schema allows, and where its depth is no longer followed."""

from typing import Any

import pytest

from gateway.toolcalls.schema.kinds import ALL, STRING, every_option, kinds_of


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
