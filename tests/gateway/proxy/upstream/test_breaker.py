"""When a server that does not answer is left alone, and when it is tried again."""

from gateway.breaker import Breaker


def test_closed_breaker_lets_every_call_through():
    breaker = Breaker(2, 5.0)
    breaker.failed(0.0)

    assert (breaker.admit(0.0), breaker.state(0.0)) == (None, "closed")


def test_breaker_opens_after_so_many_failures_in_a_row_and_says_for_how_long():
    breaker = Breaker(2, 5.0)
    breaker.failed(0.0)
    breaker.failed(1.0)

    assert breaker.state(3.0) == "open"
    assert breaker.admit(3.0) == 3.0


def test_answer_between_two_failures_begins_the_row_anew():
    breaker = Breaker(2, 5.0)
    for _ in range(5):
        breaker.failed(0.0)
        breaker.succeeded()

    assert breaker.state(0.0) == "closed"


def test_one_call_tries_after_the_pause_and_the_others_wait_for_its_outcome():
    breaker = Breaker(1, 5.0)
    breaker.failed(0.0)

    assert breaker.state(5.0) == "half_open"
    assert [breaker.admit(5.0) for _ in range(3)] == [None, 5.0, 5.0]


def test_answer_to_the_one_that_tries_closes_the_breaker():
    breaker = Breaker(1, 5.0)
    breaker.failed(0.0)
    breaker.admit(6.0)
    breaker.succeeded()

    assert (breaker.state(6.0), breaker.admit(6.0)) == ("closed", None)


def test_silence_to_the_one_that_tries_opens_it_for_another_pause_however_many_failures_it_takes():
    breaker = Breaker(3, 5.0)
    for _ in range(3):
        breaker.failed(0.0)
    breaker.admit(6.0)
    breaker.failed(7.0)

    assert breaker.state(11.0) == "open"
    assert breaker.admit(11.0) == 1.0
    assert breaker.admit(12.0) is None


def test_the_next_may_try_when_the_one_that_tried_ended_without_a_verdict():
    breaker = Breaker(1, 5.0)
    breaker.failed(0.0)
    breaker.admit(6.0)
    breaker.inconclusive()

    assert breaker.admit(6.0) is None


def test_breaker_of_no_failures_never_opens():
    breaker = Breaker(0, 5.0)
    for _ in range(100):
        breaker.failed(0.0)

    assert (breaker.state(0.0), breaker.admit(0.0)) == ("closed", None)
