"""Simpler forms of schemas: any JSON is taken, nothing is forbidden that the schema allows, and they are plain."""

from collections.abc import Iterator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.toolcalls.schema.merge import tidied, typed
from gateway.toolcalls.schema.schema_check import problems

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


@pytest.mark.parametrize(
    "part", [True, None, "string", {"type": "array"}, {"items": [{"type": "string"}]}, {"enum": []}, {"required": True}]
)
@pytest.mark.parametrize("value", ["x", 1, None, ["x", 1], {"b": 2}])
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
