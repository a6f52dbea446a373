"""What conversations find again: the paging beside the best policy, and the page beside the committed results."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.cache.bars import bars
from bench.cache.best import best_reuse, informed_reuse
from bench.cache.picture import draw
from bench.cache.scene import ONE_BY_ONE, ORDERS, SHAPES, Order, Scene, Shape, Start, starts, talks
from bench.cache.simulated import VOCABULARY, simulate
from bench.cache.table import page
from tests.cases import each_of

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results" / "cache.json"
TALKS = 24


def reuse(scene: Scene, order: list[Start], limit: int) -> float:
    counts = simulate(scene, order, limit)
    return counts.reused / counts.held


@each_of("shape", SHAPES)
@each_of("order", ORDERS)
def test_conversations_that_have_room_find_all_that_they_had(shape: Shape, order: Order) -> None:
    scene = Scene(shape, talks=TALKS)
    assert reuse(scene, list(starts(scene, order)), scene.whole) >= 0.99


@each_of("part", [2, 4])
@each_of("shape", SHAPES)
@each_of("order", [each for each in ORDERS if each.answer >= 1])
def test_what_is_found_again_is_near_the_best_where_conversations_wait_for_slots(
    shape: Shape, order: Order, part: int
) -> None:
    scene = Scene(shape)
    arrivals = list(starts(scene, order))
    assert reuse(scene, arrivals, scene.whole // part) >= best_reuse(scene, arrivals, scene.whole // part) - 0.1


@pytest.mark.parametrize("part", [2, 4])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_where_few_wait_as_much_is_found_as_can_be_known(shape: Shape, part: int) -> None:
    (order,) = (each for each in ORDERS if each.answer < 1)
    scene = Scene(shape)
    arrivals = list(starts(scene, order))
    assert reuse(scene, arrivals, scene.whole // part) >= informed_reuse(scene, arrivals, scene.whole // part) - 0.02


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_conversations_that_are_over_make_room_for_new_ones(shape: Shape) -> None:
    old, new = (Scene(shape, talks=TALKS, seed=seed) for seed in (1, 2))
    first = list(starts(old, ORDERS[0]))
    later = [
        replace(each, talk=each.talk + TALKS, came=each.came + 1000, begin=each.begin + 1000, end=each.end + 1000)
        for each in starts(new, ORDERS[0])
    ]
    both = replace(old, talks=2 * TALKS)
    limit = old.whole // 2
    alone = simulate(old, first, limit)
    counts = simulate(both, [*first, *later], limit)
    assert (counts.reused - alone.reused) / (counts.held - alone.held) >= alone.reused / alone.held - 0.05


def test_same_scene_is_the_same_each_time_and_its_conversations_are_as_long_as_it_says() -> None:
    scene = Scene(SHAPES[1], talks=3, turns=2)
    one, other = talks(scene, VOCABULARY), talks(scene, VOCABULARY)
    for a, b in zip(one, other, strict=True):
        for _ in range(scene.turns):
            assert a.prompt() == b.prompt()
            a.answered([1] * scene.answer)
            b.answered([1] * scene.answer)
        assert len(a.ids) == scene.longest
    assert list(starts(scene, ORDERS[0])) == list(starts(scene, ORDERS[0]))


@pytest.mark.parametrize("order", [*ORDERS, ONE_BY_ONE], ids=lambda order: order.name)
def test_requests_start_in_the_order_in_which_they_come_and_on_free_slots(order: Order) -> None:
    scene = Scene(SHAPES[0], talks=9, slots=3)
    arrivals = list(starts(scene, order))
    assert len(arrivals) == scene.talks * scene.turns
    assert [each.came for each in arrivals] == sorted(each.came for each in arrivals)
    for place, start in enumerate(arrivals):
        running = [each for each in arrivals[:place] if each.end > start.begin]
        assert len(running) < (order.at_once or scene.slots)
        assert all(each.talk != start.talk for each in running)


def test_best_policy_keeps_one_of_two_that_wait_where_there_is_room_for_one() -> None:
    scene = Scene(Shape("nothing shared", 3, 0, 100), talks=3, slots=1, turns=3)
    turns = [Start(talk, place, place, place + 0.5) for place, talk in enumerate((0, 1, 2) * 3)]
    assert best_reuse(scene, turns, 10_000) == 1.0
    assert best_reuse(scene, turns, 0) == 0.0
    assert 0.4 < best_reuse(scene, turns, 250) < 0.6


EXACT = {"answers": 9, "differing": 0, "beyond_ties": 0, "widest": 0.0}


def numbers(value: float) -> dict[str, Any]:
    return {"median": value, "min": value, "max": value, "samples": [value]}


@pytest.fixture
def results() -> dict[str, Any]:
    """Results in which every bar is held at its edge."""

    def side(found: float, processed: int) -> dict[str, Any]:
        return {"reuse": numbers(found), "processed": numbers(processed), **EXACT}

    def row(ours: float) -> dict[str, Any]:
        return {"best": 0.9, "informed": 0.8, "mib": 1, "ours": side(ours, 102), "stock": side(0.8, 100)}

    name = f"40 on 4 | {SHAPES[0].name}"
    return {
        "scenes": {f"{name} | 1": row(0.99), f"{name} | 2": row(0.8), f"{name} | 4": row(0.8)},
        "apart": {"two": {**EXACT}},
    }


def test_bars_are_held_up_to_their_edge(results: dict[str, Any]) -> None:
    assert [bar for bar in bars(results) if not bar.held] == []


@pytest.mark.parametrize(
    ("part", "key", "value", "missed"),
    [
        ("1", "reuse", 0.98, "99% at least"),
        ("2", "reuse", 0.79, "10 points below the best policy at most"),
        ("4", "processed", 103, "2 % more than the stock server's 100 at most"),
    ],
)
def test_a_bar_that_is_missed_is_shown_as_missed(
    results: dict[str, Any], part: str, key: str, value: float, missed: str
) -> None:
    results["scenes"][f"40 on 4 | {SHAPES[0].name} | {part}"]["ours"][key] = numbers(value)
    assert missed in [bar.bar for bar in bars(results) if not bar.held]


def test_one_answer_that_is_another_is_a_bar_missed_and_a_tie_is_told(results: dict[str, Any]) -> None:
    results["scenes"][f"40 on 4 | {SHAPES[0].name} | 2"]["ours"] |= {"differing": 3, "beyond_ties": 1}
    results["apart"]["two"] |= {"differing": 1, "beyond_ties": 0}
    exact = [bar for bar in bars(results) if "without a cache" in bar.what or "two gateways" in bar.what]
    assert [(bar.measured, bar.held) for bar in exact] == [("1 of 27, and 2 ties", False), ("0 of 9, and 1 ties", True)]


def test_page_and_picture_are_those_of_the_committed_results() -> None:
    shown = [ROOT / "docs" / name for name in ("cache-speed.md", "cache-speed.svg")]
    assert all(each.exists() == RESULTS.exists() for each in shown)
    if RESULTS.exists():
        results = json.loads(RESULTS.read_text(encoding="utf-8"))
        kinds = json.loads(RESULTS.with_name("cache_kinds.json").read_text(encoding="utf-8"))
        assert [each.read_text(encoding="utf-8") for each in shown] == [page(results, kinds), draw(results)]
