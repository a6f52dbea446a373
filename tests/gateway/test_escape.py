"""No text can leave its line."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.escape import INVISIBLE, cut_text, escape_text


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


def test_text_that_just_fits_is_whole() -> None:
    assert [escape_text(r"a\b", 3), escape_text("a\nb", 4)] == [r"a\b", r"a\nb"]
    assert escape_text("a\nb", 3) == r"a\n… (1 more characters)"


def test_what_nobody_sees_is_spelled_out_where_that_is_asked_for() -> None:
    invisible = "\u034f\u180b\u2800\u3164\ufe00\ufe0f\U000e0100\U000e01ef"

    assert escape_text(f"a{invisible}b") == f"a{invisible}b"
    assert escape_text(f"a{invisible}b", also=INVISIBLE) == f"a{invisible.encode('unicode_escape').decode()}b"
    assert escape_text("é\ufe10😀漢", also=INVISIBLE) == "é\ufe10😀漢"
