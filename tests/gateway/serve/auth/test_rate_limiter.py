"""Limits on a clock of the test's own."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.proxy.caller import Principal
from gateway.serve.auth.identity import Allowance, Identity
from gateway.serve.auth.rate_limiter import FAILURES_AT_ONCE, FailedTries, Limiter, RateRefused, SignatureChecks
from gateway.serve.http.connection_limits import network_of


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def who(name: str = "a", rate: int = 0, concurrency: int = 0) -> Identity:
    return Identity(Principal(name), Allowance(rate, concurrency))


def test_rate_lets_a_minute_s_worth_through_and_then_one_for_each_share_of_the_minute() -> None:
    clock = Clock()
    limiter, key = Limiter(clock), who(rate=6)
    for _ in range(6):
        assert limiter.enter(key, "call") is None

    refused = limiter.enter(key, "call")

    assert refused == RateRefused("rate", 10.0)
    clock.now += 9.9
    assert limiter.enter(key, "call") is not None
    clock.now += 0.2
    assert limiter.enter(key, "call") is None
    assert limiter.enter(key, "call") is not None


def test_who_has_waited_a_while_is_told_the_rest_of_the_wait() -> None:
    clock = Clock()
    limiter, key = Limiter(clock), who(rate=6)
    while limiter.enter(key, "call") is None:
        pass

    clock.now += 7.5

    assert limiter.enter(key, "call") == RateRefused("rate", 2.5)


@given(st.lists(st.floats(0, 20), min_size=1, max_size=60), st.integers(1, 30))
def test_rate_is_never_exceeded_by_more_than_one_minute_s_worth(pauses: list[float], rate: int) -> None:
    clock = Clock()
    limiter, key = Limiter(clock), who(rate=rate)
    admitted = 0
    for pause in pauses:
        clock.now += pause
        admitted += limiter.enter(key, "call") is None
    assert admitted <= rate + (clock.now - 1000.0) * rate / 60 + 1e-6


def test_rest_saves_up_no_more_than_a_minute_s_worth() -> None:
    clock = Clock()
    limiter, key, bystander = Limiter(clock), who(rate=6, concurrency=1), who("b")
    assert limiter.enter(key, "call") is None
    assert limiter.enter(bystander, "call") is None
    clock.now += 3600
    limiter.leave(key, "call")

    admitted = 0
    while limiter.enter(key, "call") is None:
        limiter.leave(key, "call")
        admitted += 1
        assert admitted <= 6

    assert admitted == 6


def test_concurrency_counts_what_runs() -> None:
    limiter, key = Limiter(Clock()), who(concurrency=2)
    assert limiter.enter(key, "call") is None
    assert limiter.enter(key, "call") is None
    assert limiter.enter(key, "call") == RateRefused("concurrency", 1.0)

    limiter.leave(key, "call")

    assert limiter.enter(key, "call") is None


def test_open_stream_takes_no_call_s_place_and_streams_are_bounded_too() -> None:
    limiter, key = Limiter(Clock()), who(concurrency=1)

    assert limiter.enter(key, "stream") is None
    assert limiter.enter(key, "call") is None
    assert limiter.enter(key, "stream") is not None


def test_request_that_is_refused_for_its_rate_takes_no_place() -> None:
    clock = Clock()
    limiter, key = Limiter(clock), who(rate=1, concurrency=1)
    assert limiter.enter(key, "call") is None
    limiter.leave(key, "call")
    assert limiter.enter(key, "call") == RateRefused("rate", 60.0)
    clock.now += 60

    assert limiter.enter(key, "call") is None


def test_one_key_s_limit_is_not_another_s() -> None:
    limiter = Limiter(Clock())
    assert limiter.enter(who("a", rate=1), "call") is None

    assert limiter.enter(who("b", rate=1), "call") is None
    assert limiter.enter(who("a", rate=1), "call") is not None


def test_who_has_no_limit_costs_no_memory() -> None:
    limiter = Limiter(Clock())
    for n in range(100):
        assert limiter.enter(who(f"free {n}"), "call") is None
        limiter.leave(who(f"free {n}"), "call")

    assert len(limiter) == 0


def test_table_of_keys_is_bounded_and_forgets_nobody_who_is_inside() -> None:
    limiter = Limiter(Clock(), bound=3)
    inside = who("inside", rate=10, concurrency=1)
    assert limiter.enter(inside, "call") is None
    for n in range(50):
        other = who(f"k{n}", rate=10)
        assert limiter.enter(other, "call") is None
        limiter.leave(other, "call")

    assert len(limiter) == 3
    assert limiter.enter(inside, "call") == RateRefused("concurrency", 1.0)


def test_full_table_of_keys_forgets_who_asked_longest_ago() -> None:
    limiter = Limiter(Clock(), bound=2)
    for name in ("early", "late", "early", "new"):
        limiter.enter(who(name, rate=2), "call")
        limiter.leave(who(name, rate=2), "call")

    # Both of its requests are known; a key that was forgotten would have two again.
    assert limiter.enter(who("early", rate=2), "call") is not None


def test_signatures_are_checked_400_at_once_and_then_200_a_second() -> None:
    clock = Clock()
    checks = SignatureChecks(clock)

    assert [checks.take() for _ in range(400)] == [0.0] * 400

    assert checks.take() == 1 / 200
    clock.now += 1
    assert [checks.take() for _ in range(200)] == [0.0] * 200
    assert checks.take() > 0


def test_address_has_20_wrong_tries_at_once_and_then_one_in_5_seconds() -> None:
    clock = Clock()
    tries = FailedTries(clock)
    for _ in range(20):
        assert tries.refused("10.0.0.1") is None
        tries.failed("10.0.0.1")

    assert tries.refused("10.0.0.1") == RateRefused("tries", 5.0)
    clock.now += 2.5
    assert tries.refused("10.0.0.1") == RateRefused("tries", 2.5)


def test_address_with_many_bad_tries_has_to_wait() -> None:
    clock = Clock()
    tries = FailedTries(clock)
    for _ in range(FAILURES_AT_ONCE):
        assert tries.refused("10.0.0.1") is None
        tries.failed("10.0.0.1")

    refused = tries.refused("10.0.0.1")

    assert refused is not None
    assert refused.limit == "tries"
    assert tries.refused("10.0.0.2") is None
    clock.now += refused.wait
    assert tries.refused("10.0.0.1") is None


def test_table_of_addresses_is_bounded() -> None:
    tries = FailedTries(Clock(), bound=4)
    for n in range(100):
        tries.failed(f"10.0.0.{n}")

    assert len(tries) == 4


def test_tables_have_4096_entries_of_their_own_accord() -> None:
    tries, limiter = FailedTries(Clock()), Limiter(Clock())
    for n in range(4100):
        tries.failed(f"address {n}")
        limiter.enter(who(f"key {n}", rate=1), "call")
        limiter.leave(who(f"key {n}", rate=1), "call")

    assert len(tries) == len(limiter) == 4096


def test_full_table_of_addresses_forgets_which_failed_longest_ago() -> None:
    tries = FailedTries(Clock(), bound=2)
    for _ in range(FAILURES_AT_ONCE):
        tries.failed("10.0.0.1")
    tries.failed("10.0.0.2")
    tries.failed("10.0.0.1")

    tries.failed("10.0.0.3")

    assert tries.refused("10.0.0.1") is not None


def test_addresses_of_one_ipv6_customer_are_one() -> None:
    assert network_of("2001:db8:1:2::1") == network_of("2001:db8:1:2:ffff::9")
    assert network_of("2001:db8:1:2::1") != network_of("2001:db8:1:3::1")
    assert network_of("10.0.0.1") != network_of("10.0.0.2")
    assert network_of("::ffff:10.0.0.1") != network_of("::ffff:10.0.0.2")
    assert network_of("::ffff:10.0.0.1") == network_of("::ffff:a00:1") == network_of("10.0.0.1")
    assert network_of("no address " + "x" * 1000) == ("no address " + "x" * 1000)[:64]
