"""What is said of a large result in a line."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.context.large_result_store import shape_of
from tests.cases import each_of


@each_of(
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


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        ({}, "an object with no keys"),
        ([], "an array of 0 items"),
        ([{}], "an array of 1 item, the first one an object with no keys"),
        ([[[1], 2], 3], "an array of 2 items, the first one an array of 2 items"),
        ([[1]], "an array of 1 item, the first one an array of 1 item"),
        (
            {"s": "x", "b": True, "i": 1, "f": 1.5, "n": None},
            "an object with s (string), b (boolean), i (number), f (number), n (null)",
        ),
        ({"a": {}, "b": [{"c": [], "d": 1}]}, None),
    ],
)
def test_shape_of_json_goes_two_levels_deep(value, shape):
    nested = (
        "an object with a (an object with no keys), b (an array of 1 item, the first one an object with the keys c, d)"
    )
    assert shape_of(json.dumps(value)) == f"JSON, {shape or nested}"


@pytest.mark.parametrize(
    ("count", "listed"), [(12, ""), (13, " and 1 more"), (1012, " and 1,000 more"), (1013, " and 1,001 more")]
)
def test_twelve_keys_are_named(count, listed):
    names = [f"k{number}" for number in range(count)]

    assert shape_of(json.dumps([dict.fromkeys(names)])) == (
        f"JSON, an array of 1 item, the first one an object with the keys {', '.join(names[:12])}{listed}"
    )


@pytest.mark.parametrize(
    ("key", "name"),
    [("k" * 40, "k" * 40), ("k" * 41, "k" * 40 + "..."), (" a\n\tb  ", "a b"), ("é" * 41, "é" * 40 + "...")],
)
def test_key_is_shown_on_one_line_up_to_its_40th_character(key, name):
    assert shape_of(json.dumps({key: 1})) == f"JSON, an object with {name} (number)"


@pytest.mark.parametrize(("last", "cut"), [(36, False), (37, True)])
def test_shape_has_400_characters_at_most(last, cut):
    names = [str(number) * 37 for number in range(5)] + [str(number) * 36 for number in (5, 6)] + ["7" * last]
    whole = f"JSON, an object with {', '.join(f'{name} (number)' for name in names)}"

    assert len(whole) == 400 + cut
    assert shape_of(json.dumps(dict.fromkeys(names, 1))) == whole[:400] + "..." * cut


def test_json_of_more_than_1_mib_is_not_read():
    text = f'["{"x" * (1024 * 1024 - 4)}"]'

    assert shape_of(text) == "JSON, an array of 1 item, the first one string"
    assert shape_of(f"{text} ") == "text of 1 line"


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        (" \n[1]", "JSON, an array of 1 item, the first one number"),
        ('"a"', "text of 1 line"),
        ("[" * 100_000, "text of 1 line"),
        ("a\n" * 1000, "text of 1,000 lines"),
        ("a\n" * 1000 + "b", "text of 1,001 lines"),
        ("", "text of 1 line"),
    ],
)
def test_what_is_no_json_is_text(text, shape):
    assert shape_of(text) == shape


@pytest.mark.parametrize("separator", ["\t", "|", ";", ","])
def test_table_has_as_many_columns_in_its_first_five_lines(separator):
    rows = [f"a{separator}b c"] * 5

    assert shape_of("\n".join(rows)) == "table of 5 lines with the columns a, b c"
    assert shape_of("\n".join([*rows, "d", "e"])) == "table of 7 lines with the columns a, b c"
    assert shape_of("\n".join(rows[:4])) == "text of 4 lines"
    assert shape_of("\n".join([*rows[:4], f"d{separator}e{separator}f"])) == "text of 5 lines"
    assert shape_of("\n".join([*rows[:4], "d", *rows])) == "text of 10 lines"


def test_columns_are_named_without_what_stands_around_them():
    assert shape_of(' "a" ; b,c ;"d"\n' * 5) == "table of 5 lines with the columns a, b,c, d"
    assert shape_of("a\tb|c\n" * 5) == "table of 5 lines with the columns a, b|c"
    assert shape_of("| a | b |\n" * 5) == "table of 5 lines with the columns a, b"


@pytest.mark.parametrize(
    ("length", "shape"), [(65_536, "table of 5 lines with the columns a, b"), (65_537, "text of 5 lines")]
)
def test_table_with_a_row_of_more_than_64_kib_is_text(length, shape):
    assert shape_of("a,b\n" * 4 + "c," + "d" * (length - 2)) == shape
