"""When a server that does not answer is left alone, when it is tried again, and whose outcome decides."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.breaker import Admission, Breaker


def opened(failures: int = 1) -> tuple[Breaker, Admission | None]:
    """A breaker of 5 s that opened at 0, and the admission of a call from before."""
    breaker = Breaker(failures, 5.0)
    older = breaker.admit(0.0)
    for _ in range(failures):
        breaker.failed(older, 0.0)
    return breaker, older


def test_closed_breaker_lets_every_call_through():
    breaker = Breaker(2, 5.0)
    breaker.failed(breaker.admit(0.0), 0.0)

    assert (breaker.admit(0.0) is not None, breaker.state(0.0)) == (True, "closed")


def test_breaker_opens_after_so_many_failures_in_a_row_and_says_for_how_long():
    breaker = Breaker(2, 5.0)
    breaker.failed(breaker.admit(0.0), 0.0)
    breaker.failed(breaker.admit(1.0), 1.0)

    assert breaker.state(3.0) == "open"
    assert (breaker.admit(3.0), breaker.wait(3.0)) == (None, 3.0)


def test_answer_between_two_failures_begins_the_row_anew():
    breaker = Breaker(2, 5.0)
    for _ in range(5):
        breaker.failed(breaker.admit(0.0), 0.0)
        breaker.succeeded(breaker.admit(0.0))

    assert breaker.state(0.0) == "closed"


def test_one_call_tries_after_the_pause_and_the_others_wait_for_its_outcome():
    breaker, _ = opened()

    assert breaker.state(5.0) == "half_open"
    assert [breaker.admit(5.0) is not None for _ in range(3)] == [True, False, False]
    assert breaker.wait(5.0) == 5.0


def test_answer_to_the_one_that_tries_closes_the_breaker():
    breaker, _ = opened()
    breaker.succeeded(breaker.admit(6.0))

    assert (breaker.state(6.0), breaker.admit(6.0) is not None) == ("closed", True)


def test_silence_to_the_one_that_tries_opens_it_for_another_pause_however_many_failures_it_takes():
    breaker, _ = opened(3)
    breaker.failed(breaker.admit(6.0), 7.0)

    assert breaker.state(11.0) == "open"
    assert (breaker.admit(11.0), breaker.wait(11.0)) == (None, 1.0)
    assert breaker.admit(12.0) is not None


def test_the_next_may_try_when_the_one_that_tried_ended_without_a_verdict():
    breaker, _ = opened()
    breaker.inconclusive(breaker.admit(6.0))

    assert breaker.admit(6.0) is not None


def test_breaker_of_no_failures_never_opens():
    breaker = Breaker(0, 5.0)
    for _ in range(100):
        breaker.failed(breaker.admit(0.0), 0.0)

    assert (breaker.state(0.0), breaker.admit(0.0) is not None) == ("closed", True)


def test_breaker_of_a_server_that_was_replaced_is_closed_and_hears_nothing_more_of_the_former_one():
    breaker, older = opened()
    breaker.reset()
    breaker.failed(older, 0.0)

    assert (breaker.state(0.0), breaker.failures) == ("closed", 0)


@pytest.mark.parametrize("failures", [0, 1])
def test_breaker_that_is_reset_hears_nothing_of_calls_that_run_closed_or_trying(failures: int):
    breaker = Breaker(1, 5.0)
    for _ in range(failures):
        breaker.failed(breaker.admit(0.0), 0.0)
    running = breaker.admit(6.0)
    assert running is not None
    breaker.reset()
    breaker.failed(running, 7.0)

    assert (breaker.state(7.0), breaker.failures) == ("closed", 0)


@pytest.mark.parametrize("late", ["failed", "succeeded", "inconclusive"])
def test_one_that_tried_without_a_verdict_decides_nothing_for_the_next_one_that_tries(late: str):
    breaker, _ = opened()
    first = breaker.admit(6.0)
    breaker.inconclusive(first)
    assert breaker.admit(6.0) is not None
    if late == "failed":
        breaker.failed(first, 6.0)
    else:
        getattr(breaker, late)(first)

    assert (breaker.state(6.0), breaker.admit(6.0)) == ("half_open", None)


@given(st.lists(st.sampled_from(["failed", "succeeded", "inconclusive"]), max_size=8), st.booleans())
def test_calls_from_before_it_opened_move_nothing_neither_in_the_pause_nor_while_another_call_tries(
    outcomes: list[str], probing: bool
):
    breaker, older = opened(2)
    probe = breaker.admit(5.0) if probing else None
    for outcome in outcomes:
        if outcome == "failed":
            breaker.failed(older, 4.0)
        else:
            getattr(breaker, outcome)(older)

    assert breaker.state(4.9) == "open"
    assert breaker.state(5.0) == "half_open"
    assert (breaker.admit(5.0) is None) is probing
    if probing:
        breaker.succeeded(probe)
        assert breaker.state(5.0) == "closed"


def test_failures_from_before_it_opened_do_not_count_once_it_is_closed_again():
    breaker, older = opened()
    breaker.succeeded(breaker.admit(6.0))
    breaker.failed(older, 6.0)

    assert breaker.state(6.0) == "closed"


def test_one_that_tried_and_was_answered_counts_like_any_other_from_then_on():
    breaker, _ = opened()
    probe = breaker.admit(6.0)
    breaker.succeeded(probe)
    breaker.failed(probe, 7.0)

    assert breaker.state(7.0) == "open"


def test_call_that_was_made_without_an_admission_decides_nothing():
    breaker, _ = opened()
    probe = breaker.admit(6.0)
    breaker.succeeded(None)
    breaker.failed(None, 9.0)
    breaker.inconclusive(None)

    assert breaker.state(6.0) == "half_open"
    assert breaker.admit(6.0) is None
    breaker.succeeded(probe)
    assert breaker.state(6.0) == "closed"
