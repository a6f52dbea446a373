"""Which engine of several is asked, as they come, go, fail and warm up."""

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from gateway.config import EngineConfig
from gateway.engine.interface import EngineFacts
from gateway.engine.pool.members import MovesOfAnswer, RetryBudget, order_of
from gateway.engine.pool.pool import EnginePool
from gateway.engine.rendering.template import ChatTemplate
from gateway.engine.slots.allocation import SlotTable
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.errors import EngineBusy, EngineUnavailable, MapDiffers
from gateway.observe.metrics import Metrics
from gateway.toolcalls.formats.registry import choose_format
from leaf_sdk.testing import tiny_map

pytestmark = pytest.mark.anyio

TINY = tiny_map()
LOSS = EngineUnavailable("it broke off")


class Route:
    """The route to an engine that is there, or is not."""

    def __init__(self, name: str, slots: int = 2, **settings: Any) -> None:
        self.name = name
        self.slots = slots
        self.settings = EngineConfig(**settings)
        self.error: Exception | None = None
        self.losses = 0
        self.start()

    def start(self) -> None:
        """Another start of it."""
        engine: Any = object()
        facts = EngineFacts("m", None, "", False, len(TINY), 1000, self.slots, ())
        tool_format = choose_format("", supports_tools=False)
        template, slots = ChatTemplate(engine, facts, TINY), SlotTable(self.slots)
        self.up = ReadyEngine(
            *(engine, facts, TINY, template, slots, tool_format), name=self.name, settings=self.settings
        )

    def ready(self) -> ReadyEngine:
        if self.error is not None:
            raise self.error
        return self.up

    def report_loss(self) -> None:
        self.losses += 1


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def pool_of(*routes: Route, metrics: Metrics | None = None) -> tuple[EnginePool, Clock]:
    clock = Clock()
    counted = (metrics or Metrics()).engines
    return EnginePool({route.name: route for route in routes}, now=clock, metrics=lambda: counted), clock


def home_of(pool: EnginePool, name: str) -> bytes:
    """A key whose home an engine is."""
    keys = (bytes([n]) * 16 for n in range(256))
    for key in keys:
        with pool.stay(pool.ready(), key) as stay:
            if stay.ready.name == name:
                return key
    raise AssertionError(name)


async def test_a_breaker_keeps_answers_from_an_engine_that_loses_them_and_lets_one_try_again() -> None:
    a, b = Route("a"), Route("b")
    pool, clock = pool_of(a, b)
    key = home_of(pool, "a")
    for _ in range(3):
        with pool.stay(pool.ready(), key) as stay:
            assert stay.ready.name == "a"
            stay.lost(LOSS)

    with pool.stay(pool.ready(), key) as stay:
        assert stay.ready.name == "b"
    assert {each.name: each.breaker for each in pool.statuses()} == {"a": "open", "b": "closed"}
    clock.now += 5
    with pool.stay(pool.ready(), key) as stay, pool.stay(pool.ready(), key) as second:
        # One tries; the others wait for what comes of it.
        assert (stay.ready.name, second.ready.name) == ("a", "b")
        stay.answered()
    with pool.stay(pool.ready(), key) as stay:
        assert stay.ready.name == "a"
    assert a.losses == 3


async def test_the_next_answer_tries_an_engine_that_was_too_busy_for_the_one_that_tried() -> None:
    a, b = Route("a"), Route("b")
    pool, clock = pool_of(a, b)
    key = home_of(pool, "a")
    for _ in range(3):
        with pool.stay(pool.ready(), key) as stay:
            stay.lost(LOSS)
    clock.now += 5
    with pool.stay(pool.ready(), key) as stay:
        stay.lost(EngineBusy("full"))
        stay.move(EngineBusy("full"))
        with pool.stay(pool.ready(), key) as second:
            assert (stay.ready.name, second.ready.name) == ("b", "a")


async def test_an_answer_from_before_decides_nothing_about_an_engine_that_another_one_tries() -> None:
    a, b = Route("a"), Route("b")
    pool, clock = pool_of(a, b)
    key = home_of(pool, "a")
    with pool.stay(pool.ready(), key) as older:
        for _ in range(3):
            with pool.stay(pool.ready(), key) as stay:
                stay.lost(LOSS)
        clock.now += 5
        with pool.stay(pool.ready(), key) as tries:
            older.lost(LOSS)
            older.answered()
            assert {each.name: each.breaker for each in pool.statuses()} == {"a": "half_open", "b": "closed"}
            tries.answered()
    assert {each.name: each.breaker for each in pool.statuses()} == {"a": "closed", "b": "closed"}


async def test_an_engine_that_was_started_anew_is_not_blamed_for_the_one_before() -> None:
    a, b = Route("a"), Route("b")
    pool, _ = pool_of(a, b)
    key = home_of(pool, "a")
    for _ in range(3):
        with pool.stay(pool.ready(), key) as stay:
            stay.lost(LOSS)
    a.start()

    with pool.stay(pool.ready(), key) as stay:
        assert stay.ready is a.up


async def test_where_every_breaker_is_open_the_home_is_asked_all_the_same() -> None:
    a, b = Route("a"), Route("b")
    pool, _ = pool_of(a, b)
    for key in (home_of(pool, "a"), home_of(pool, "b")):
        for _ in range(3):
            with pool.stay(pool.ready(), key) as stay:
                stay.lost(LOSS)

    with pool.stay(pool.ready(), home_of(pool, "a")) as stay:
        assert stay.ready.name == "a"


async def test_the_engine_that_holds_a_conversation_is_asked_though_its_home_is_free() -> None:
    a, b = Route("a"), Route("b")
    pool, _ = pool_of(a, b)
    key = home_of(pool, "a")

    with pool.stay(pool.ready(), key, b.up.number) as stay:
        assert stay.ready is b.up
    b.start()
    with pool.stay(pool.ready(), key, b.up.number - 1) as stay:
        assert stay.ready is a.up


async def test_what_runs_is_counted_by_engine_and_each_move_with_it() -> None:
    a, b, metrics = Route("a"), Route("b"), Metrics()
    pool, _ = pool_of(a, b, metrics=metrics)
    key = home_of(pool, "a")

    def running() -> dict[str, int]:
        return {each.name: each.running for each in pool.statuses()}

    with pool.stay(pool.ready(), key) as stay:
        assert running() == {"a": 1, "b": 0}
        stay.answered()
        stay.lost(LOSS)
        stay.move(LOSS)
        assert running() == {"a": 0, "b": 1}
        assert stay.ready is b.up
        page = metrics.render().decode()
        assert 'codec_pool_engine_answers{engine="b"} 1.0' in page
        assert 'codec_pool_answers_moved_total{at="middle",engine="a"} 1.0' in page
    assert running() == {"a": 0, "b": 0}


async def test_answer_that_only_waited_for_its_turn_moves_as_often_as_its_engines_are_lost() -> None:
    a, b = Route("a"), Route("b")
    pool, _ = pool_of(a, b)
    lost: list[str] = []

    async def wait_in_vain() -> None:
        raise LOSS

    with pool.stay(pool.ready(), home_of(pool, "a")) as stay:
        for _ in range(40):
            with pytest.raises(EngineUnavailable):
                await stay.turn(wait_in_vain())
            lost.append(stay.ready.name)
            next(route for route in (a, b) if route.up is stay.ready).start()
            stay.move(LOSS)
        await stay.turn(anyio.lowlevel.checkpoint())
        for _ in range(3):
            stay.move(LOSS)
            a.start()
            b.start()
        with pytest.raises(EngineUnavailable):
            stay.move(LOSS)

    assert len(lost) == 40
    assert pool.budget.take()


async def test_a_new_engine_takes_its_part_little_by_little() -> None:
    a, b = Route("a"), Route("b")
    pool, clock = pool_of(a, b)
    key = home_of(pool, "a")
    clock.now += 60
    a.start()
    with pool.stay(pool.ready(), key) as first, pool.stay(pool.ready(), key) as second:
        # It has two slots, and takes one conversation.
        assert (first.ready.name, second.ready.name) == ("a", "b")
    clock.now += 60
    with pool.stay(pool.ready(), key) as first, pool.stay(pool.ready(), key) as second:
        assert (first.ready.name, second.ready.name) == ("a", "a")


async def test_engines_that_come_up_one_by_one_at_the_start_are_equally_warm() -> None:
    a, b = Route("a"), Route("b")
    pool, clock = pool_of(a, b)
    a.error = LOSS
    assert pool.is_open
    clock.now += 14
    a.error = None
    pool.ready()
    key = next(bytes([n]) * 16 for n in range(256) if order_of(bytes([n]) * 16, "ab")[0] == "a")

    with pool.stay(pool.ready(), key) as first, pool.stay(pool.ready(), key) as second:
        assert (first.ready.name, second.ready.name) == ("a", "a")


async def test_an_engine_that_has_as_many_as_may_wait_gets_no_more() -> None:
    a, b = Route("a", slots=1), Route("b", slots=100)
    pool, _ = pool_of(a, b)
    key = home_of(pool, "a")
    stays = [pool.stay(pool.ready(), key) for _ in range(200)]
    for each in stays:
        each.__enter__()

    assert {each.name: each.running for each in pool.statuses()} == {"a": 61, "b": 139}
    for each in stays:
        each.__exit__(None, None, None)


async def test_engines_whose_settings_make_other_prompts_do_not_take_each_other_s_place() -> None:
    a, b = Route("a"), Route("b", reasoning="keep")
    pool, _ = pool_of(a, b)

    for number in range(8):
        with pool.stay(a.up, bytes([number]) * 16) as stay:
            assert stay.ready is a.up
            with pytest.raises(EngineUnavailable, match="broke off"):
                stay.move(LOSS)


async def test_why_there_is_none_is_said_of_each_and_a_map_that_fits_nowhere_by_its_name() -> None:
    a, b = Route("a"), Route("b")
    pool, _ = pool_of(a, b)
    a.error, b.error = EngineUnavailable("no route to host"), EngineUnavailable("it hangs")
    with pytest.raises(EngineUnavailable, match="a: no route to host; b: it hangs"):
        pool.ready()
    assert not pool.is_open
    a.error = b.error = MapDiffers("other ids", sample="x", map_ids=[1], engine_ids=[2])
    with pytest.raises(MapDiffers):
        pool.ready()


def test_an_answer_has_three_moves_in_vain_and_sixteen_in_all() -> None:
    moves = MovesOfAnswer()
    assert [moves.may_move() for _ in range(4)] == [True, True, True, False]

    moves, made = MovesOfAnswer(), 0
    while moves.may_move():
        made += 1
        moves.went_on()
    assert made == 16


def test_the_budget_of_all_runs_dry_and_fills_with_answers() -> None:
    budget = RetryBudget()
    assert [budget.take() for _ in range(129)] == [True] * 128 + [False]
    budget.answered()
    assert not budget.take()
    budget.answered()
    assert [budget.take(), budget.take()] == [True, False]
    for _ in range(1000):
        budget.answered()
    assert sum(budget.take() for _ in range(1000)) == 128
