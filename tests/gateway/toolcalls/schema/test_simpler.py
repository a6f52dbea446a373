"""Simpler forms of schemas: any JSON is taken, nothing is forbidden that the schema allows, and they are plain."""

from collections.abc import Iterator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.toolcalls.schema.merge import tidied, typed
from gateway.toolcalls.schema.schema_check import problems
from tests.cases import each_of

WORDS = ("type", "properties", "items", "required", "enum", "anyOf", "$ref", "$defs", "description", "a", "1")
LEAVES = st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from([*WORDS, "string", "array", "#", "#/$defs/a"])
ANY_JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4)
)
SCHEMAS = st.dictionaries(st.sampled_from(WORDS), ANY_JSON, max_size=5)


def parts(schema: Any) -> Iterator[dict[str, Any]]:
    assert isinstance(schema, dict)
    known = cast("dict[str, Any]", schema)
    yield known
    for each in [*known.get("properties", {}).values(), *([known["items"]] if "items" in known else [])]:
        yield from parts(each)


@given(SCHEMAS)
def test_any_json_becomes_a_schema_of_an_object(schema):
    for form in (tidied(schema), typed(schema)):
        assert form["type"] == "object"
        for part in parts(form):
            assert isinstance(part.get("properties", {}), dict)
            assert isinstance(part.get("required", []), list)
            assert set(part.get("required", [])) <= set(part.get("properties", {}))


@given(SCHEMAS)
def test_tidied_form_stays_as_it_is(schema):
    assert tidied(tidied(schema)) == tidied(schema)


@given(SCHEMAS)
def test_typed_form_has_one_plain_type_for_each_part_and_few_keywords(schema):
    for part in parts(typed(schema)):
        assert part["type"] in {"string", "number", "integer", "boolean", "object", "array"}
        assert part.keys() <= {"type", "description", "properties", "required", "items", "enum"}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "string", "enum": ["x"]}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "string"}}},
        {
            "type": "object",
            "properties": {"a": {"type": ["string", "null"], "items": {}}},
            "additionalProperties": True,
        },
    ],
)
def test_what_templates_read_is_not_changed(schema):
    assert tidied(schema) == schema


@each_of(
    "part", [True, None, "string", {"type": "array"}, {"items": [{"type": "string"}]}, {"enum": []}, {"required": True}]
)
@each_of("value", ["x", 1, None, ["x", 1], {"b": 2}])
def test_tidied_form_allows_what_the_schema_allows(part, value):
    schema = {"type": "object", "properties": {"a": part}}
    if not problems(schema, {"a": value}):
        assert problems(tidied(schema), {"a": value}) == []


def test_typed_form_follows_references_and_keeps_descriptions_and_words():
    schema = {
        "properties": {"a": {"$ref": "#/$defs/A", "description": "Which."}, "n": {"type": ["integer", "null"]}},
        "$defs": {"A": {"type": "string", "enum": ["x", 1], "description": "Of A."}},
    }
    assert typed(schema)["properties"] == {
        "a": {"type": "string", "description": "Which.", "enum": ["x"]},
        "n": {"type": "integer"},
    }


def test_typed_form_of_a_recursion_ends():
    schema = {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}}}

    assert typed(schema)["properties"]["kids"]["items"]["properties"]["kids"]["type"] == "array"


@pytest.mark.parametrize("kinds", ["array", ["array"], ["string", "null"]])
def test_tidied_form_has_items_wherever_a_template_may_loop_over_them(kinds: Any) -> None:
    assert tidied({"properties": {"a": {"type": kinds}}})["properties"]["a"] == {"type": kinds, "items": {}}
    assert tidied({"properties": {"a": {"type": "object"}}})["properties"]["a"] == {"type": "object"}


@each_of(
    ("part", "expected"),
    [
        ({"items": [{"type": "string"}]}, {"items": {}}),
        ({"items": {"items": True}}, {"items": {"items": {}}}),
        ({"additionalProperties": False}, {"additionalProperties": False}),
        ({"additionalProperties": True}, {"additionalProperties": True}),
        ({"additionalProperties": {}}, {"additionalProperties": True}),
        ({"additionalProperties": {"required": None}}, {"additionalProperties": {}}),
        ({"properties": {"a": True}, "required": ["a", "b", 7]}, {"properties": {"a": {}}, "required": ["a"]}),
        ({"properties": {"a": True}, "required": ["b"]}, {"properties": {"a": {}}}),
        ({"required": "a"}, {}),
        ({"type": "string", "enum": ["x", 1, None]}, {"type": "string", "enum": ["x"]}),
        ({"type": "string", "enum": [1]}, {"type": "string"}),
        ({"enum": ["x", 1]}, {"enum": ["x", 1]}),
        ({"enum": "x"}, {}),
        ({"type": 7}, {}),
        ({"type": ["string", 7]}, {"type": ["string"], "items": {}}),
        ({"description": 7, "title": None, "format": "date", "pattern": []}, {"format": "date"}),
        ({"default": None, "x-unknown": 7}, {"x-unknown": 7}),
        ({"anyOf": [True, {"required": None}]}, {"anyOf": [{}, {}]}),
        ({"anyOf": [], "oneOf": {}}, {}),
        ({"patternProperties": {"^a": {"enum": None}}}, {"patternProperties": {"^a": {}}}),
    ],
)
def test_keyword_that_a_template_trips_over_is_mended_or_left_out(part: Any, expected: Any) -> None:
    assert tidied({"properties": {"a": part}})["properties"]["a"] == expected


def deep(levels: int, part: dict[str, Any]) -> dict[str, Any]:
    for _ in range(levels):
        part = {"type": "object", "properties": {"a": part}}
    return part


def levels_of(form: dict[str, Any]) -> int:
    return 1 + levels_of(form["properties"]["a"]) if form.get("properties") else 0


@pytest.mark.parametrize("levels", [15, 16, 17, 30])
def test_simpler_forms_have_at_most_16_levels(levels: int) -> None:
    schema = deep(levels, {"type": "string", "enum": ["x"]})

    assert levels_of(tidied(schema)) == min(levels, 16)
    assert levels_of(typed(schema)) == min(levels, 16)
    lists: dict[str, Any] = {"type": "array", "items": {"type": "null"}}
    for _ in range(levels):
        lists = {"type": "array", "items": lists}
    found, count = typed({"properties": {"a": lists}})["properties"]["a"], 0
    while "items" in found:
        found, count = found["items"], count + 1
    assert count == min(levels + 1, 16)
    assert found == {"type": "string"}


def test_typed_form_of_references_that_branch_has_at_most_2000_parts() -> None:
    names = [f"{n}" for n in range(9)]
    schema = {"properties": {name: {"$ref": "#"} for name in names}}

    def count(form: dict[str, Any]) -> int:
        return 1 + sum(map(count, form.get("properties", {}).values()))

    # Each part that may have parts of its own names up to nine without any.
    assert 2000 < count(typed(schema)) <= 2000 + len(names) * 16


@each_of(
    ("part", "expected"),
    [
        ({"type": ["null", "integer"]}, {"type": "integer"}),
        ({"type": ["integer", "number"]}, {"type": "number"}),
        ({"type": ["array", "object"]}, {"type": "object"}),
        ({"type": ["string", "array"]}, {"type": "array", "items": {"type": "string"}}),
        ({}, {"type": "string"}),
        ({"type": "null"}, {"type": "string"}),
        ({"enum": ["x", "y"]}, {"type": "string", "enum": ["x", "y"]}),
        ({"type": "integer", "enum": [1, 2]}, {"type": "integer"}),
        ({"type": "object"}, {"type": "object"}),
        ({"type": "object", "properties": {"b": {}}}, {"properties": {"b": {"type": "string"}}, "required": []}),
        (
            {"properties": {"b": {}}, "required": ["b", "c"]},
            {"properties": {"b": {"type": "string"}}, "required": ["b"]},
        ),
        ({"type": "array", "items": {"type": "boolean"}}, {"type": "array", "items": {"type": "boolean"}}),
        ({"$ref": "#/$defs/d"}, {"type": "boolean", "description": "Of d."}),
        ({"$ref": "#/$defs/d", "description": 7}, {"type": "boolean", "description": "Of d."}),
        ({"$ref": "#/$defs/d", "description": "Here."}, {"type": "boolean", "description": "Here."}),
    ],
)
def test_typed_form_of_a_part(part: Any, expected: dict[str, Any]) -> None:
    schema = {"properties": {"a": part}, "$defs": {"d": {"type": "boolean", "description": "Of d."}}}

    assert typed(schema)["properties"]["a"] == {"type": "object", **expected}
