"""Which engine of several is asked, as they come, go, fail and warm up."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from gateway.config import EngineConfig, GatewayConfig, TokensConfig
from gateway.engine.interface import EngineFacts
from gateway.engine.pool.engine_choice import MemberStatus, MovesOfAnswer, RetryBudget, key_of, order_of, state_of
from gateway.engine.pool.engines import Engines
from gateway.engine.pool.pool import EnginePool, Stay, is_loss
from gateway.engine.rendering.template import ChatTemplate
from gateway.engine.slots.allocation import SlotTable
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.errors import (
    ConfigError,
    EngineBusy,
    EngineRefused,
    EngineStarting,
    EngineUnavailable,
    MapDiffers,
    ModelUnknown,
)
from gateway.observe.metrics import Metrics
from gateway.toolcalls.formats.registry import choose_format
from leaf_sdk.testing import tiny_map, tiny_map_bytes
from leaf_sdk.vocab import load_map
from tests.cases import each_of
from tests.gateway.engine.engines import FakeEngine, address_of

pytestmark = pytest.mark.anyio

TINY = tiny_map()
LOSS = EngineUnavailable("it broke off")


class Route:
    """The route to an engine that is there, or is not."""

    def __init__(self, name: str, slots: int = 2, *, model: str = "m", context: int = 1000, **settings: Any) -> None:
        self.name = name
        self.slots = slots
        self.model = model
        self.context = context
        self.settings = EngineConfig(**settings)
        self.error: Exception | None = None
        self.losses = 0
        self.start()

    def start(self) -> None:
        """Another start of it."""
        engine: Any = object()
        facts = EngineFacts(self.model, None, "", False, len(TINY), self.context, self.slots, ())
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


def pool_of(*routes: Route, metrics: Metrics | None = None, **more: Any) -> tuple[EnginePool, Clock]:
    clock = Clock()
    counted = (metrics or Metrics()).engines
    return EnginePool({route.name: route for route in routes}, now=clock, metrics=lambda: counted, **more), clock


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


DIFFERS = MapDiffers("other ids", sample="x", map_ids=[1], engine_ids=[2])


def test_engines_of_several_models_are_asked_by_the_model_s_name_or_an_alias() -> None:
    a, b, c = Route("a", model="one"), Route("b", model="two"), Route("c", model="two")
    pool, _ = pool_of(a, b, c, aliases={"c": ["spare", "one"]})

    assert [pool.ready(model) for model in (None, "one", "two", "spare")] == [a.up, a.up, b.up, c.up]
    assert pool.named("one") is a.up
    assert pool.named("spare") is c.up
    with pytest.raises(ModelUnknown, match=r"no model 'x' here; expected one of 'one', 'two', 'one', 'spare'$"):
        pool.ready("x")
    assert pool.models() == [a.up, b.up]
    b.error = EngineUnavailable("gone")
    assert pool.ready("two") is c.up
    assert pool.models() == [a.up, c.up]
    c.error = EngineUnavailable("away")
    with pytest.raises(EngineUnavailable, match=r"^no engine is up: b: gone; c: away$"):
        pool.ready("two")
    a.error = LOSS
    with pytest.raises(EngineUnavailable, match="a: it broke off; b: gone; c: away"):
        pool.models()


def test_any_name_is_the_only_model_s_unless_it_has_to_be_exact() -> None:
    for routes in ([Route("a")], [Route("a"), Route("b")]):
        pool, _ = pool_of(*routes, aliases={"a": ["spare"]})
        assert pool.ready("anything") is routes[0].up
        assert pool.models() == [routes[0].up]
        assert pool.named("m") is pool.named("spare") is routes[0].up
        with pytest.raises(ModelUnknown, match=r"^there is no model 'x{200}' here; expected one of 'm', 'spare'$"):
            pool.named("x" * 300)
    pool, _ = pool_of(Route("a"))
    with pytest.raises(ModelUnknown, match=r"expected 'm'$"):
        pool.named("n")


def test_model_is_known_while_its_engines_are_down() -> None:
    a, b = Route("a", model="one"), Route("b", model="two")
    pool, _ = pool_of(a, b)
    assert pool.is_open
    b.error = EngineUnavailable("gone")

    with pytest.raises(EngineUnavailable, match=r"^gone$"):
        pool.ready("two")
    assert pool.ready("one") is a.up


def test_state_of_a_pool_is_that_of_the_engine_that_is_nearest_to_being_up() -> None:
    a, b = Route("a"), Route("b")
    pool, _ = pool_of(a, b)
    assert pool.state() == ("ready", "")
    a.error = DIFFERS
    assert pool.state() == ("ready", "")
    b.error = EngineStarting("it loads")
    assert pool.state() == ("starting", "no engine is up: a: other ids; b: it loads")
    b.error = LOSS
    assert pool.state() == ("down", "no engine is up: a: other ids; b: it broke off")
    with pytest.raises(EngineUnavailable) as raised:
        pool.ready()
    assert type(raised.value) is EngineUnavailable
    assert (state_of(None), state_of(LOSS), state_of(EngineStarting(""))) == ("ready", "down", "starting")


def test_status_of_each_engine_says_why_it_is_not_up() -> None:
    a, b = Route("a"), Route("b")
    pool, _ = pool_of(a, b)
    b.error = EngineStarting("it loads")

    assert pool.statuses() == [
        MemberStatus("a", a.up, "ready", None, 0, "closed"),
        MemberStatus("b", None, "starting", "it loads", 0, "closed"),
    ]
    assert not pool_of(a)[0].several
    assert pool.several


async def test_engine_that_comes_up_while_that_is_asked_was_down_a_moment_ago() -> None:
    a, b = Route("a"), Route("b")
    pool, _ = pool_of(a, b)
    downs = iter([LOSS, LOSS])
    ready = a.ready

    def flickers() -> ReadyEngine:
        if error := next(downs, None):
            raise error
        return ready()

    b.error = LOSS
    a.ready = flickers
    with pytest.raises(EngineUnavailable, match="a: it broke off; b: it broke off"):
        pool.ready()
    assert pool.ready() is a.up
    downs = iter([LOSS])
    with pytest.raises(EngineUnavailable, match="a: engine 'a' was down a moment ago; try again; b: it broke off"):
        pool.ready()


@each_of(
    ("error", "loss"),
    [
        (LOSS, True),
        (EngineBusy("full"), True),
        (DIFFERS, True),
        (EngineRefused("no", 500), True),
        (EngineRefused("no", 502), True),
        (EngineRefused("no", 501), False),
        (EngineRefused("no", 499), False),
        (EngineRefused("no", 400), False),
    ],
)
def test_another_engine_may_succeed_where_this_one_is_lost_or_answers_nonsense(error: Any, *, loss: bool) -> None:
    assert is_loss(error) is loss


async def test_only_engine_is_asked_once_and_its_loss_reported() -> None:
    route = Route("a")
    pool, _ = pool_of(route)
    for error, losses in ((LOSS, 1), (EngineBusy("full"), 1), (EngineRefused("no", 500), 1), (DIFFERS, 1), (LOSS, 2)):

        async def fails(_ready: ReadyEngine, error: Any = error) -> None:
            raise error

        with pool.stay(route.up, b"") as stay:
            assert not stay.may_move
            with pytest.raises(type(error)):
                await stay.ask(fails)
        assert route.losses == losses
    with pytest.raises(EngineUnavailable):
        await Stay(route.up).ask(lambda ready: fails(ready, LOSS))

    async def answers(ready: ReadyEngine) -> str:
        return ready.name

    with pool.stay(route.up, b"") as stay:
        assert await stay.ask(answers) == "a"
        assert await stay.turn(answers(route.up)) == await stay.wait(answers(route.up)) == "a"
        stay.answered()
    assert await pool.open(route.up, b"", answers) == "a"


async def test_question_is_asked_of_the_next_engine_where_the_home_is_lost() -> None:
    a, b = Route("a"), Route("b")
    pool, _ = pool_of(a, b)
    home, asked = home_of(pool, "b"), list[str]()

    def answers(fails: Callable[[str], Any]) -> Callable[[ReadyEngine], Awaitable[str]]:
        async def answer(ready: ReadyEngine) -> str:
            asked.append(ready.name)
            if (error := fails(ready.name)) is not None:
                raise error
            return ready.name

        return answer

    assert await pool.open(a.up, home, answers(lambda name: None)) == "b"
    assert await pool.open(a.up, home, answers(lambda name: LOSS if name == "b" else None)) == "a"
    with pytest.raises(EngineRefused):
        await pool.open(a.up, home, answers(lambda name: EngineRefused("no", 400)))
    assert asked == ["b", "b", "a", "b"]
    with pytest.raises(EngineUnavailable, match="no engine is left that can answer: other ids"):
        await pool.open(a.up, home, answers(lambda name: DIFFERS))
    with pytest.raises(EngineUnavailable, match=r"^it broke off$"):
        await pool.open(a.up, home, answers(lambda name: LOSS))
    assert (a.losses, b.losses) == (1, 2)
    a.error = b.error = LOSS
    with pytest.raises(EngineUnavailable, match="no engine is up"):
        await pool.open(a.up, home, answers(lambda name: None))


async def test_question_goes_to_its_home_however_busy_that_is() -> None:
    a, b = Route("a", slots=1), Route("b", slots=1)
    pool, _ = pool_of(a, b)
    home = home_of(pool, "a")
    stays = [pool.stay(a.up, home, a.up.number) for _ in range(3)]
    for each in stays:
        each.__enter__()

    async def name(ready: ReadyEngine) -> str:
        return ready.name

    with pool.stay(a.up, home) as moved:
        assert moved.ready.name == "b"
    assert await pool.open(a.up, home, name) == "a"
    for each in stays:
        each.__exit__(None, None, None)
    assert [each.running for each in pool.statuses()] == [0, 0]


def test_engine_with_less_context_does_not_take_the_place_of_one_with_more() -> None:
    small, large = Route("small", context=999), Route("large")
    pool, _ = pool_of(small, large)
    home = home_of(pool, "small")
    with pool.stay(large.up, home) as stay:
        assert stay.ready is large.up
        with pytest.raises(EngineUnavailable):
            stay.move(LOSS)
    with pool.stay(small.up, home) as stay:
        assert stay.ready is small.up
        stay.move(LOSS)
        assert stay.ready is large.up


def test_moves_are_counted_and_paid_for_until_the_budget_is_spent() -> None:
    a, b, metrics = Route("a"), Route("b"), Metrics()
    pool, _ = pool_of(a, b, metrics=metrics)
    home = home_of(pool, "a")
    with pool.stay(a.up, home) as stay:
        assert stay.may_move
        stay.lost(LOSS)
        stay.move(LOSS)
        with pytest.raises(EngineUnavailable):
            stay.move(LOSS)
    assert 'codec_pool_answers_moved_total{at="start",engine="a"} 1.0' in metrics.render().decode()
    while pool.budget.take():
        pass
    with pool.stay(a.up, home) as stay, pytest.raises(EngineUnavailable):
        stay.move(LOSS)


def test_failures_that_are_no_losses_do_not_keep_answers_away() -> None:
    a, b = Route("a"), Route("b")
    pool, _ = pool_of(a, b)
    key = home_of(pool, "a")
    for error in (EngineBusy("full"), EngineRefused("no", 400)):
        for _ in range(3):
            with pool.stay(a.up, key) as stay:
                stay.lost(error)
    assert {each.breaker for each in pool.statuses()} == {"closed"}
    assert a.losses == 0


async def test_wait_for_an_engine_of_several_ends_when_it_is_lost() -> None:
    a, b = Route("a"), Route("b")
    pool, _ = pool_of(a, b)
    with pool.stay(a.up, home_of(pool, "a")) as stay:
        stay.ready.life.end()
        for wait in (stay.wait, stay.turn):
            with pytest.raises(EngineUnavailable, match="was lost before it answered"):
                await wait(anyio.sleep_forever())

    async def events() -> Any:
        yield 1

    with pool.stay(a.up, home_of(pool, "b")) as stay:
        assert [each async for each in stay.each(events())] == [1]


def test_keys_are_of_fixed_size_and_of_all_their_parts() -> None:
    keys = {key_of("a", 1), key_of("a", 2), key_of("b", 1), key_of("a1"), key_of("a", "1"), key_of("é")}

    assert len(keys) == 6
    assert {len(key) for key in keys} == {16}
    assert key_of({"a": 1, "b": 2}) == key_of({"b": 2, "a": 1})


def made(config: GatewayConfig, changes: list[tuple[str, bool]]) -> Engines:
    metrics = Metrics()
    return Engines(
        config,
        lambda name, up, reason: changes.append((name, up)),
        metrics=lambda: metrics.engines,
        files=lambda: metrics.slot_files,
    )


async def test_engine_whose_settings_are_wrong_does_not_keep_the_others_from_working(map_file: Path, caplog) -> None:
    changes: list[tuple[str, bool]] = []
    async with address_of(FakeEngine(TINY)) as address:
        right = EngineConfig(kind="url", url=address.url)
        wrong = EngineConfig(kind="embedded", model=map_file, slot_files=str(map_file), slot_files_bytes=2**20)
        tokens = TokensConfig(map=str(map_file))
        engines = made(GatewayConfig(engines={"right": right, "wrong": wrong}, tokens=tokens), changes)
        async with engines.running() as pool:
            assert pool.ready().name == "right"
            assert [each.name for each in pool.statuses()] == ["right", "wrong"]
            assert pool.maps.session is not None
        assert "an engine is not used: its settings are wrong" in caplog.text
        for several in ({"wrong": wrong}, {"wrong": wrong, "another": wrong}):
            engines = made(GatewayConfig(engines=several, tokens=tokens), [])
            with pytest.raises(ConfigError, match=r"engine\.slot_files"):
                async with engines.running():
                    pytest.fail("it is not to be served")
    assert ("right", True) in changes


async def test_only_engine_is_a_pool_of_its_own_and_shares_its_maps(map_file: Path) -> None:
    changes: list[tuple[str, bool]] = []
    async with address_of(FakeEngine(TINY)) as address:
        engine = EngineConfig(kind="url", url=address.url, aliases=("spare",))
        engines = made(GatewayConfig(engine=engine, tokens=TokensConfig(map=str(map_file))), changes)
        (route,) = engines.routes.values()
        assert engines.pool.maps is route.maps
        async with engines.running() as pool:
            assert pool.named("spare") is route.ready()
    assert changes == [("engine", True)]


async def test_map_that_an_engine_was_proven_to_fit_is_the_pool_s(map_file: Path) -> None:
    async with address_of(FakeEngine(TINY)) as one, address_of(FakeEngine(TINY)) as two:
        members = {"a": EngineConfig(kind="url", url=one.url), "b": EngineConfig(kind="url", url=two.url)}
        engines = made(GatewayConfig(engines=members, tokens=TokensConfig(map=str(map_file))), [])
        published = load_map(json.dumps({**json.loads(tiny_map_bytes()), "published_at": "2026"}).encode())
        engines.routes["a"].maps.add(published)
        async with engines.running() as pool:
            assert {*pool.maps.accepted} == {TINY.map_id, published.map_id}


def test_embedded_engines_share_the_cores(map_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    among: list[int] = []

    def noted(settings: EngineConfig, count: int) -> EngineConfig:
        among.append(count)
        return settings

    monkeypatch.setattr("gateway.engine.pool.engines.divided", noted)
    embedded, elsewhere = EngineConfig(kind="embedded"), EngineConfig(kind="url", url="http://127.0.0.1:9")
    tokens = TokensConfig(map=str(map_file))
    both = made(GatewayConfig(engines={"a": embedded, "b": embedded, "c": elsewhere}, tokens=tokens), [])
    one = made(GatewayConfig(engines={"a": embedded, "c": elsewhere}, tokens=tokens), [])

    # Those of one set are opened once.
    assert len({id(route.maps.session) for route in both.routes.values()}) == 1
    assert both.pool.maps.session is both.routes["a"].maps.session
    assert both.pool.maps is not both.routes["a"].maps
    assert len(one.routes) == 2
    assert among == [2, 2, 2, 1, 1]


def test_two_answers_that_have_ended_pay_for_one_move() -> None:
    a, b = Route("a"), Route("b")
    pool, _ = pool_of(a, b)
    while pool.budget.take():
        pass
    for number in range(2):
        with pool.stay(a.up, bytes([number]) * 16):
            pass
    assert [pool.budget.take(), pool.budget.take()] == [True, False]
