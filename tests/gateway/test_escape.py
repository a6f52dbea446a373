"""No text can leave its line."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.escape import cut_text, escape_text


@given(st.text())
def test_escaped_text_is_printable_and_on_one_line(text: str) -> None:
    shown = escape_text(text)

    assert shown.isprintable()
    assert len(shown.splitlines()) <= 1


@given(st.text().filter(str.isprintable))
def test_printable_text_stays_as_it_is(text: str) -> None:
    assert escape_text(text) == text


@given(st.text(min_size=1), st.integers(min_value=0, max_value=20))
def test_cut_text_says_how_much_is_left_out(text: str, limit: int) -> None:
    shown = cut_text(text, limit)

    if len(text) <= limit:
        assert shown == text
    else:
        assert shown == f"{text[:limit]}… ({len(text) - limit} more characters)"


def test_what_moves_a_terminal_is_spelled_out() -> None:
    assert escape_text("a\nb\r\t\x1b[31m\x9b\u202e\u2028\ud800é") == r"a\nb\r\t\x1b[31m\x9b\u202e\u2028\ud800é"


@given(st.text(), st.integers(min_value=0, max_value=40))
def test_escaped_text_is_no_longer_than_its_bound_whatever_it_is_made_of(text: str, limit: int) -> None:
    shown, _, told = escape_text(text, limit).rpartition("… (")

    if told.endswith(" more characters)"):
        left_out = int(told.split()[0])
        assert 0 < left_out <= len(text)
        assert shown == escape_text(text[: len(text) - left_out], 10 * len(text))
    else:
        shown = escape_text(text, limit)
    assert len(shown) <= limit
