"""Python's and Gemma's values as JSON, piece by piece, and the types that a schema allows."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.toolcalls.nodes.typed import converted
from gateway.toolcalls.schema.json_types import ALL, STRING, kinds_of
from gateway.toolcalls.values.atoms import GEMMA, PYTHON, PYTHON_CALL, ValueDialect
from gateway.toolcalls.values.json_scanner import Scan
from gateway.toolcalls.values.literal import LiteralScanner
from gateway.toolcalls.values.string_end import NOTHING_KNOWN, Surroundings
from tests.cases import each_of
from tests.gateway.toolcalls.strategies import json_values

KNOWN = Surroundings(("a", "b", "c", "d", "note"), ("<tool_call|>",))


def scan(
    text: str, cuts: list[int], dialect: ValueDialect = PYTHON, around: Surroundings = NOTHING_KNOWN
) -> tuple[Scan, str, int]:
    """Scan a text that grows at the given places; give the state, the JSON, and how far it was read."""
    scanner = LiteralScanner(dialect, dialect.quotes, around=around)
    told, at = "", 0
    for end in [*sorted({cut % (len(text) + 1) for cut in cuts}), len(text)]:
        at, more = scanner.scan(text[:end], at)
        told += more
    return scanner.state, told, at


@given(json_values, st.lists(st.integers(0, 999), max_size=6))
def test_pythons_own_spelling_of_a_value_is_that_value_however_it_is_cut(value: Any, cuts: list[int]) -> None:
    state, told, _ = scan(f"{value!r},", cuts)
    assert state is Scan.WHOLE
    assert json.loads(told) == value


@given(json_values, st.lists(st.integers(0, 999), max_size=6))
def test_json_stays_as_it_is(value: Any, cuts: list[int]) -> None:
    text = json.dumps(value)
    assert scan(f"{text},", cuts)[:2] == (Scan.WHOLE, text)


@given(json_values, st.integers(0, 999))
def test_what_a_beginning_gives_is_a_beginning_of_what_the_whole_gives(value: Any, cut: int) -> None:
    text = f"{value!r},"
    assert scan(text, [])[1].startswith(scan(text[: cut % len(text)], [])[1])


@given(st.text("'\"\\{}[](),:<|> \nx1uU-.TrueNone", max_size=20), st.lists(st.integers(0, 99), max_size=6))
def test_any_text_gives_the_same_in_any_pieces(text: str, cuts: list[int]) -> None:
    for dialect in (PYTHON, GEMMA):
        state, told, at = scan(text, cuts, dialect)
        assert (state, told, at) == scan(text, [], dialect)
        if state is Scan.WHOLE:
            json.loads(told)


@given(
    st.lists(st.sampled_from([*"bcd,: x}", '<|"|>', 'b:<|"|>', '<|"|> c:', "d:[1]", "<tool_call|>"])).map("".join),
    st.lists(st.integers(0, 99), max_size=6),
)
def test_any_members_of_known_names_give_the_same_in_any_pieces(text: str, cuts: list[int]) -> None:
    text = f'{{a:<|"|>{text}'
    assert scan(text, cuts, GEMMA, KNOWN) == scan(text, [], GEMMA, KNOWN)


@each_of(
    ("text", "wanted"),
    [
        ("07", "7"),
        ("-1_000", "-1000"),
        ("+5", "5"),
        (".5", "0.5"),
        ("5.", "5.0"),
        ("1e3", "1e3"),
        ("+1e999", None),
        ("nan", None),
        ("x", None),
        ("None", "null"),
        ("(1, 'a',)", '[1, "a"]'),
        ("[1,\n]", "[1]"),
        ("{1: True, None: 2}", '{"1": true, "null": 2}'),
        ("{a: 1}", None),
        ("{1 2}", None),
        ("[1 2]", None),
        ("{'a' 1}", None),
        ("{}", "{}"),
        ("1 2", None),
        ("", None),
        ("'a", None),
        ("'''a'b\n'''", '"a\'b\\n"'),
        (
            r"'\x41\101\U0001F600\u00e9\q\/\
'",
            r'"A' + "A😀" + r'\u00e9\\q\/"',
        ),
        (r"'\UFFFFFFFF \a\v\''", r'"\ufffd \u0007\u000b' + "'\""),
        ("[" * 200, None),
        ("1" * 300, None),
        ("{" + "1" * 300 + ": 1}", None),
    ],
)
def test_a_whole_value_is_converted_or_refused(text: str, wanted: str | None) -> None:
    assert converted(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{a:<|"|>x"\\{y<|"|>,b:[1,true]}', '{"a":"x\\"\\\\{y","b":[1,true]}'),
        ('{<|"|>k<|"|>:New York, "q": null}', '{"k":"New York", "q": null}'),
        ("{a b:1}", '{"a b":1}'),
        ("{a:1,,b:2}", '{"a":1,"b":2}'),
        ("(1)", None),
        ("{:1}", None),
        ("{a:}", None),
    ],
)
def test_gemmas_values_are_converted_or_refused(text: str, wanted: str | None) -> None:
    state, told, _ = scan(f"{text},", [], GEMMA)
    assert (told if state is Scan.WHOLE else None) == wanted


@each_of(
    ("text", "value"),
    [
        ('{a:<|"|>x<|"|> b:[1] note:{} d:2}', {"a": "x", "b": [1], "note": {}, "d": 2}),
        ('{a:<|"|>,b:<|"|>x<|"|>,c:<|"|>,d:<|"|>y<|"|>}', {"a": "", "b": "x", "c": "", "d": "y"}),
        # The quote ends the string: what only looks like a member is a part of it.
        ('{a:<|"|>x,b:<|"|>}', {"a": "x,b:"}),
        ('{a:<|"|>x,b:<|"|>,c:1}', {"a": "x,b:", "c": 1}),
        # The schema names no such member.
        ('{a:<|"|>x<|"|> e:1}', None),
    ],
)
@each_of("cuts", [[], list(range(99))])
def test_commas_and_quotes_may_be_missing_before_members_that_the_schema_names(
    text: str, value: Any, cuts: list[int]
) -> None:
    state, told, _ = scan(text, cuts, GEMMA, KNOWN)
    assert (json.loads(told) if state is Scan.WHOLE else None) == value


def test_closing_brackets_in_a_string_are_held_for_a_marker_up_to_a_bound() -> None:
    for count, held in ((2, 2), (128, 128), (129, 0)):
        begun = '{a:<|"|>x' + "}" * count
        assert scan(begun, [], GEMMA, KNOWN)[1] == '{"a":"x' + "}" * (count - held)


@each_of(
    ("schema", "kinds"),
    [
        ({}, ALL),
        (None, ALL),
        ({"type": "string"}, STRING),
        ({"type": "nonsense"}, ALL),
        ({"type": ["string", "null", 1]}, {"string", "null"}),
        ({"type": "integer", "nullable": True}, {"integer", "null"}),
        ({"enum": ["a", 1, None, 2.5, True, [], {}]}, ALL),
        ({"const": 1}, {"integer"}),
        ({"properties": {}}, {"object"}),
        ({"anyOf": [{"type": "string"}, {"type": "array"}]}, {"string", "array"}),
        ({"allOf": [{"type": ["string", "null"]}, {"type": "string"}]}, STRING),
        ({"$ref": "#/$defs/a~1b"}, {"boolean"}),
        ({"$ref": "#/$defs/loop"}, ALL),
        ({"$ref": "http://x/y"}, ALL),
    ],
)
def test_a_schema_allows_types(schema: object, kinds: set[str]) -> None:
    root = {"$defs": {"a/b": {"type": "boolean"}, "loop": {"$ref": "#/$defs/loop"}}}
    assert kinds_of(schema, root) == kinds


@given(json_values, st.lists(st.integers(0, 999), max_size=6))
def test_a_value_whose_strings_may_hold_quotes_is_the_same_value_where_they_hold_none(
    value: Any, cuts: list[int]
) -> None:
    state, told, _ = scan(f"{value!r},", cuts, PYTHON_CALL)
    assert state is Scan.WHOLE
    assert json.loads(told) == value


@each_of(
    ("text", "value"),
    [
        ("'sed -n '3,4p' /x',", "sed -n '3,4p' /x"),
        ("'print(f(x, y='a'))\"',", "print(f(x, y='a'))\""),
        ("'it's' )]", "it's"),
        ("['a'b', \"c\"d\"],", ["a'b", 'c"d']),
        ("{'a' : 'b'c'},", {"a": "b'c"}),
        ("'a'" + " " * 100 + ",", "a"),
        ("'''a'b''',", "a'b"),
    ],
)
@each_of("cuts", [[], list(range(200))])
def test_a_quote_ends_a_string_only_where_a_value_may_end(text: str, value: Any, cuts: list[int]) -> None:
    state, told, _ = scan(text, cuts, PYTHON_CALL)
    assert state is Scan.WHOLE
    assert json.loads(told) == value


@each_of(
    ("text", "value"),
    [
        ("{'a', \"b\"},", ["a", "b"]),
        ("{ 1, 2.5, None, },", [1, 2.5, None]),
        ("{True},", [True]),
        ("{},", {}),
        ("{ },", {}),
        ("{1: 'x'},", {"1": "x"}),
        ("{'a': {'b'}},", {"a": ["b"]}),
        ("[{'a'}, {'b': 1}],", [["a"], {"b": 1}]),
    ],
)
@each_of("cuts", [[], list(range(50))])
def test_a_set_is_a_list(text: str, value: Any, cuts: list[int]) -> None:
    state, told, _ = scan(text, cuts)
    assert state is Scan.WHOLE
    assert json.loads(told) == value


@pytest.mark.parametrize("cuts", [[], list(range(999))])
@pytest.mark.parametrize("behind", [",", "}"])
def test_a_set_whose_first_item_is_too_long_to_be_held_is_none(cuts: list[int], behind: str) -> None:
    key = "k" * 300
    state, told, _ = scan(f"{{'{key}'{behind}", cuts)
    assert (state, told) == (Scan.WRONG, f'{{"{key}"')


@pytest.mark.parametrize("text", ["{{'a'}, 1}", "{(1, 2)}", "{[1]}"])
def test_a_set_of_what_python_could_not_hash_is_no_value(text: str) -> None:
    assert scan(text, [])[0] is Scan.WRONG
