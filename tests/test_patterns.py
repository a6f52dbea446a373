"""Regular expressions mean the same on every Python that is supported.

Python before 3.11.5, such as Debian bookworm's, matches `(...)*+` wrongly where the group could have matched otherwise
(https://github.com/python/cpython/issues/106052). A possessive quantifier behind a single character or class is right.
"""

import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import gateway
import leaf_sdk

_CLASS_OR_ESCAPE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_POSSESSIVE_GROUP = re.compile(r"\)(?:[*+?]|\{\d*,?\d*\})\+")


def has_possessive_group(pattern: str) -> bool:
    return _POSSESSIVE_GROUP.search(_CLASS_OR_ESCAPE.sub("a", pattern)) is not None


def patterns() -> Iterator[tuple[str, str]]:
    for package in (gateway, leaf_sdk):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                for name, value in vars(importlib.import_module(module.name)).items():
                    yield from ((f"{module.name}.{name}", found) for found in _held(value))


def _held(value: Any) -> Iterator[str]:
    """The regular expressions that a module's constant is, or holds."""
    values: list[Any] = [value]
    if isinstance(value, Mapping):
        values = list(value.values())
    elif isinstance(value, tuple | list):
        values = list(value)
    for each in values:
        if isinstance(each, re.Pattern):
            yield each.pattern if isinstance(each.pattern, str) else each.pattern.decode("latin-1")


@pytest.mark.parametrize(
    ("pattern", "is_one"),
    [(r"(?:a|b)*+", True), (r"(?:a){1,2}+", True), (r"[)*+]", False), (r"\)*+", False), (r"(a)[b]*+c++", False)],
)
def test_possessive_group_is_found(pattern: str, is_one: bool) -> None:
    assert has_possessive_group(pattern) is is_one


def test_no_regular_expression_has_a_possessive_group() -> None:
    found = dict(patterns())

    assert len(found) > 100
    assert [name for name, pattern in found.items() if has_possessive_group(pattern)] == []
