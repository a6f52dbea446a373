"""The JSON recognizer, against Python's own reader."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.toolcalls.values.json_scanner import MAX_ATOM, MAX_DEPTH, JsonScanner, Scan
from tests.cases import each_of
from tests.gateway.toolcalls.strategies import json_values

fragments = st.lists(
    st.sampled_from(
        [
            '"',
            "\\",
            "\\u",
            "\\u00e9",
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            " ",
            "\n",
            "-",
            "0",
            "12",
            ".5",
            "e+3",
            "true",
            "nul",
            "l",
            "a",
            "é",
        ]
    ),
    max_size=14,
).map("".join)


def scan(text: str, cuts: list[int]) -> tuple[Scan, int]:
    """Feed a text in pieces, then end it: what it came to, and how much was read."""
    scanner = JsonScanner()
    at = 0
    for end in [*sorted(cut % (len(text) + 1) for cut in cuts), len(text)]:
        at = scanner.scan(text[:end], at)
    return scanner.state, scanner.scan(text, at, ended=True)


def python_reads(text: str) -> bool:
    def refuse(word: str) -> None:
        raise ValueError(word)

    try:
        json.loads(text, parse_constant=refuse)
    except ValueError:
        return False
    return True


def wrong_after(text: str, good: int) -> JsonScanner:
    """A scanner that has found a text wrong at this place."""
    scanner = JsonScanner()
    assert scanner.scan(text, 0) == good
    assert scanner.state is Scan.WRONG
    return scanner


def whole(text: str) -> bool:
    scanner = JsonScanner()
    end = scanner.scan(text, 0, ended=True)
    return scanner.state is Scan.WHOLE and not text[end:].strip(" \n\t\r")


@given(json_values, st.booleans(), st.sampled_from([None, 1]))
def test_what_python_writes_is_read_to_its_end_and_no_further(
    value: object, ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    scanner = JsonScanner()
    assert scanner.scan(text + ", x", 0) == len(text)
    assert scanner.state is Scan.WHOLE


@given(fragments)
def test_it_reads_what_python_reads_and_nothing_else(text: str) -> None:
    assert whole(text) == python_reads(text)


@given(fragments | json_values.map(json.dumps), st.lists(st.integers(0, 99), max_size=5))
def test_the_cuts_do_not_matter(text: str, cuts: list[int]) -> None:
    state, end = scan(text, cuts)
    assert (state, end) == scan(text, [])


@given(json_values.map(json.dumps), st.integers(0, 999))
def test_a_beginning_of_json_is_never_wrong(text: str, cut: int) -> None:
    scanner = JsonScanner()
    scanner.scan(text[: cut % (len(text) + 1)], 0)
    assert scanner.state in (Scan.MORE, Scan.WHOLE)


@each_of(
    ("text", "good"),
    [
        ("[1,]", 2),
        ('{"a" 1}', 5),
        ("[1 2]", 3),
        ("{1: 2}", 1),
        ('{"a": 1,}', 7),
        ("[}", 1),
        ("{]", 1),
        ('["a\nb"]', 3),
        ('["\\x"]', 2),
        ('["\\u12g4"]', 2),
        ("[01]", 1),
        ("[NaN]", 1),
        ("[tru]", 1),
        ("]", 0),
        (",", 0),
    ],
)
def test_wrong_text_is_read_up_to_what_is_wrong(text: str, good: int) -> None:
    scanner = wrong_after(text, good)
    assert scanner.scan(text, good) == good


def test_half_an_escape_and_an_open_number_are_held() -> None:
    scanner = JsonScanner()
    assert scanner.scan('["a\\u00', 0) == 3
    assert scanner.scan('["a\\u00e9", 1', 3) == 12
    assert scanner.scan('["a\\u00e9", 12]', 12) == 15


@each_of(
    ("text", "good"),
    [
        ('{"a": "b"', 8),
        ('{"a": "b"}', 8),
        ('{"a": "b"}}', 10),
        ('{"a": "b", ', 8),
        ('{"a": "b", "c', 8),
        ('{"a": "b", "c":', 15),
        ('["b"', 3),
        ('["b",', 3),
        ('["b", tr', 3),
        ('["b", true', 3),
        ('["b", "', 7),
        ("[1, ", 2),
    ],
)
def test_a_quote_and_a_comma_are_held_until_what_follows_shows_that_they_are_meant(text: str, good: int) -> None:
    scanner = JsonScanner()
    assert scanner.scan(text, 0) == good
    assert scanner.state is not Scan.WRONG


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ('{"a": "say "hi""}', 11),
        ('{"a": "x "y", and z"}', 9),
        ('{"a": "{"b": "c"}", "d": 1}', 8),
        ('["a "b"]', 4),
        ('{"a": "b"}"', 8),
        ('["b", that"]', 3),
    ],
)
def test_a_quote_that_can_not_end_its_string_is_where_the_text_is_wrong(text: str, good: int) -> None:
    wrong_after(text, good)


def test_a_string_of_very_many_escapes_is_read_whole() -> None:
    text = '"' + r"a\n" * 10_000 + '"'
    scanner = JsonScanner()

    assert scanner.scan(text, 0, ended=True) == len(text)
    assert scanner.state is Scan.WHOLE


def test_a_number_without_end_and_a_nest_without_bottom_are_refused() -> None:
    scanner = JsonScanner()
    assert scanner.scan("[" + "1" * (MAX_ATOM + 1), 0) == 1
    assert scanner.state is Scan.WRONG
    assert whole("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert not whole("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))
