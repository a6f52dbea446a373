"""What is sure to follow is processed ahead of time, in pieces, and only while nobody else wants the engine."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio
import pytest

from gateway.engine.interface import Filled, Timings
from gateway.engine.slots.allocation import SlotTable
from gateway.engine.slots.engine_speed import Rates
from gateway.engine.slots.prefill import PIECE, Prefill
from gateway.errors import EngineError, EngineRefused, EngineUnavailable

pytestmark = pytest.mark.anyio

HELD = list(range(100, 140))
AHEAD = list(range(1000, 1000 + 2 * PIECE + 10))


def rates(id_seconds: float = 0.01, step: float = 0.02) -> Rates:
    """Of an engine that has generated before."""
    seen = Rates()
    seen.generated(Timings(100, 0, 11, 100 * id_seconds, 10 * step))
    return seen


async def resting(number: int) -> bool:
    return True


@dataclass
class Filler:
    """An engine that processes a piece when it is let."""

    free: bool = True
    fails: EngineError | None = None
    believes: int = 0
    """Ids that it has to process beyond those that are new."""
    asked: list[tuple[int, list[int]]] = field(default_factory=list[tuple[int, list[int]]])
    arrived: anyio.Event = field(default_factory=anyio.Event)
    go: anyio.Event = field(default_factory=anyio.Event)
    lengths: dict[int, int] = field(default_factory=dict[int, int])
    at_once: int = 0
    most_at_once: int = 0

    async def __call__(self, slot: int, ids: Sequence[int]) -> Filled:
        self.asked.append((slot, list(ids)))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.arrived.set()
        try:
            if not self.free:
                await self.go.wait()
            await anyio.lowlevel.checkpoint()
        finally:
            self.at_once -= 1
        if self.fails is not None:
            raise self.fails
        new = len(ids) - self.lengths.get(slot, len(HELD))
        self.lengths[slot] = len(ids)
        return Filled(new + self.believes, new / 1000)

    @property
    def sizes(self) -> list[int]:
        return [len(ids) - len(HELD) for _, ids in self.asked]


async def generated(table: SlotTable, ids: list[int], owner: str = "ada") -> int:
    """A generation that has left these ids; gives its slot."""
    async with table.take(ids, owner) as place:
        place.slot.holds(ids, at_rest=True, answered=True)
    return place.slot.number


async def run(
    table: SlotTable,
    filler: Filler,
    *,
    held: list[int] = HELD,
    over: anyio.Event | None = None,
    owner: str = "ada",
    told: list[int] | None = None,
) -> list[int]:
    """Prefill; gives the ids that were told, piece by piece."""
    pieces: list[int] = [] if told is None else told
    with anyio.fail_after(20):
        await Prefill(table, filler, rates()).run(
            held, AHEAD, owner, over or anyio.Event(), lambda ids, seconds: pieces.append(ids)
        )
    return pieces


@pytest.mark.parametrize("slots", [1, 2])
async def test_all_of_it_goes_into_the_conversation_s_slot_in_even_pieces(slots: int) -> None:
    table, filler = SlotTable(slots, at_rest=resting), Filler()
    number = await generated(table, HELD)
    told = await run(table, filler)

    assert told == [25, 25, 24]
    assert max(told) <= PIECE
    assert [slot for slot, _ in filler.asked] == [number] * 3
    assert filler.asked[-1][1] == HELD + AHEAD
    async with table.take([*HELD, *AHEAD, 1], "ada") as place:
        assert place.slot.number == number
        # A principal that is alone is told of all that its generations had.
        assert place.own == len(HELD) + len(AHEAD)


async def test_a_result_that_comes_early_waits_for_the_piece_in_the_works_and_no_more() -> None:
    table, filler, over = SlotTable(1, at_rest=resting), Filler(free=False), anyio.Event()
    await generated(table, HELD)
    told: list[int] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: run(table, filler, over=over, told=told))
        await filler.arrived.wait()
        over.set()
        await anyio.wait_all_tasks_blocked()
        assert not table.is_idle
        filler.go.set()
    assert told == [25]
    assert filler.sizes == [25]
    assert table.is_idle


async def test_a_result_that_is_there_before_the_first_piece_waits_for_nothing() -> None:
    table, filler, over = SlotTable(1, at_rest=resting), Filler(), anyio.Event()
    await generated(table, HELD)
    over.set()
    assert await run(table, filler, over=over) == []
    assert filler.asked == []


@pytest.mark.parametrize("ends_first", ["generation", "tool"])
async def test_nothing_is_processed_while_another_generation_runs(ends_first: str) -> None:
    table, filler, over = SlotTable(2, at_rest=resting), Filler(), anyio.Event()
    await generated(table, HELD)
    told: list[int] = []
    async with anyio.create_task_group() as tasks, table.take([7], "ben"):
        tasks.start_soon(lambda: run(table, filler, over=over, told=told))
        await anyio.wait_all_tasks_blocked()
        assert filler.asked == []
        if ends_first == "tool":
            over.set()
            await anyio.wait_all_tasks_blocked()
    assert sum(told) == (len(AHEAD) if ends_first == "generation" else 0)


async def test_a_generation_that_comes_waits_for_one_piece_and_gets_the_only_slot() -> None:
    table, filler = SlotTable(1, at_rest=resting), Filler(free=False)
    await generated(table, HELD)
    told: list[int] = []
    order: list[str] = []

    async def other() -> None:
        await generated(table, [7, 8], "ben")
        order.append("generated")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: run(table, filler, told=told))
        await filler.arrived.wait()
        tasks.start_soon(other)
        await anyio.wait_all_tasks_blocked()
        assert order == []
        filler.go.set()
    # The slot is another's then, and its owner's next request starts with what is left to it.
    assert order == ["generated"]
    assert told == [25]
    assert filler.sizes == [25]


async def test_of_two_conversations_one_is_processed_at_a_time() -> None:
    table, filler = SlotTable(2, at_rest=resting), Filler()
    others = [n + 5000 for n in HELD]
    numbers = {await generated(table, HELD, "ada"), await generated(table, others, "ben")}
    first: list[int] = []
    second: list[int] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: run(table, filler, told=first))
        tasks.start_soon(lambda: run(table, filler, held=others, owner="ben", told=second))
    assert sum(first) == sum(second) == len(AHEAD)
    assert filler.most_at_once == 1
    assert {slot for slot, _ in filler.asked} == numbers
    assert all(ids[: len(HELD)] in (HELD, others) for _, ids in filler.asked)


@pytest.mark.parametrize("fails", [EngineUnavailable("gone"), EngineRefused("answered 500", 500)])
async def test_an_engine_that_fails_in_a_piece_costs_no_answer_and_no_slot(fails: EngineError) -> None:
    table, filler = SlotTable(1, at_rest=resting), Filler(fails=fails)
    await generated(table, HELD)
    assert await run(table, filler) == []
    assert len(filler.asked) == 1
    assert table.is_idle
    async with table.take([*HELD, *AHEAD], "ada") as place:
        # What it has processed of it nobody knows.
        assert place.own == len(HELD)


async def test_whoever_gives_up_in_a_piece_leaves_a_slot_that_is_asked_whether_it_rests() -> None:
    looks: list[int] = []

    async def at_rest(number: int) -> bool:
        looks.append(number)
        return True

    table, filler = SlotTable(1, at_rest=at_rest), Filler(free=False)
    await generated(table, HELD)
    looks.clear()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, table, filler)
        await filler.arrived.wait()
        tasks.cancel_scope.cancel()
    assert table.is_idle
    assert looks == []
    await generated(table, HELD)
    assert looks == [0]


async def test_a_slot_that_still_works_is_awaited_before_a_piece() -> None:
    works, looked = True, anyio.Event()

    async def at_rest(number: int) -> bool:
        looked.set()
        return not works

    table, filler = SlotTable(1, at_rest=at_rest), Filler()
    works = False
    async with table.take(HELD, "ada") as place:
        # As behind a turn that was cut off at its first call.
        place.slot.holds(HELD, at_rest=False, answered=True)
    works, looked = True, anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, table, filler)
        with anyio.fail_after(20):
            await looked.wait()
        assert filler.asked == []
        works = False
    assert sum(filler.sizes[-1:]) == len(AHEAD)


async def test_it_ends_where_the_slot_held_something_else() -> None:
    table, filler = SlotTable(1, at_rest=resting), Filler(believes=1)
    await generated(table, HELD)
    assert await run(table, filler) == [25]


@pytest.mark.parametrize(
    ("owner", "held"), [("ben", HELD), ("ada", HELD[:-1]), ("ada", [*HELD, 1])], ids=["another", "less", "more"]
)
async def test_nothing_goes_into_a_slot_that_holds_something_else_or_another_s(owner: str, held: list[int]) -> None:
    table, filler = SlotTable(2, at_rest=resting), Filler()
    await generated(table, held, owner)
    assert await run(table, filler) == []
    assert filler.asked == []


async def test_nothing_is_done_where_the_server_chooses_slots() -> None:
    table, filler = SlotTable(2), Filler()
    await generated(table, HELD)
    assert not table.chooses
    assert await run(table, filler) == []
    assert filler.asked == []


async def test_a_slot_that_is_reserved_does_not_count_as_taken() -> None:
    table, filler = SlotTable(2, at_rest=resting), Filler()
    table.reserve()
    await generated(table, HELD)
    assert sum(await run(table, filler)) == len(AHEAD)


@pytest.mark.parametrize(
    ("seen", "ids", "pays"),
    [
        (rates(0.010, 0.020), 5, True),
        (rates(0.010, 0.020), 4, False),
        # A fast GPU.
        (rates(1 / 3000, 0.020), 50, False),
        (rates(1 / 3000, 0.020), 200, True),
        (Rates(), 10_000, False),
    ],
)
def test_it_pays_where_more_than_two_passes_are_gained(seen: Rates, ids: int, pays: bool) -> None:
    assert Prefill(SlotTable(1), Filler(), seen).pays(ids) is pays


def test_the_first_id_of_an_answer_comes_with_its_prompt_and_is_no_pass() -> None:
    seen = Rates()
    seen.generated(Timings(10, 0, 1, 0.1, 0.001))
    assert seen.step == 0
    seen.generated(Timings(10, 0, 3, 0.1, 0.2))
    assert seen.step == pytest.approx(0.1)


async def test_slot_knows_where_its_cache_can_be_cut_after_ids_were_processed_ahead() -> None:
    table, filler = SlotTable(1, at_rest=resting, rewind="checkpoints"), Filler()
    await generated(table, HELD)
    assert await run(table, filler) == [len(AHEAD)]
    async with table.lent([*HELD, *AHEAD], "ada") as slot:
        assert slot is not None
        # The end of what was reused, and four ids before the end of all.
        assert slot.checkpoints == (len(HELD), len(HELD) + len(AHEAD) - 4)
