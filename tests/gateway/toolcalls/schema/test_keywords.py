"""Which schemas stand inside a schema, and which values keywords take."""

from typing import Any

from gateway.toolcalls.schema.keywords import misfit, parts
from tests.cases import each_of

S: dict[str, Any] = {"type": "string"}


@each_of(
    ("schema", "paths"),
    [
        (S, [()]),
        ({"items": S}, [(), ("items",)]),
        ({"items": [S, True, S]}, [(), ("items", "0"), ("items", "2")]),
        ({"anyOf": [S], "not": S}, [(), ("anyOf", "0"), ("not",)]),
        ({"properties": {"a": S, "b": True, "anyOf": S}}, [(), ("properties", "a"), ("properties", "anyOf")]),
        ({"$defs": {"a": {"items": S}}}, [(), ("$defs", "a"), ("$defs", "a", "items")]),
        ({"enum": [S], "const": {"items": S}, "default": S}, [()]),
        ({"properties": [S], "anyOf": {"a": S}, "not": [S]}, [()]),
    ],
)
def test_schemas_inside_are_found_where_keywords_hold_them_and_not_in_data(
    schema: dict[str, Any], paths: list[tuple[str, ...]]
) -> None:
    assert sorted(path for path, _ in parts(schema)) == sorted(paths)


VALUES: list[tuple[str, list[Any], list[Any]]] = [
    ("minLength", [0, 3, 3.0], [-1, 1.5, True, "1", None, float("inf"), float("nan")]),
    ("minimum", [-1.5, 0], [True, "1", None]),
    ("multipleOf", [0.1, 7], [0, -1, True]),
    ("type", ["string", ["string", "null"]], ["str", [], [None], 7, {}]),
    ("anyOf", [[{}], [True, S]], [[], {}, [7], None]),
    ("items", [{}, True, [], [S]], [7, [7], "a"]),
    ("properties", [{}, {"a": True}], [[], {"a": 7}]),
    ("required", [[], ["a"]], [["a", 7], "a", {}]),
    ("dependentRequired", [{}, {"a": ["b"]}], [{"a": "b"}, []]),
    ("uniqueItems", [True, False], [1, "true"]),
    ("enum", [[], [None]], [{}, "a"]),
    ("pattern", ["("], [7, None]),
]


@each_of(("keyword", "good", "bad"), VALUES)
def test_value_that_a_keyword_does_not_take_is_named_with_its_place(
    keyword: str, good: list[object], bad: list[object]
) -> None:
    for value in good:
        assert misfit({"not": {keyword: value}}) is None, value
    for value in bad:
        found = misfit({"not": {keyword: value}})
        assert found is not None, value
        assert found[:2] == (("not",), keyword)
