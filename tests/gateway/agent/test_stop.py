"""Stop strings are found in streamed text, however it is cut into pieces, and never shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agent.generate.stop_strings import StopFilter

STOPS = st.lists(st.text("abc", min_size=1, max_size=4), max_size=3)
PIECES = st.lists(st.text("abc", max_size=6), max_size=6)


def shown_of(stops: list[str], pieces: list[str]) -> tuple[str, bool]:
    stop = StopFilter(stops)
    shown = "".join([*map(stop.feed, pieces), stop.close()])
    return shown, stop.hit


@given(STOPS, PIECES)
def test_any_split_of_a_text_shows_the_same(stops, pieces):
    assert shown_of(stops, pieces) == shown_of(stops, ["".join(pieces)]) == shown_of(stops, list("".join(pieces)))


@given(STOPS, PIECES)
def test_what_is_shown_is_the_text_up_to_a_stop_string_and_holds_none(stops, pieces):
    text = "".join(pieces)
    shown, hit = shown_of(stops, pieces)

    assert not any(stop in shown for stop in stops)
    assert hit == any(stop in text for stop in stops)
    if hit:
        assert any((shown + stop) == text[: len(shown) + len(stop)] for stop in stops)
    else:
        assert shown == text


@given(STOPS, PIECES)
def test_no_more_is_held_than_might_begin_a_stop_string(stops, pieces):
    stop = StopFilter(stops)
    shown = "".join(map(stop.feed, pieces))
    held = "".join(pieces).removeprefix(shown)

    assert stop.hit or not held or any(candidate.startswith(held) for candidate in stops)


def test_text_that_can_be_no_stop_string_passes_at_once():
    stop = StopFilter(["\n\nUser:"])

    assert stop.feed("one\ntwo") == "one\ntwo"
    assert stop.feed("\n\nUs") == ""
    assert stop.feed("e") == ""
    assert stop.feed("ful") == "\n\nUseful"


def test_after_a_stop_string_nothing_passes():
    stop = StopFilter(["END"])

    assert stop.feed("x END y") == "x "
    assert stop.hit
    assert stop.feed("more") == ""
    assert stop.close() == ""
    assert stop.found == "END"


def test_stop_string_that_is_complete_first_is_the_one_found():
    stop = StopFilter(["a long one", "long"])

    assert stop.feed("this is a long one") == "this is a "
    assert stop.found == "long"


@pytest.mark.parametrize("stops", [[], [""]])
def test_without_stop_strings_everything_passes_at_once(stops):
    stop = StopFilter(stops)

    assert stop.feed("anything") == "anything"
    assert not stop.hit
