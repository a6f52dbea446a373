"""What differs between two definitions is seen, whatever stands around it, and fits a screen."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.serve.admin.definition_difference import Line, difference

TABLES = st.dictionaries(st.sampled_from("abcdefghij"), st.integers(0, 2))


@pytest.mark.parametrize("pad", ["word ", "".join(f"{n} " for n in range(1000))], ids=["repeated", "varied"])
def test_change_far_inside_a_long_text_is_seen_whatever_stands_around_it(pad: str) -> None:
    long = (pad * 60_000)[:60_000]
    was, now = {"description": long}, {"description": f"{long[:30_000]}EVIL {long[30_000:]}"}

    found = difference(was, now, frozenset())

    assert any("EVIL" in line.text for line in found if line.kind == "ins")
    assert any(line.kind == "del" for line in found)
    assert len(found) <= 301
    assert all(len(line.text) <= 161 for line in found)


def test_no_side_of_a_difference_hides_the_other() -> None:
    found = difference({str(n): 1 for n in range(10_000)}, {"description": "evil"}, frozenset())

    assert any("evil" in line.text for line in found if line.kind == "ins")
    assert any("more lines" in line.text for line in found if line.kind == "del")


def test_difference_is_cut_and_says_so() -> None:
    was = {f"{n:04}": n % 7 == 0 for n in range(400)}
    found = difference(was, dict.fromkeys(was, False), frozenset())

    assert len(found) == 301
    assert "more lines" in found[-1].text


@given(was=TABLES, now=TABLES)
def test_what_is_shown_is_what_differs(was: dict[str, int], now: dict[str, int]) -> None:
    found = difference(was, now, frozenset())

    lines = {kind: [line.text[1:] for line in found if line.kind == kind] for kind in ("ins", "del")}
    written = [json.dumps(each, indent=2, sort_keys=True).split("\n") for each in (was, now)]
    assert Counter(lines["del"]) - Counter(lines["ins"]) == Counter(written[0]) - Counter(written[1])
    assert Counter(lines["ins"]) - Counter(lines["del"]) == Counter(written[1]) - Counter(written[0])


def test_secrets_are_masked_in_both() -> None:
    found = difference({"a": "tok-1234-5678"}, {"a": "tok-1234-5678!"}, frozenset({"tok-1234-5678"}))

    assert [line.text for line in found if line.kind] == ['-  "a": "****"', '+  "a": "****!"']


def test_lines_are_fit_for_a_terminal_as_they_are() -> None:
    found = difference({"a": "x"}, {"a": "\x1b[31m\u202e\u2028\U000e0041" * 40}, frozenset())

    assert all(line.text.isprintable() for line in found)
    assert any("\\u001b[31m\\u202e\\u2028\\U000e0041" in line.text for line in found)


def test_change_stands_between_the_two_lines_before_and_behind_it() -> None:
    was = dict.fromkeys("abcdefghij", 1)

    assert difference(was, {**was, "e": 2}, frozenset()) == [
        Line("", '   "c": 1,'),
        Line("", '   "d": 1,'),
        Line("del", '-  "e": 1,'),
        Line("ins", '+  "e": 2,'),
        Line("", '   "f": 1,'),
        Line("", '   "g": 1,'),
    ]
    assert difference(was, {**was, "a": 2}, frozenset())[:2] == [Line("", " {"), Line("del", '-  "a": 1,')]
    assert difference(was, was, frozenset()) == []


def test_each_of_two_changes_has_its_lines_around_it_and_what_is_between_is_left_out() -> None:
    was = {f"{n:02}": 0 for n in range(30)}
    shown = [line.text[3:7] for line in difference(was, {**was, "05": 1, "20": 1}, frozenset())]

    numbers = ["03", "04", "05", "05", "06", "07", "18", "19", "20", "20", "21", "22"]
    assert shown == [f'"{number}"' for number in numbers]


@pytest.mark.parametrize(("length", "shown", "rest"), [(40, 40, 0), (41, 40, 1), (60, 40, 20)])
def test_40_lines_of_each_side_of_a_change_are_shown(length: int, shown: int, rest: int) -> None:
    was = {f"{n:02}": 0 for n in range(length)}
    found = difference({**was, "a": 0}, {**dict.fromkeys(was, 1), "a": 0}, frozenset())

    for kind, sign in (("del", "-"), ("ins", "+")):
        lines = [line.text for line in found if line.kind == kind]
        assert lines[:shown] == [f'{sign}  "{n:02}": {int(kind == "ins")},' for n in range(shown)]
        assert lines[shown:] == ([f"{sign}… ({rest} more lines)"] if rest else [])


def test_longer_line_is_shown_in_parts_of_160_characters() -> None:
    found = difference({"a": "x" * 400}, {"a": "x" * 400 + "y"}, frozenset())
    texts = [line.text for line in found]

    # Two parts of the long line, which have not changed, stand before the one that has.
    assert [len(text) - 1 for text in texts[:2]] == [160, 160]
    assert [line.text for line in found if line.kind] == [f'-{"x" * 88}"', f'+{"x" * 88}y"']


@pytest.mark.parametrize(("length", "whole"), [(500, False), (501, True)])
def test_more_than_500_lines_that_differ_are_shown_as_one_change_between_the_lines_around(
    length: int, whole: bool
) -> None:
    before = {f"a{n}": 0 for n in range(3)}
    behind = {f"z{n}": 0 for n in range(3)}
    middle = {f"m{n:03}": 0 for n in range(length)}
    odd = {**{name: n % 2 for n, name in enumerate(middle, 1)}, f"m{length - 1}": 1}
    found = difference(before | middle | behind, before | odd | behind, frozenset())

    assert [line.text[3:7] for line in found[:2]] == ['"a1"', '"a2"']
    assert [line.kind for line in found[2:4]] == ["del", "del" if whole else "ins"]
    if whole:
        assert [line.text[3:7] for line in found[-2:]] == ['"z0"', '"z1"']
        assert [line.kind for line in found[2:-2]] == ["del"] * 41 + ["ins"] * 41
