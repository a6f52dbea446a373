"""When an engine that is not up is tried again."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.engine.start.engine_health import Pauses


def test_engine_that_keeps_dying_soon_after_its_start_is_started_ever_more_slowly():
    pauses = Pauses(0.5, 60.0, steady=30.0)

    assert [pauses.after(up) for up in (None, 1.0, 29.9, None, 1.0, 1.0, 1.0, 1.0, None)] == [
        *(0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0)
    ]


def test_engine_that_was_up_for_long_is_started_again_soon():
    pauses = Pauses(0.5, 60.0, steady=30.0)
    for _ in range(20):
        pauses.after(None)

    assert [pauses.after(up) for up in (30.0, 1.0, 3600.0)] == [0.5, 1.0, 0.5]


@given(st.lists(st.none() | st.floats(0, 100)))
def test_no_pause_is_shorter_than_the_first_or_longer_than_the_longest(lives: list[float | None]):
    pauses = Pauses(0.5, 4.0, steady=30.0)

    assert all(0.5 <= pauses.after(up) <= 4.0 for up in lives)
