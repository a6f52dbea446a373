"""Conversations that outnumber the slots: what is saved and restored, by properties and one by one."""

from collections import deque
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.engine.interface import Moved, Timings
from gateway.engine.slots.slot_directory import SlotDirectory, slot_directory
from tests.gateway.engine.slot_engine import AN_ID, Bench, FixedRates, bench

pytestmark = pytest.mark.anyio

PLENTY = 10**7


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.gguf"
    path.write_bytes(b"weights")
    return path


@pytest.fixture
def directory() -> Iterator[SlotDirectory]:
    with ours(PLENTY) as opened:
        yield opened


@contextmanager
def ours(limit: int) -> Generator[SlotDirectory]:
    """A directory of the test's own."""
    with slot_directory("auto", limit) as directory:
        assert directory is not None
        yield directory


def talk(number: int, size: int = 50) -> list[int]:
    """A conversation that begins like no other."""
    return [1000 * number + n for n in range(size)]


async def test_conversations_that_take_turns_on_few_slots_find_all_that_they_had(
    directory: SlotDirectory, model: Path
) -> None:
    async with bench(directory, model) as at:
        talks = [talk(n) for n in range(6)]
        lost = 0
        for turn in range(4):
            for each in talks:
                reused = await at.ask(each, answer=[7, 8, 9])
                # New are the two, and the last id of the answer: it was sampled, and never processed.
                lost += len(each) - 3 - len(reused) if turn else 0
                each += [7, 8, 9, 5, 5]
    assert lost == 0


async def test_conversations_that_wait_in_turn_for_a_slot_find_as_many_files_as_there_is_room_for(
    model: Path,
) -> None:
    """Where what was used longest ago is given up, each is given up before it comes back."""
    reused: list[int] = []
    with ours(AN_ID * 250) as directory:
        async with bench(directory, model, 1) as at:

            async def converse(each: list[int]) -> None:
                reused.extend([len(await at.ask(each)) for _ in range(5)])

            async with anyio.create_task_group() as tasks:
                for n in range(8):
                    tasks.start_soon(converse, talk(n))
    # Files of five have room; all but the first turn come back.
    assert sum(found >= 49 for found in reused) >= 4 * 5


async def test_conversations_that_come_back_while_they_are_being_saved_find_all_that_they_had(
    directory: SlotDirectory, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second is still in the slot that the first has been given, and is saved only when that has its file."""
    async with bench(directory, model, 3) as at:
        begun, going_on, save = anyio.Event(), anyio.Event(), at.engine.save_slot

        async def slow(slot: int, name: str) -> Moved:
            begun.set()
            await going_on.wait()
            return await save(slot, name)

        found: list[int] = []

        async def back(number: int) -> None:
            found.append(len(await at.ask([*talk(number), 5])))

        for n in (1, 2, 3):
            await at.ask(talk(n))
        monkeypatch.setattr(at.engine, "save_slot", slow)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(at.ask, talk(4))
            await begun.wait()
            for n in (1, 2):
                tasks.start_soon(back, n)
                await anyio.wait_all_tasks_blocked()
            going_on.set()
    assert found == [50, 50]


async def test_who_gives_up_waiting_keeps_no_file(directory: SlotDirectory, model: Path) -> None:
    async with bench(directory, model, 1) as at:
        await at.ask(talk(1))
        at.paging.kept.limit = 50 * AN_ID
        async with at.table.take(talk(3), "ada"), anyio.create_task_group() as tasks:
            tasks.start_soon(at.ask, [*talk(1), 5])
            await anyio.lowlevel.checkpoint()
            assert at.paging.kept.make_room(talk(4), "ada", 50 * AN_ID) is None
            tasks.cancel_scope.cancel()
        assert at.paging.kept.make_room(talk(4), "ada", 50 * AN_ID) is not None


async def test_a_beginning_that_two_conversations_share_is_kept_once_and_outlives_both(
    directory: SlotDirectory, model: Path
) -> None:
    async with bench(directory, model, 1) as at:
        preamble = talk(1, 200)
        for n in (2, 3, 4):
            reused = await at.ask([*preamble, *talk(n, 20)])
            assert len(reused) == (0 if n == 2 else 200)
        shared = [file for file in at.paging.kept.files if file.shared]
        assert [file.ids for file in shared] == [preamble]
        # Room for little more than the beginning: whole conversations go first.
        at.paging.kept.limit = 300 * AN_ID
        for n in (5, 6, 7):
            await at.ask(talk(n, 60))
        assert shared[0] in at.paging.kept.files
        assert len(await at.ask([*preamble, *talk(8, 20)])) == 200


async def test_conversations_that_have_little_of_their_own_are_each_saved(
    directory: SlotDirectory, model: Path
) -> None:
    async with bench(directory, model, 1) as at:
        preamble = talk(1, 950)
        for n in (2, 3, 2, 3):
            reused = await at.ask([*preamble, *talk(n, 50)])
        assert len(reused) == 999


async def test_answer_that_is_asked_for_again_leaves_no_file_of_the_first(
    directory: SlotDirectory, model: Path
) -> None:
    async with bench(directory, model, 1) as at:
        await at.ask(talk(1, 90), answer=talk(2, 10))
        await at.ask(talk(1, 90), answer=talk(3, 10))
        assert at.engine.done == []


async def test_beginnings_that_differ_by_a_word_are_kept_once(directory: SlotDirectory, model: Path) -> None:
    async with bench(directory, model, 1) as at:
        preamble = talk(1, 200)
        for own in ([1, 2, 3], [1, 2, 4], [1, 5, 6], [2, 7, 7], [1, 2, 3, 8]):
            await at.ask([*preamble, *own, *talk(own[-1], 30)])
        assert len([file for file in at.paging.kept.files if file.shared]) == 1


async def test_what_goes_on_in_its_slot_is_neither_saved_nor_restored(directory: SlotDirectory, model: Path) -> None:
    async with bench(directory, model) as at:
        one = talk(1)
        for _ in range(3):
            await at.ask(one)
            one += [3, 4]
        assert at.engine.done == []


async def test_nothing_is_moved_where_that_takes_longer_than_to_process_it_again(
    directory: SlotDirectory, model: Path
) -> None:
    async with bench(directory, model, 1, rates=FixedRates(process=1e-6, move=1e-3)) as at:
        for n in (1, 2, 1, 2):
            await at.ask(talk(n))
        assert at.engine.done == []


async def test_a_file_of_another_serves_where_principals_are_not_isolated_and_only_there(model: Path) -> None:
    for isolate, expected in ((False, {"ada"}), (True, set[str]())):
        with ours(PLENTY) as directory:
            async with bench(directory, model, 1, isolate=isolate) as at:
                await at.ask(talk(1), "ada")
                await at.ask(talk(2), "ada")
                assert set(await at.ask([*talk(1), 5], "eve")) == expected


async def test_who_is_isolated_finds_its_own_again_although_another_had_the_slot(
    directory: SlotDirectory, model: Path
) -> None:
    async with bench(directory, model, 1, isolate=True) as at:
        await at.ask(talk(1), "ada")
        await at.ask(talk(1), "eve")
        assert await at.ask([*talk(1), 5], "ada") == ["ada"] * 50


async def test_a_prompt_that_was_given_up_is_not_saved(directory: SlotDirectory, model: Path) -> None:
    async with bench(directory, model, 1) as at:
        async with at.table.take(talk(1), "ada") as place:
            place.slot.holds(talk(1), at_rest=True, answered=False)
        await at.ask(talk(2))
        assert at.engine.done == []


async def test_the_slot_is_known_to_hold_nothing_after_a_swap_that_broke_off(
    directory: SlotDirectory, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(directory, model, 1) as at:
        await at.ask(talk(1))

        async def breaks(slot: int, name: str) -> None:
            raise RuntimeError

        monkeypatch.setattr(at.engine, "save_slot", breaks)
        with pytest.raises(RuntimeError):
            await at.ask(talk(2))
        monkeypatch.undo()
        await at.ask(talk(2))
        assert at.engine.done == []


async def test_a_swap_is_carried_out_although_its_request_is_given_up(directory: SlotDirectory, model: Path) -> None:
    async with bench(directory, model, 1) as at:
        await at.ask(talk(1))
        with anyio.CancelScope() as scope:
            scope.cancel()
            async with at.table.take(talk(2), "ada"):
                pass
        assert len(await at.ask([*talk(1), 4])) == 50


@dataclass(frozen=True)
class Asked:
    """A generation: whose, of what, whether it is answered, and in which slots others run at the time."""

    owner: str
    prompt: list[int]
    answered: bool = True


@st.composite
def arrivals(draw: st.DrawFn) -> list[Asked]:
    """Conversations of several principals that begin alike, grow, branch and come back in any order."""
    said: list[list[int]] = [[]]
    asked: list[Asked] = []
    for _ in range(draw(st.integers(1, 16))):
        before = draw(st.sampled_from(said))
        prompt = before + draw(st.lists(st.integers(0, 1), min_size=1, max_size=20))
        said.append(prompt)
        owner = draw(st.sampled_from(["eve", "eve", "ada", "bob"]))
        asked.append(Asked(owner, prompt, draw(st.integers(0, 5)) > 0))
    return asked


@given(asked=arrivals(), count=st.integers(1, 3), limit=st.integers(0, 60), together=st.integers(1, 3))
async def test_isolated_principals_share_nothing_files_stay_bounded_and_busy_slots_are_let_alone(
    model: Path, asked: list[Asked], count: int, limit: int, together: int
) -> None:
    with ours(AN_ID * limit + 1) as directory:
        async with bench(directory, model, count, isolate=True) as at:
            for begin in range(0, len(asked), together):
                async with anyio.create_task_group() as tasks:
                    for each in asked[begin : begin + together]:
                        tasks.start_soon(run_isolated, at, each)
                files = [file.name for file in directory.path.iterdir()]
                assert sorted(files) == sorted(file.name for file in at.paging.kept.files)
                assert sum((directory.path / name).stat().st_size for name in files) == at.paging.kept.size
                assert at.paging.kept.size <= directory.limit


async def run_isolated(at: Bench, asked: Asked) -> None:
    async with at.table.take(asked.prompt, asked.owner) as place:
        number = place.slot.number
        at.engine.busy.add(number)
        await anyio.lowlevel.checkpoint()
        reused = at.engine.run(number, asked.prompt, asked.owner, reuse=place.reuse)
        assert set(reused) <= {asked.owner}
        at.engine.busy.remove(number)
        place.slot.holds(list(asked.prompt), at_rest=True, answered=asked.answered)


async def told(model: Path, asked: list[Asked], count: int, limit: int, together: int) -> list[int]:
    """The cached ids that each answer of Eve's tells, where so many requests wait in a row."""
    figures: list[int] = []
    waiting: deque[ExitStack] = deque()
    with ours(AN_ID * limit + 1) as directory:
        async with bench(directory, model, count) as at:
            for number, each in enumerate(asked):
                for later in asked[number + len(waiting) : number + together]:
                    waiting.append(ExitStack())
                    waiting[-1].enter_context(at.paging.kept.awaiting(later.prompt, later.owner))
                waiting.popleft().close()
                async with at.table.take(each.prompt, each.owner) as place:
                    reused = len(at.engine.run(place.slot.number, each.prompt, each.owner))
                    timings = Timings(len(each.prompt) - reused, reused, 1, 0.1, 0.1)
                    figures += [place.shown(timings).cache_n] * (each.answered and each.owner == "eve")
                    left = [*each.prompt, each.prompt[0]]
                    place.slot.holds(left, at_rest=each.answered, answered=each.answered)
    return figures


@example(
    asked=[Asked("eve", [1, 0] * 10), Asked("ada", [1, 0] * 12), Asked("eve", [1, 0] * 11 + [1])],
    count=1,
    limit=60,
    together=1,
)
@given(asked=arrivals(), count=st.integers(1, 3), limit=st.integers(0, 60), together=st.integers(1, 6))
async def test_figures_are_the_same_whatever_other_principals_ask(
    model: Path, asked: list[Asked], count: int, limit: int, together: int
) -> None:
    # Somebody else has been there from the beginning: that there are others is no secret.
    asked = [Asked("ada", [0]), *asked]
    others = [each if each.owner == "eve" else replace(each, prompt=[9 + n for n in each.prompt]) for each in asked]

    assert await told(model, asked, count, limit, together) == await told(model, others, count, limit, together)


async def test_who_is_one_of_several_is_told_of_what_its_own_file_brought(
    directory: SlotDirectory, model: Path
) -> None:
    async with bench(directory, model, 1) as at:
        for owner, number in (("eve", 1), ("ada", 2)):
            await at.ask(talk(number), owner)
        async with at.table.take([*talk(1), 5], "eve") as place:
            assert place.shown(Timings(1, 50, 1, 0.1, 0.1)).cache_n == 50
