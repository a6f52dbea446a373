"""Limits that several replicas hold together, and what each holds alone while their store is away."""

from typing import Literal

import anyio
import pytest

from gateway.proxy.caller import Principal
from gateway.serve.auth.identity import Allowance, Identity
from gateway.serve.auth.rate_limiter import FAILURES_AT_ONCE, Bucket, FailedTries, Limiter, RateLimits, RateRefused
from gateway.shared import SharedStatus

pytestmark = pytest.mark.anyio


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class OneStore:
    """Buckets of all replicas, and whether they can be had."""

    def __init__(self, clock: Clock, replicas: int = 1) -> None:
        self.clock = clock
        self.replicas = replicas
        self.is_there = True
        self.asked = 0
        self.buckets: dict[tuple[str, str], Bucket] = {}

    @property
    def status(self) -> SharedStatus:
        return SharedStatus(self.is_there, None, self.replicas)

    def _bucket(self, limit: str, who: str, size: float) -> Bucket:
        self.asked += 1
        return self.buckets.setdefault((limit, who), Bucket(size, self.clock()))

    async def take(self, limit: Literal["rate", "tries"], who: str, size: float, a_second: float) -> float | None:
        await anyio.lowlevel.checkpoint()
        return self._bucket(limit, who, size).take(size, a_second, self.clock()) if self.is_there else None

    async def wait(self, limit: Literal["rate", "tries"], who: str, size: float, a_second: float) -> float | None:
        await anyio.lowlevel.checkpoint()
        left = self._bucket(limit, who, size).left(size, a_second, self.clock())
        return (max(0.0, 1 - left) / a_second) if self.is_there else None


def who(rate: int = 0, concurrency: int = 0) -> Identity:
    return Identity(Principal("ann"), Allowance(rate, concurrency))


def replicas(clock: Clock, store: OneStore | None, count: int) -> list[RateLimits]:
    return [RateLimits(Limiter(clock), FailedTries(clock), store) for _ in range(count)]


async def admitted(several: list[RateLimits], identity: Identity, requests: int, *, counted: bool = False) -> int:
    """How many of so many requests are let through, in turns by each replica."""
    found = 0
    for number in range(requests):
        limits = several[number % len(several)]
        if await limits.enter(identity, "call", counted=counted) is None:
            found += 1
            limits.leave(identity, "call")
    return found


async def test_rate_of_one_key_holds_for_all_replicas_together() -> None:
    clock = Clock()
    assert await admitted(replicas(clock, None, 3), who(rate=6), 30) == 18
    assert await admitted(replicas(clock, OneStore(clock, 3), 3), who(rate=6), 30) == 6


async def test_each_replica_has_its_share_while_the_store_is_away() -> None:
    clock = Clock()
    store = OneStore(clock, 3)
    store.is_there = False

    assert await admitted(replicas(clock, store, 3), who(rate=12), 60) == 12


async def test_share_of_a_small_rate_lets_a_request_through_now_and_then() -> None:
    clock = Clock()
    store = OneStore(clock, 4)
    store.is_there = False
    (one,) = replicas(clock, store, 1)

    assert await admitted([one], who(rate=2), 5) == 1
    assert await one.enter(who(rate=2), "call", counted=False) == RateRefused("rate", pytest.approx(120.0))
    clock.now += 121
    assert await admitted([one], who(rate=2), 5) == 1


async def test_store_that_goes_away_gives_nobody_a_new_minute() -> None:
    clock = Clock()
    store = OneStore(clock, 2)
    both = replicas(clock, store, 2)
    assert await admitted(both, who(rate=10), 20) == 10

    store.is_there = False

    assert await admitted(both, who(rate=10), 20) == 0


async def test_request_that_another_replica_sent_on_counts_once() -> None:
    clock = Clock()
    store = OneStore(clock, 2)
    one, other = replicas(clock, store, 2)

    assert await admitted([one], who(rate=6), 6) == 6
    assert await admitted([other], who(rate=6), 6, counted=True) == 6
    assert store.asked == 6


async def test_request_that_was_sent_on_still_counts_among_those_that_run() -> None:
    clock = Clock()
    (one,) = replicas(clock, OneStore(clock), 1)

    assert await one.enter(who(concurrency=1), "call", counted=True) is None
    assert await one.enter(who(concurrency=1), "call", counted=True) == RateRefused("concurrency", 1.0)


async def test_refused_and_cancelled_requests_leave_no_place_taken() -> None:
    clock = Clock()
    store = OneStore(clock)
    (one,) = replicas(clock, store, 1)
    key = who(rate=1, concurrency=1)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await one.enter(key, "call", counted=False)
    assert scope.cancelled_caught

    assert await one.enter(key, "call", counted=False) is None
    one.leave(key, "call")
    refused = [await one.enter(key, "call", counted=False) for _ in range(3)]

    assert {each.limit for each in refused if each} == {"rate"}
    clock.now += 60
    assert await one.enter(key, "call", counted=False) is None


async def test_key_without_a_rate_asks_no_store() -> None:
    clock = Clock()
    store = OneStore(clock)

    assert await admitted(replicas(clock, store, 1), who(concurrency=1), 3) == 3
    assert store.asked == 0


async def test_wrong_guesses_at_one_replica_count_at_the_others() -> None:
    clock = Clock()
    store = OneStore(clock, 2)
    one, other = replicas(clock, store, 2)
    for _ in range(FAILURES_AT_ONCE):
        assert await one.refused("10.0.0.1") is None
        await one.failed("10.0.0.1")

    assert await other.refused("10.0.0.1") == RateRefused("tries", pytest.approx(5.0))
    assert await other.refused("10.0.0.2") is None


async def test_address_that_guesses_on_costs_the_store_nothing_more() -> None:
    clock = Clock()
    store = OneStore(clock)
    (one,) = replicas(clock, store, 1)
    for _ in range(FAILURES_AT_ONCE):
        await one.failed("10.0.0.1")
    before = store.asked

    assert all([await one.refused("10.0.0.1") for _ in range(10)])
    assert store.asked == before


async def test_guesses_are_slowed_down_by_each_replica_while_the_store_is_away() -> None:
    clock = Clock()
    store = OneStore(clock, 2)
    store.is_there = False
    one, other = replicas(clock, store, 2)
    for _ in range(FAILURES_AT_ONCE):
        await one.failed("10.0.0.1")

    assert await one.refused("10.0.0.1") is not None
    assert await other.refused("10.0.0.1") is None
