"""Many engines in simulation: nothing is lost or asked twice, they do what real ones do, all follows from the seed."""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.record import RESULTS
from bench.scaling import real, validation
from bench.scaling.__main__ import main, play, played, scenes
from bench.scaling.calibration import costs_of
from bench.scaling.costs import Costs, measured
from bench.scaling.engine import Engine, Request, Size
from bench.scaling.page import in_all, page, pictures
from bench.scaling.policies import POLICIES
from bench.scaling.real import SMALL, Asked, Played, Talk, lived
from bench.scaling.real import play as play_for_real
from bench.scaling.simulation import Scene, Simulation, simulate
from bench.scaling.traces import Conversation, Crowd, Turn, draw
from bench.scaling.validation import BAR, CASES, SHORT, Case, compared, in_its_order
from gateway.config import EngineConfig
from gateway.engine.pool.engine_choice import WARM
from gateway.engine.slots.engine_speed import Rates
from tests.cases import each_of

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "scaling.md"
COSTS = Costs(prefill=0.007, decode=0.02, beside=0.008, move=1e-6, request=0.001)
SMALL_ENGINE = Size(slots=2, cache=5000)
EXACT = Size(grain=1)
CROWD = Crowd(60, 60.0)
TALKS = draw(CROWD, 3)
FEW = draw(Crowd(15, 30.0), 3)


def turns_of(conversations: Sequence[Conversation]) -> int:
    return sum(len(each.turns) for each in conversations)


def alone(number: int, *turns: Turn, began: float = 0.0, preamble: int = 10) -> Conversation:
    return Conversation(number, number, began, preamble, turns)


@pytest.mark.parametrize("policy", POLICIES)
def test_figures_follow_from_the_seed(policy: str) -> None:
    scene = Scene(5, 3, stays=False, losses=(20.0,))
    figures = simulate(scene, policy, draw(CROWD, 3), COSTS, 3)

    assert figures == simulate(scene, policy, draw(CROWD, 3), COSTS, 3)
    assert figures != simulate(scene, policy, draw(CROWD, 4), COSTS, 3)


def test_figures_are_the_same_for_any_number_of_processes() -> None:
    chosen = {name: (scene, replace(crowd, conversations=8)) for name, (scene, crowd) in scenes((1, 3), 3).items()}

    assert played(chosen, 1) == played(chosen, 3)


@settings(max_examples=50)
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
    scene = Scene(engines, gateways, SMALL_ENGINE, stays, tuple(losses), tuple(joins))
    outcome = Simulation(scene, policy, FEW, COSTS, seed).run()

    assert len(outcome.firsts) == turns_of(FEW)
    assert sum(outcome.by_engine.values()) == len(outcome.firsts)
    assert outcome.reused <= outcome.held
    assert min(outcome.firsts) >= COSTS.request + COSTS.step(1) + COSTS.prefill - 1e-9
    if not losses:
        assert outcome.went_on == 0
        assert len(outcome.firsts) <= outcome.processed <= outcome.prompt - outcome.reused


def test_with_one_engine_all_policies_are_the_same() -> None:
    figures = [simulate(Scene(1), policy, FEW, COSTS) for policy in POLICIES]

    assert all(each == figures[0] for each in figures)
    assert figures[0]["moved"] == 0


def test_engine_that_forgets_nothing_processes_what_is_new_alone() -> None:
    talks = [replace(talk, began=number * 1e5) for number, talk in enumerate(TALKS)]
    figures = simulate(Scene(1, size=replace(EXACT, cache=10**9)), "homes", talks, COSTS)

    # Of each kind the beginning once; of each turn what was added, and the last id of the answer before.
    new = sum(turn.added for talk in talks for turn in talk.turns) + turns_of(talks) - len(talks)
    beginnings = sum({talk.kind: talk.preamble for talk in talks}.values())
    assert figures["processed"] == new + beginnings
    assert figures["found_again"] == 1.0


def test_what_is_kept_hardly_depends_on_the_grain() -> None:
    crowd = draw(Crowd(100, 300.0), 1)
    fine, coarse = (simulate(Scene(5, size=Size(grain=grain)), "homes", crowd, COSTS) for grain in (1, 8))

    assert coarse["processed"] == pytest.approx(fine["processed"], rel=0.02)
    assert coarse["found_again"] == pytest.approx(fine["found_again"], abs=0.01)


def test_who_waits_for_nobody_has_its_first_token_after_its_own_work() -> None:
    talk = alone(0, Turn(100, 10, 1.0), Turn(50, 10, 1.0), began=5.0, preamble=1000)
    outcome = Simulation(Scene(1), "homes", [talk], COSTS, 0).run()

    first = 0.001 + 1100 * 0.007 + 0.02
    second = 0.001 + 51 * 0.007 + 0.02
    assert outcome.firsts == pytest.approx([first, second])
    assert outcome.ended == pytest.approx(5 + first + 9 * 0.02 + 1.0 + second + 9 * 0.02)
    assert outcome.busy == pytest.approx(first + second + 18 * 0.02 - 0.002)


def test_time_in_the_queue_is_in_the_time_to_the_first_token() -> None:
    talks = [alone(n, Turn(10, 11, 1.0)) for n in range(3)]
    outcome = Simulation(Scene(1, size=Size(slots=1)), "homes", talks, COSTS, 0).run()

    whole = 0.001 + 20 * 0.007 + 11 * 0.02
    assert outcome.firsts == pytest.approx([whole * (n + 1) - 10 * 0.02 for n in range(3)], abs=0.001)


def test_answers_of_one_engine_share_its_passes() -> None:
    talks = [alone(n, Turn(10, 11, 1.0)) for n in range(3)]
    outcome = Simulation(Scene(1), "homes", talks, COSTS, 0).run()

    together = 60 * 0.007 + 0.02
    assert outcome.firsts == pytest.approx([0.001 + together] * 3)
    assert outcome.busy == pytest.approx(together + 10 * COSTS.step(3))


def test_prompt_keeps_the_answers_of_its_engine_waiting() -> None:
    writing, comes = alone(0, Turn(10, 101, 1.0)), alone(1, Turn(990, 2, 1.0), began=1.0)
    outcome = Simulation(Scene(1), "homes", [writing, comes], COSTS, 0).run()

    # The hundred ids of the first took a pass each; one of them took the prompt along, and one wrote for both.
    assert outcome.ended == pytest.approx(0.001 + 20 * 0.007 + 101 * 0.02 + 1000 * 0.007 + 0.008)


def test_answer_whose_engine_is_lost_goes_on_from_the_ids_that_are_there() -> None:
    talk = alone(0, Turn(90, 101, 1.0))
    whole = Simulation(Scene(2), "homes", [talk], COSTS, 0).run()
    # When fifty ids have been written.
    time = whole.firsts[0] + 49.5 * 0.02
    found = [
        Simulation(Scene(2, losses=(time,)), "homes", [replace(talk, number=number)], COSTS, 0).run()
        for number in range(8)
    ]
    moved = [each for each in found if each.went_on]

    assert {each.went_on for each in found} == {0, 1}
    for each in moved:
        assert each.firsts == whole.firsts
        # The prompt on the one, and on the other the prompt and what was written.
        assert each.processed == 100 + 100 + 50
        assert each.ended > whole.ended + 100 * 0.007


def test_engine_that_joins_is_warmed_up_before_it_gets_its_share() -> None:
    policy = POLICIES["homes"](4, Random(0))
    engines = {"old": -WARM, "new": 100.0}
    crowd = [alone(number, Turn(10, 10, 1.0)) for number in range(40)]
    at_once = [policy.choose(talk, engines, 100.0) for talk in crowd]
    later = POLICIES["homes"](4, Random(0))
    warm = [later.choose(talk, engines, 100.0 + WARM) for talk in crowd]

    assert at_once.count("new") < warm.count("new") / 2


def test_homes_keep_conversations_where_they_are_and_round_robin_does_not() -> None:
    crowd = draw(Crowd(200, 600.0), 1)
    homes, turns = (simulate(Scene(10), policy, crowd, COSTS) for policy in ("homes", "round robin"))

    assert homes["moved"] < turns["moved"] / 4
    assert homes["processed"] < turns["processed"] / 2
    assert homes["first_s"]["p50"] < turns["first_s"]["p50"]


def test_gateways_that_do_not_talk_agree_on_homes() -> None:
    crowd = draw(Crowd(100, 300.0), 1)
    apart = simulate(Scene(10, gateways=8, stays=False), "homes", crowd, COSTS)
    sticky = simulate(Scene(10, gateways=8, stays=False), "sticky", crowd, COSTS)

    assert apart["found_again"] > sticky["found_again"]
    assert apart["moved"] < sticky["moved"] / 4


def on_paper(conversations: Sequence[Conversation], engines: int, size: Size) -> list[list[int]]:
    """Ids that each request processes where they come one at a time, each turn of all after the turn before."""
    made = {f"engine-{number}": Engine(f"engine-{number}", size, COSTS) for number in range(engines)}
    policy, now = POLICIES["homes"](size.slots, Random(0)), 0.0
    found: list[list[int]] = [[] for _ in conversations]
    for turn in range(max(len(talk.turns) for talk in conversations)):
        for talk, processed in zip(conversations, found, strict=True):
            if turn >= len(talk.turns):
                continue
            request = Request(talk, turn, talk.prompt(turn), talk.turns[turn].answered, now)
            name = policy.choose(talk, dict.fromkeys(made, -WARM), now)
            made[name].come(request, now)
            while not made[name].wake(now := made[name].wakes):
                pass
            policy.ended(name)
            processed.append(request.processed)
    return found


@pytest.mark.anyio
@pytest.mark.engine
@pytest.mark.timeout(900)
async def test_engines_on_paper_process_what_real_ones_do(monkeypatch: pytest.MonkeyPatch, one_layer: Path) -> None:
    size = Size(slots=2, cache=4000, grain=1)
    # What an engine forgets and finds again hangs on no layer, and on its speed only in what is worth a file.
    monkeypatch.setattr(real, "EngineConfig", partial(EngineConfig, model=one_layer))
    monkeypatch.setattr(Rates, "to_process", lambda _, ids: ids * COSTS.prefill)
    monkeypatch.setattr(Rates, "to_move", lambda _, ids: ids * COSTS.move)
    talks = await play_for_real(draw(replace(SMALL, conversations=5, turns=2), 2), 2, size, apart=True)
    paper = on_paper([each.conversation for each in lived(talks)], 2, size)
    found = [[asked.processed for asked in talk.asked] for talk in talks]

    differing = [
        (theirs, ours)
        for own, other in zip(found, paper, strict=True)
        for theirs, ours in zip_longest(own, other)
        if abs(theirs - ours) > 4
    ]
    assert differing == []
    assert sum(map(sum, found)) < sum(asked.prompt for talk in talks for asked in talk.asked) / 2


def test_conversations_are_simulated_with_the_lengths_that_they_had() -> None:
    drawn = replace(draw(SMALL, 1)[0], turns=(Turn(1, 1, 0.5), Turn(1, 1, 0.5)), preamble=60)
    asked = [Asked(100, 100, 0, 0, 7, 0.1, 1.0, 2.0), Asked(150, 44, 106, 106, 9, 0.1, 3.0, 4.0)]
    (found,) = lived([Talk(drawn, 0.0, asked, home=b"home", beginning=[1] * 100)])

    assert [found.conversation.prompt(0), found.conversation.prompt(1)] == [100, 150]
    assert [turn.answered for turn in found.conversation.turns] == [7, 9]
    assert found.conversation.key == b"home"
    assert Played.of(json.loads(json.dumps(found.row()))) == found


def test_slot_is_free_again_where_an_answer_was_over_before_it_got_one_on_paper() -> None:
    asked = [(0.0, 10.0), (1.0, 5.0), (11.0, 12.0)]
    played = [
        Played(alone(number, Turn(20, 5, 1.0)), [Asked(30, 30, 0, 0, 5, 0.1, came, ended)])
        for number, (came, ended) in enumerate(asked)
    ]

    found = in_its_order(played, Case(1, replace(EXACT, slots=1)), COSTS)

    # The second one waits for the first on paper, and has no end of its own left when it gets the slot.
    assert found["processed"] == 3 * 30


def test_committed_figures_agree_with_real_engines() -> None:
    rows = json.loads((RESULTS / "scaling.json").read_text())["validation"]["rows"]

    assert list(rows) == [case.name for case in CASES]
    assert all(abs(differs) <= BAR for differs in in_all(rows)["differ"].values())
    for name, row in rows.items():
        assert abs(row["differ"]["processed"]) <= BAR, name
        assert abs(row["differ"]["found_again"]) <= BAR, name


@each_of("case", CASES)
def test_committed_comparison_is_that_of_the_code(case: Case) -> None:
    row = json.loads((RESULTS / "scaling.json").read_text())["validation"]["rows"][case.name]
    played = [Played.of(each) for each in row.pop("played")]

    assert compared(played, case, Costs(**row["costs"])) == row


@pytest.mark.parametrize("policy", POLICIES)
def test_committed_figures_are_those_of_the_code(policy: str) -> None:
    rows = json.loads((RESULTS / "scaling.json").read_text())["rows"]
    for name in ("1 engine", "10 engines"):
        assert play((name, policy, *scenes()[name])) == (name, policy, rows[name][policy])


def test_rates_are_those_of_the_committed_measurements() -> None:
    rates = measured()
    costs = json.loads((RESULTS / "scaling.json").read_text())["costs"]

    assert rates == costs_of(costs)
    assert 0 < rates.move < rates.prefill < rates.decode


def test_page_and_pictures_show_the_committed_results() -> None:
    results = json.loads((RESULTS / "scaling.json").read_text())
    text = PAGE.read_text()

    assert page(text, results) == text
    assert set(re.findall(r"<!-- scaling (\w+):", text)) == {
        "constants",
        "validation",
        "alone",
        "sizes",
        "events",
        "loss",
    }
    for name, picture in pictures(results).items():
        assert (PAGE.parent / name).read_text() == picture
        assert f"({name})" in text


@pytest.mark.engine
@pytest.mark.timeout(900)
def test_commands_of_the_page_run_in_short(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], one_layer: Path
) -> None:
    typed = re.findall(r"^\.venv/bin/python -m bench\.scaling *(--\w+)?", PAGE.read_text(), re.MULTILINE)
    assert typed == ["", "--costs", "--real", "--short"]

    def here(*flags: str) -> str:
        monkeypatch.setattr(sys, "argv", ["bench.scaling", "--short", *flags])
        main()
        return capsys.readouterr().out

    # In short, the first is the last.
    simulated, measured_here = in_a_process_of_its_own(), here("--costs")
    costs = json.loads(measured_here)["costs"]

    async def measured_before(engines: int, rounds: int) -> dict[str, dict[str, Any]]:
        assert (engines, rounds) == (1, 1)
        return costs

    # Which measures the same before and after it plays, on engines whose answers are only counted.
    monkeypatch.setattr(validation, "calibrated", measured_before)
    monkeypatch.setattr(real, "EngineConfig", partial(EngineConfig, model=one_layer))
    played_here = here("--real")

    assert all(policy in simulated for policy in POLICIES)
    assert costs_of(costs).prefill > 0
    assert costs_of(costs).decode > 0
    assert costs_of(costs).beside >= 0
    assert SHORT.name in played_here


def in_a_process_of_its_own() -> str:
    command = [sys.executable, "-m", "bench.scaling", "--short"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
