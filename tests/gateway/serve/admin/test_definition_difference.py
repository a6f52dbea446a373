"""What differs between two definitions is seen, whatever stands around it, and fits a screen."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.serve.admin.definition_difference import difference

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
