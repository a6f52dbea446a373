"""The fleet on paper: nothing is lost or asked twice, caches stay within their size, all follows from the seed."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.fleet.__main__ import play, scenes
from bench.fleet.costs import Costs, measured
from bench.fleet.engine import Engine, Request
from bench.fleet.policies import POLICIES
from bench.fleet.simulation import Scene, Simulation, simulate
from bench.fleet.traces import Conversation, Crowd, Turn, draw
from bench.record import RESULTS

COSTS = Costs(prefill=0.007, decode=0.02, restore=1e-6, request=0.001)
CROWD = Crowd(60, 60.0)
TALKS = draw(CROWD, 3)


def turns_of(conversations: Sequence[Conversation]) -> int:
    return sum(len(each.turns) for each in conversations)


@pytest.mark.parametrize("policy", POLICIES)
def test_figures_follow_from_the_seed(policy: str) -> None:
    scene = Scene(5, 3, stays=False, losses=(20.0,))
    figures = simulate(scene, policy, draw(CROWD, 3), COSTS, 3)

    assert figures == simulate(scene, policy, draw(CROWD, 3), COSTS, 3)
    assert figures != simulate(scene, policy, draw(CROWD, 4), COSTS, 3)


@given(
    st.sampled_from(sorted(POLICIES)),
    st.integers(1, 6),
    st.integers(1, 4),
    st.booleans(),
    st.lists(st.floats(0, 200), max_size=4),
    st.lists(st.floats(0, 200), max_size=4),
    st.integers(0, 5),
)
def test_every_request_is_answered_once_whatever_is_lost(
    policy: str, engines: int, gateways: int, stays: bool, losses: list[float], joins: list[float], seed: int
) -> None:
    scene = Scene(engines, gateways, slots=2, cache=5000, stays=stays, losses=tuple(losses), joins=tuple(joins))
    outcome = Simulation(scene, policy, TALKS, COSTS, seed).run()

    assert len(outcome.firsts) == turns_of(TALKS)
    assert len(outcome.firsts) <= outcome.processed <= outcome.prompt
    least = COSTS.request + COSTS.decode + COSTS.prefill
    assert min(outcome.firsts) >= least - 1e-9
    assert sum(outcome.by_engine.values()) == len(outcome.firsts)
    if not losses:
        assert outcome.asked_again == 0


def test_with_one_engine_all_policies_are_the_same() -> None:
    figures = [simulate(Scene(1), policy, TALKS, COSTS) for policy in POLICIES]

    assert all(each == figures[0] for each in figures)
    assert figures[0]["moved"] == 0


def test_engine_that_forgets_nothing_processes_what_is_new_alone() -> None:
    figures = simulate(Scene(1, slots=10_000, cache=10**9), "homes", TALKS, COSTS)

    # Of each kind the beginning once; of each turn what was added.
    added = sum(turn.added for talk in TALKS for turn in talk.turns)
    beginnings = sum({talk.kind: talk.preamble for talk in TALKS}.values())
    assert figures["processed_an_answer"] == round((added + beginnings) / turns_of(TALKS), 1)


def test_who_waits_for_nobody_has_its_first_token_after_its_own_work() -> None:
    talk = Conversation(0, 0, 5.0, 1000, (Turn(100, 10, 1.0), Turn(50, 10, 1.0)))
    outcome = Simulation(Scene(1), "homes", [talk], COSTS, 0).run()

    first = 0.001 + 1100 * 0.007 + 0.02
    second = 0.001 + 50 * 0.007 + 1110 * 1e-6 + 0.02
    assert outcome.firsts == pytest.approx([first, second])
    assert outcome.ended == pytest.approx(5 + first + 9 * 0.02 + 1.0 + second + 9 * 0.02)


def test_time_in_the_queue_is_in_the_time_to_the_first_token() -> None:
    talks = [Conversation(n, n, 0.0, 10, (Turn(10, 11, 1.0),)) for n in range(3)]
    outcome = Simulation(Scene(1, slots=1), "homes", talks, COSTS, 0).run()

    alone = 0.001 + 20 * 0.007 + 0.02
    assert outcome.firsts == pytest.approx([alone + n * (alone + 10 * 0.02) for n in range(3)])


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(10, 400)), min_size=1, max_size=60), st.integers(100, 2000))
def test_cache_holds_no_more_than_its_size_and_forgets_the_oldest(asked: list[tuple[int, int]], size: int) -> None:
    engine = Engine("e", 100, size, COSTS)
    last: list[tuple[Conversation, int]] = []
    for number, prompt in asked:
        talk = Conversation(number, number % 3, 0.0, 10, (Turn(1, 5, 1.0),))
        engine.begin(Request(talk, 0, prompt, 0.0), 0.0)
        last = [*(each for each in last if each[0] != talk), (talk, prompt + 5)]
        while sum(ids for _, ids in last) > size and len(last) > 1:
            last.pop(0)

    held = {talk.number: ids for talk, ids in last}
    kinds = {talk.kind for talk, _ in last}
    for number in range(13):
        talk = Conversation(number, number % 3, 0.0, 10, ())
        assert engine.holds(talk) == held.get(number, 10 if number % 3 in kinds else 0)


def test_homes_keep_conversations_where_they_are_and_round_robin_does_not() -> None:
    crowd = draw(Crowd(200, 120.0), 1)
    homes, turns = (simulate(Scene(10), policy, crowd, COSTS) for policy in ("homes", "round robin"))

    assert homes["moved"] < turns["moved"] / 4
    assert homes["processed_an_answer"] < turns["processed_an_answer"] / 2
    assert homes["first_s"]["p50"] < turns["first_s"]["p50"]


def test_gateways_that_do_not_talk_agree_on_homes() -> None:
    crowd = draw(Crowd(100, 120.0), 1)
    apart = simulate(Scene(10, gateways=8, stays=False), "homes", crowd, COSTS)
    sticky = simulate(Scene(10, gateways=8, stays=False), "sticky", crowd, COSTS)

    assert apart["found_again"] > sticky["found_again"]
    assert apart["moved"] < sticky["moved"] / 4


@pytest.mark.parametrize("policy", POLICIES)
def test_committed_figures_are_those_of_the_code(policy: str) -> None:
    rows = json.loads((RESULTS / "fleet.json").read_text())["rows"]
    for name in ("1 engines", "4 engines", "16 engines"):
        scene, crowd = scenes((1, 4, 16))[name]
        assert play((name, policy, scene, crowd)) == (name, policy, rows[name][policy])


def test_rates_are_those_of_the_committed_measurements() -> None:
    rates = measured()
    path = json.loads((RESULTS / "path.json").read_text())

    assert 1 / rates.decode == path["real"]["the engine's own JSON events"]["tokens_a_second"]["median"]
    assert 0 < rates.restore < rates.prefill < rates.decode
    assert replace(rates, decode=1.0) != rates
