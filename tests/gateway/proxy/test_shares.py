"""A share of each bound: what one principal takes leaves room for the others, and what it gives back is free."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.proxy.caller import ANYBODY, Principal
from gateway.proxy.shares import ShareRule
from gateway.serve.auth.identity import OPERATOR

ANN, BOB, CARL = (Principal(name) for name in ("ann", "bob", "carl"))


def test_one_principal_gets_its_share_and_is_told_which_and_what_to_do():
    shares = ShareRule(0.25).shares("session", 8, "sessions", "serve.max_sessions")
    given = [shares.take(ANN) for _ in range(2)]
    over = shares.take(ANN)

    assert given == [None, None]
    assert over is not None
    assert over.limit == "share"
    assert over.message == (
        "'ann' already has 2 of the 8 sessions (serve.max_sessions), and its share is 2 (limits.principal_share): "
        "end what is no longer needed, or ask the operator for a larger share"
    )
    assert shares.take(BOB) is None


def test_bound_holds_for_all_together():
    shares = ShareRule(0.5).shares("session", 2, "sessions", "serve.max_sessions")
    shares.take(ANN)
    shares.take(BOB)
    over = shares.take(CARL)

    assert over is not None
    assert (over.limit, over.message) == (
        "bound",
        "all 2 sessions are in use (serve.max_sessions); try again later",
    )


@pytest.mark.parametrize("principal", [ANYBODY, OPERATOR.principal])
def test_who_is_alone_or_runs_the_gateway_has_the_whole_bound(principal):
    shares = ShareRule(0.25).shares("session", 8, "sessions")

    assert [shares.take(principal) for _ in range(8)] == [None] * 8
    over = shares.take(principal)
    assert over is not None
    assert over.limit == "bound"


def test_share_of_a_small_bound_is_one_at_least():
    assert ShareRule(0.25).shares("session", 1, "sessions").take(ANN) is None


def test_key_whose_rights_changed_is_the_same_principal():
    shares = ShareRule(0.25).shares("session", 4, "sessions")
    shares.take(ANN)

    assert shares.take(Principal("ann", servers=frozenset())) is not None


def test_refusals_are_told_with_their_kind_and_nothing_of_the_principal():
    told = []
    shares = ShareRule(0.5, lambda kind, limit: told.append((kind, limit))).shares("session", 2, "sessions")
    for principal in (ANN, ANN, BOB, CARL):
        shares.take(principal)

    assert told == [("session", "share"), ("session", "bound")]


@given(bound=st.integers(1, 10_000), share=st.floats(0, 1, exclude_min=True), amount=st.integers(1, 20_000))
def test_share_of_a_bound_can_be_taken_and_no_more(bound, share, amount):
    shares = ShareRule(share).shares("session", bound, "sessions")

    assert (shares.take(ANN, amount) is None) == (amount <= max(1, int(bound * share)))


class Takers(RuleBasedStateMachine):
    """Many who take and give back, against plain counting."""

    BOUND, SHARE = 12, 0.25

    def __init__(self) -> None:
        super().__init__()
        self.shares = ShareRule(self.SHARE).shares("session", self.BOUND, "sessions")
        self.has = {each.name: 0 for each in (ANN, BOB, CARL, ANYBODY)}

    @rule(who=st.sampled_from([ANN, BOB, CARL, ANYBODY]), amount=st.integers(1, 4))
    def take(self, who: Principal, amount: int) -> None:
        most = self.BOUND if who is ANYBODY else self.BOUND * self.SHARE
        room = sum(self.has.values()) + amount <= self.BOUND and self.has[who.name] + amount <= most
        assert (self.shares.take(who, amount) is None) == room
        self.has[who.name] += amount if room else 0

    @rule(who=st.sampled_from([ANN, BOB, CARL, ANYBODY]))
    def give_back(self, who: Principal) -> None:
        self.shares.give_back(who, self.has[who.name])
        self.has[who.name] = 0

    @invariant()
    def sum_is_what_all_have(self) -> None:
        assert self.shares.taken == sum(self.has.values()) <= self.BOUND


TestTakers = Takers.TestCase
