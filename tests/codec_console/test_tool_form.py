"""A tool's schema as a form, and back: whatever a schema holds there is a form, and nobody else's names are inputs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codec_console.tool_form import WHOLE, arguments_of, fields_of
from gateway.errors import RequestInvalid
from tests.cases import each_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["type", "enum", "anyOf"]), inner),
    max_leaves=8,
)
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string"},
        "many": {"type": "integer"},
        "share": {"type": "number"},
        "sure": {"type": "boolean"},
        "colour": {"enum": ["red", 2, None]},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "said"},
        "list": {"type": "array", "items": {"type": "string"}},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    },
}


def filled(**given_: str) -> dict[str, str]:
    """A form, filled in by the names of the arguments."""
    keys = {each.name: each.key for each in fields_of(SCHEMA)}
    return {keys[name]: value for name, value in given_.items()}


def test_each_property_has_a_field_of_its_kind() -> None:
    kinds = {each.name: each.kind for each in fields_of(SCHEMA)}

    assert kinds == {
        "name": "text",
        "many": "integer",
        "share": "number",
        "sure": "choice",
        "colour": "choice",
        "maybe": "text",
        "list": "json",
        "either": "json",
    }
    assert [each.name for each in fields_of(SCHEMA) if each.required] == ["name"]
    assert next(each.hint for each in fields_of(SCHEMA) if each.name == "maybe") == "said"


def test_filled_form_is_the_arguments_and_what_is_empty_is_left_out() -> None:
    form = filled(name=" a\nb ", many="-3", share="1e-3", sure="false", colour='"red"', list='["x"]', either="7")

    assert arguments_of(SCHEMA, form) == {
        "name": " a\nb ",
        "many": -3,
        "share": 0.001,
        "sure": False,
        "colour": "red",
        "list": ["x"],
        "either": 7,
    }
    assert arguments_of(SCHEMA, {}) == {"name": ""}
    assert arguments_of(SCHEMA, filled(colour="null")) == {"name": "", "colour": None}


def test_all_arguments_as_json_win() -> None:
    assert arguments_of(SCHEMA, {**filled(name="x"), WHOLE: ' {"other": 1} '}) == {"other": 1}


@each_of(
    "given_",
    [
        {"many": "1.5"},
        {"many": "true"},
        {"many": "x"},
        {"many": "9" * 5000},
        {"share": "1e999"},
        {"share": "NaN"},
        {"share": '"1"'},
        {"colour": '"blue"'},
        {"sure": "1"},
        {"list": "[1,"},
    ],
)
def test_field_that_does_not_hold_what_it_should_is_named(given_: dict[str, str]) -> None:
    with pytest.raises(RequestInvalid, match=next(iter(given_))):
        arguments_of(SCHEMA, filled(**given_))


@given(schema=JSON, text=st.text())
def test_any_schema_has_a_form_and_any_form_is_arguments_or_refused(schema: Any, text: str) -> None:
    for whole in (schema, {"properties": schema}, {"properties": {text: schema}, "required": [text]}):
        fields = fields_of(whole)
        assert [each.key for each in fields] == [f"a{n}" for n in range(len(fields))]
        assert all(choice.isascii() for each in fields for choice in each.choices)
        try:
            arguments = arguments_of(whole, {each.key: text for each in fields})
        except RequestInvalid:
            continue
        assert arguments.keys() <= {each.name for each in fields}


def test_choices_that_would_fill_a_page_are_written_as_json() -> None:
    schema = {"properties": {"one": {"enum": ["W" * 20_000, "short"]}, "two": {"enum": ["long enough", "short"]}}}

    assert [each.kind for each in fields_of(schema)] == ["json", "choice"]
    assert arguments_of(schema, {"a0": '"short"'}) == {"one": "short"}
