"""The supervision state machine, without clock, dice or process."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.proxy.upstream.supervision.lifecycle import Backoff, Lifecycle


def test_pause_doubles_with_every_failure_up_to_the_longest():
    backoff = Backoff(first=0.5, longest=30.0)

    assert [backoff.pause(failures, 1.0) for failures in range(1, 9)] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_roll_moves_the_pause_between_its_half_and_its_whole():
    backoff = Backoff(first=2.0, longest=30.0)

    assert [backoff.pause(1, roll) for roll in (0.0, 0.5, 1.0)] == [1.0, 1.5, 2.0]


@given(st.integers(1, 10**9), st.floats(0, 1, exclude_max=True))
def test_pause_is_never_zero_and_never_over_the_longest(failures, roll):
    assert 0.25 <= Backoff(first=0.5, longest=30.0).pause(failures, roll) <= 30.0


def test_life_begins_starting_with_no_failure():
    assert Lifecycle() == Lifecycle(state="starting", failures=0, restarts=0, last_error=None)


def test_failure_to_start_counts_and_keeps_its_cause():
    life = Lifecycle().went_down("no such file")

    assert life == Lifecycle(state="restarting", failures=1, restarts=0, last_error="no such file")


def test_deaths_without_an_answer_between_them_are_failures_in_a_row_so_that_a_crash_loop_slows_down():
    life = Lifecycle()
    for _ in range(3):
        life = life.came_up().went_down("crash").started_again()

    assert (life.failures, life.restarts) == (3, 3)


def test_answer_begins_a_new_row():
    life = Lifecycle(state="restarting", failures=9, restarts=9).came_up()

    assert life.answered().went_down("crash").failures == 1


def test_coming_up_keeps_the_last_cause_for_the_person_who_asks():
    life = Lifecycle().went_down("crash").started_again().came_up()

    assert (life.state, life.last_error, life.restarts) == ("up", "crash", 1)
