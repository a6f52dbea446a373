"""Which schemas clients can compile, what is told of a field that they can't read, and in how many words."""

import re

from gateway.proxy.upstream.items.item_flaws import (
    GONE,
    Flaw,
    dropped,
    inside,
    mended,
    read_items,
    read_output_schema,
    schema_fault,
    shown,
    unusable,
)
from tests.cases import each_of

READ_ALIKE = [
    r"^[a-z]+$",
    r"[a-z-]",
    r"[-a]",
    r"[\d-]",
    r"[^a]",
    r"[a-a]",
    r"[a-c-e]",
    r"[a-c][x-z]",
    r"[b-da-z]",
    r"[$-\-]",
    r"[\]-a]",
    r"[\x41-\x5a]",
    r"[\x41-Z]",
    r"[\u0041-\u005A]",
    r"[\t-\n]",
    r"[\0-\t]",
    r"[\v-\f]",
    r"[\n-\r]",
    "[!-\uffff]",
    r"a{2}",
    r"a{2,}",
    r"a{2,2}",
    r"a{9,10}",
    r"(a|b)*",
    r"((a)(b))",
    r"(?:x)?",
    r"(?=a)b",
    r"\bword\B",
    "a" * 1000,
]
READ_OTHERWISE = [
    "(",
    ")",
    ")(",
    "a)(",
    "((a)",
    "a**",
    "a{3,2}",
    "a{10,9}",
    "a{,3}",
    "a{1,99999}",
    "{",
    "[]",
    "[z-a]",
    "[a-cz-x]",
    "[az-x]",
    "[abz-x]",
    r"[\d-z]",
    r"[a-\d]",
    r"[a-\S]",
    r"[\x5a-\x41]",
    r"[\n-\t]",
    "(?<=a)b",
    "(?<n>a)",
    "(?=a)*",
    "(?!a)+",
    "(?=a){2}",
    "(a)*(?=b)",
    r"\A",
    r"\-",
    "a" * 1001,
    7,
]


@each_of("pattern", READ_ALIKE)
def test_pattern_that_python_and_javascript_read_alike_is_taken(pattern):
    re.compile(pattern)

    assert schema_fault({"pattern": pattern}) is None
    assert schema_fault({"patternProperties": {pattern: {}}}) is None


@each_of("pattern", READ_OTHERWISE)
def test_pattern_that_one_of_them_may_not_read_is_named(pattern):
    assert schema_fault({"properties": {"x": {"pattern": pattern}}}) == (
        "pattern",
        f"{shown(pattern)} is no value for it",
    )


@each_of(
    ("schema", "fault"),
    [
        ({"$id": "a", "properties": {"x": {"$id": "b"}}}, None),
        ({"$id": "a", "properties": {"x": {"$id": "a"}}}, ("$id", "'a' names two parts of the schema")),
        ({"$id": "a", "properties": {"x": {"$anchor": "a"}}}, ("$anchor", "'a' names two parts of the schema")),
        ({"$id": "https://a.example:80/x#"}, None),
        ({"$id": "urn:x"}, ("$id", "'urn:x' is no value for it")),
        ({"$id": 7}, ("$id", "7 is no value for it")),
        ({"$dynamicAnchor": "a.b-1"}, None),
        ({"$anchor": "1a"}, ("$anchor", "'1a' is no value for it")),
        ({"$anchor": 7}, ("$anchor", "7 is no value for it")),
        ({"nullable": True, "type": "string"}, None),
        ({"nullable": True}, ("nullable", "it stands without a type")),
        ({"nullable": 1, "type": "string"}, ("nullable", "1 is no value for it")),
        ({"enum": [1]}, None),
        ({"enum": 1}, ("enum", "1 is no value for it")),
        ({"patternProperties": {"a": {}, "(": {}}}, ("patternProperties", '{"a":{},"(":{}} is no value for it')),
        ({"patternProperties": 1}, ("patternProperties", "1 is no value for it")),
        ({"formatMinimum": "1"}, ("formatMinimum", "'1' is no value for it")),
        ({"$ref": "#/nowhere"}, ("$ref", "'#/nowhere' names nothing in the schema")),
    ],
)
def test_first_keyword_that_clients_can_not_compile_is_named(schema, fault):
    assert schema_fault(schema) == fault


def test_schema_that_is_too_large_names_no_keyword():
    keyword, why = schema_fault({"enum": ["x" * 10] * 100_000}) or ("x", "")

    assert (keyword, bool(why)) == ("", True)


@each_of(
    ("value", "words"),
    [
        (GONE, "nothing"),
        ("a\nb", r"'a\nb'"),
        ("x" * 58, f"'{'x' * 58}'"),
        ("x" * 500, f"'{'x' * 59}… (62 more characters)"),
        ([1] * 29, f"[{','.join('1' * 29)}]"),
        ([1] * 61, "a long list"),
        (dict.fromkeys(map(str, range(61))), "a large object"),
        ({"a": None}, '{"a":null}'),
        (float("inf"), "Infinity"),
    ],
)
def test_value_is_shown_in_few_characters(value, words):
    assert shown(value) == words


def test_list_and_object_of_as_many_values_as_may_be_shown_are_shown():
    assert shown([1] * 60).startswith("[1,1,")
    assert shown(dict.fromkeys(map(str, range(60)))).startswith('{"0":null,')


def test_flaws_of_one_item_are_bounded_but_the_one_for_which_it_is_left_out_is_told():
    flaws: list[Flaw] = []
    for number in range(150):
        assert dropped(number, "a", "b", flaws) is GONE
        assert mended(number, "a", "b", flaws, 7) == 7
    full = len(flaws)
    unusable(1, "x", "y", flaws)
    unusable(2, "x", "y", flaws)

    assert flaws[:2] == [
        Flaw("a", "expected b, got 0; the field is dropped"),
        Flaw("a", "expected b, got 0; it is read as 7"),
    ]
    assert full == 100
    assert flaws[100:] == [Flaw("x", "expected y, got 1", left_out=True)]


def test_field_inside_of_another_is_named_with_it():
    assert (inside("", "a"), inside("a", "b\n"), len(inside("a", "b" * 500)) < 200) == ("a", r"a.b\n", True)


def test_list_without_a_flaw_is_the_same_one_and_what_is_dropped_is_not_in_the_other():
    found: list[object] = [1, 2]
    places: list[str] = []

    def read(value: object, at: str, flaws: list[Flaw]) -> object:
        places.append(at)
        return GONE if value == 2 and len(places) > 2 else value

    assert read_items(found, read, "a", []) is found
    assert read_items(found, read, "a", []) == [1]
    assert places == ["a[0]", "a[1]"] * 2


def test_output_schema_of_an_item_that_is_left_out_is_not_looked_at():
    schema = {"type": "object", "properties": {"x": {"pattern": "("}}}
    left_out = [Flaw("name", "no", left_out=True)]
    flaws: list[Flaw] = []

    assert read_output_schema(any_type=True)(schema, "outputSchema", left_out) == schema
    assert len(left_out) == 1
    assert read_output_schema(any_type=True)(schema, "outputSchema", flaws) is GONE
    assert flaws == [
        Flaw("outputSchema.pattern", "'(' is no value for it, so clients can't compile it; outputSchema is dropped")
    ]
    assert read_output_schema(any_type=True)({}, "outputSchema", []) == {}
    assert read_output_schema(any_type=False)({}, "outputSchema", []) is GONE
