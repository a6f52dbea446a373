"""The path of a value by the JSON before it, against a walk through the whole value."""

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given

from gateway.toolcalls.schema.json_types import ALL, KindsInside
from gateway.toolcalls.values.string_end import ITEM, KEPT, PathStep, last_key, open_places, recent
from tests.gateway.toolcalls.strategies import json_values


def numbered(value: Any, count: Iterator[int]) -> Any:
    """The value with a number of its own in place of each leaf."""
    match value:
        case dict():
            return {key: numbered(each, count) for key, each in value.items()}
        case list():
            return [numbered(each, count) for each in value]
        case _:
            return next(count)


def leaves(value: Any, path: tuple[PathStep, ...] = ()) -> Iterator[tuple[PathStep, ...]]:
    match value:
        case dict():
            for key, each in value.items():
                yield from leaves(each, (*path, key))
        case list():
            for each in value:
                yield from leaves(each, (*path, ITEM))
        case _:
            yield path


@given(json_values)
def test_each_leaf_is_found_by_the_text_before_it(value: Any) -> None:
    value = numbered({"a": value}, iter(range(10_000, 20_000)))
    text = json.dumps(value, ensure_ascii=False, indent=1)
    for number, path in enumerate(leaves(value), 10_000):
        before = text[: text.index(str(number))]
        in_list = before.rstrip(" \n")[-1] in "[,"
        assert (*open_places(before)[1:], ITEM if in_list else last_key(before)) == path


def test_a_beginning_that_ends_in_a_string_opens_nothing_in_it() -> None:
    assert open_places('{"a": [{"b": "{[\\"{') == [None, "a", ITEM]
    assert open_places('{"a{": {}, "b') == [None]
    assert open_places("") == []


def test_a_bracket_that_closes_nothing_opens_nothing() -> None:
    assert open_places('}{"a": [') == [None, "a"]


def test_a_key_is_the_whole_string_before_a_colon() -> None:
    assert last_key('{"a\\"b\\\\": ') == 'a"b\\'
    assert last_key('{"": \n ') == ""
    assert last_key('["a", ') is last_key('{"a"') is last_key("") is last_key(":") is last_key('":') is None
    assert last_key(f'{{"{"k" * KEPT}": ') is None


def test_only_the_end_of_a_text_in_pieces_is_joined() -> None:
    assert recent(["x", "", "y"], "ab") == "abxy"
    assert recent(["no"] * 10 + ["x" * KEPT, "y"], "ab") == "x" * (KEPT - 1) + "y"


def test_a_path_that_a_schema_does_not_describe_allows_everything() -> None:
    round_about: dict[str, Any] = {"properties": {"a": {"$ref": "#"}, "n": {"type": "string"}}}
    kinds = KindsInside(round_about)
    assert kinds.at(["a", "a", "n"]) == {"string"}
    assert kinds.at(["a", "b"]) == kinds.at([ITEM]) == kinds.at(["a"] * 100) == ALL
    wide = {"anyOf": [{"anyOf": [{"properties": {"n": {"type": "string"}}}] * 50}] * 50}
    assert KindsInside(wide).at(["n"] * 40) == ALL
