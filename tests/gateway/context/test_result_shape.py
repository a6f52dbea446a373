"""What is said of a large result in a line."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.context.result_store import shape_of


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("one\ntwo", "text of 2 lines"),
        ("one", "text of 1 line"),
        ("a\nb\n", "text of 2 lines"),
        ("[1, 2]", "JSON, an array of 2 items, the first one number"),
        ('[{"a": 1, "b": 2}]', "JSON, an array of 1 item, the first one an object with the keys a, b"),
        ('{"a": [], "b": {"c": 1}}', "JSON, an object with a (an array of 0 items), b (an object with the keys c)"),
        ('{"a": ', "text of 1 line"),
        ("a,b\n1,2\n3,4\n5,6\n7,8\n", "table of 5 lines with the columns a, b"),
        ("| a | b |\n|---|---|\n|1|2|\n|3|4|\n|5|6|", "table of 5 lines with the columns a, b"),
        ("a,b\n1\n2\n3\n4", "text of 5 lines"),
    ],
)
def test_shape(text, shape):
    assert shape_of(text) == shape


def test_shape_of_many_objects_with_many_long_keys_is_short():
    shape = shape_of(json.dumps({f"{n:036}": {f"{m:036}": 1 for m in range(20)} for n in range(20)}))
    assert shape.startswith("JSON, an object with 0000")
    assert len(shape) < 420


def test_half_a_character_in_a_key_is_replaced():
    assert shape_of('{"\\ud800": 1}') == "JSON, an object with ? (number)"


def test_many_and_long_keys_are_cut():
    shape = shape_of(json.dumps({f"key {n} {'x' * 100}\n": n for n in range(50)}))
    assert shape.endswith("...")
    assert len(shape) < 420
    assert "\n" not in shape


@given(st.text(max_size=200))
def test_any_text_has_a_short_shape_of_one_line(text):
    shape = shape_of(text)
    assert "\n" not in shape
    assert len(shape) < 1000
