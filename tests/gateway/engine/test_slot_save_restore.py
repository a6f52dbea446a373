"""Slots of a scripted engine go to files and back: what is counted, what is refused, and what the next engine finds."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from gateway.engine.interface import Filled, Rewind
from gateway.engine.slots import slot_save_restore as swapping
from gateway.engine.slots.allocation import SlotTable
from gateway.engine.slots.slot import Hints, Slot
from gateway.engine.slots.slot_directory import SlotDirectory, slot_directory
from gateway.engine.slots.slot_save_restore import Swapper, model_digest
from gateway.engine.slots.swap_plan import Paging
from gateway.errors import EngineRefused
from gateway.observe.metrics import Metrics
from tests.gateway.engine.slot_engine import AN_ID, Bench, FixedRates, SlotEngine, bench, restarted
from tests.gateway.engine.spoilt_files import SPOILT

pytestmark = pytest.mark.anyio


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"weights")
    return path


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[SlotDirectory]:
    """A directory whose files are kept for the next process."""
    with slot_directory(str(tmp_path / "kept"), 10**7) as directory:
        assert directory is not None
        yield directory


def talk(number: int, size: int = 50) -> list[int]:
    """A conversation that begins like no other."""
    return [1000 * number + n for n in range(size)]


def refused(at: Bench, fault: str) -> float:
    return at.metric(f'codec_slot_files_refused_total{{reason="{fault}"}}')


def files(directory: SlotDirectory) -> list[str]:
    return sorted(path.name for path in directory.path.iterdir())


async def test_states_that_are_moved_are_counted_with_their_bytes_and_ids(kept: SlotDirectory, model: Path) -> None:
    async with bench(kept, model, 1) as at:
        for number in (1, 2, 1):
            await at.ask(talk(number))

        sizes = [file.size for file in at.paging.kept.files]
        assert at.metric('codec_slot_file_moves_total{way="save"}') == 2
        assert at.metric('codec_slot_file_moves_total{way="restore"}') == 1
        assert at.metric('codec_slot_file_moved_bytes_total{way="save"}') == sum(sizes)
        assert at.metric('codec_slot_file_moved_bytes_total{way="restore"}') == sizes[0]
        assert at.metric("codec_slot_file_restored_ids_total") == 50
        assert at.metric("codec_slot_file_bytes") == sum(sizes) == at.paging.kept.size


async def test_rates_are_measured_by_what_is_moved_and_processed(kept: SlotDirectory, model: Path) -> None:
    class Noted(FixedRates):
        def __init__(self) -> None:
            super().__init__()
            self.noted: list[tuple[Any, ...]] = []

        def moved(self, ids: int, size: int, seconds: float) -> None:
            self.noted.append(("moved", ids, size, 0.001 <= seconds < 60))

        def processed(self, ids: int, seconds: float) -> None:
            self.noted.append(("processed", ids, seconds))

    rates = Noted()
    async with bench(kept, model, 1, rates=rates) as at:
        for number in (1, 2, 1):
            await at.ask(talk(number))
        assert rates.noted == [
            ("moved", 50, file.size, True) for file in [*at.paging.kept.files, *at.paging.kept.files[:1]]
        ]
        rates.noted.clear()
        await at.ask([*talk(1, 40), *talk(3, 20)])
        assert ("processed", 1, 0.001) in rates.noted


@pytest.mark.parametrize("spoilt", SPOILT)
async def test_file_that_is_not_what_was_written_costs_one_recomputation(
    kept: SlotDirectory, model: Path, caplog: pytest.LogCaptureFixture, spoilt: str
) -> None:
    spoil, fault = SPOILT[spoilt]
    async with bench(kept, model, 1) as at:
        await at.ask(talk(1))
        await at.ask(talk(2))
        (file,) = at.paging.kept.files
        spoil(kept.path / file.name)

        assert await at.ask([*talk(1), 5]) == []
        assert refused(at, fault) == 1
        assert "restore 0" not in at.engine.done
        assert file not in at.paging.kept.files
        assert not (kept.path / file.name).is_symlink()
        assert not (kept.path / file.name).exists()
        assert f"'reason': '{fault}', 'ids': 50" in str([record.msg for record in caplog.records])


async def test_slot_still_holds_what_it_held_where_a_file_is_not_fit(kept: SlotDirectory, model: Path) -> None:
    async with bench(kept, model, 1) as at:
        await at.ask([*talk(1, 200), *talk(2)])
        await at.ask(talk(3))
        await at.ask(talk(1, 40))
        for file in at.paging.kept.files:
            (kept.path / file.name).unlink()
        assert len(await at.ask([*talk(1, 200), 5])) == 40


@pytest.mark.parametrize("lies", [True, False])
async def test_slot_is_empty_where_the_engine_does_not_restore_what_it_saved(
    kept: SlotDirectory, model: Path, monkeypatch: pytest.MonkeyPatch, *, lies: bool
) -> None:
    async with bench(kept, model, 1) as at:

        async def refuses(slot: int, name: str) -> None:
            at.engine.slots[slot] = []
            raise EngineRefused("the engine answered 400: no", 400)

        for number in (1, 2):
            await at.ask(talk(number))
        at.engine.lies = lies
        if not lies:
            monkeypatch.setattr(at.engine, "restore_slot", refuses)
        assert await at.ask([*talk(1), 5]) == []
        assert refused(at, "engine") == 1
        assert [file.ids for file in at.paging.kept.files] == [talk(2)]
        assert at.engine.done[-1] == ("erase 0" if lies else "save 0")


async def test_save_that_fails_leaves_nothing_and_is_tried_again_half_a_minute_later(
    kept: SlotDirectory, model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 1000.0
    monkeypatch.setattr(swapping, "monotonic", lambda: now)
    async with bench(kept, model, 1) as at:
        save = at.engine.save_slot

        async def fails(slot: int, name: str) -> None:
            await save(slot, name)
            raise EngineRefused("the engine answered 500: disk full", 500)

        await at.ask(talk(1))
        monkeypatch.setattr(at.engine, "save_slot", fails)
        await at.ask(talk(2))
        assert (refused(at, "save"), files(kept), at.paging.kept.files) == (1, [], [])
        assert "disk full" in caplog.text
        now = 1029.9
        await at.ask(talk(3))
        assert refused(at, "save") == 1
        now = 1030.0
        await at.ask(talk(4))
        assert refused(at, "save") == 2
        assert at.metric("codec_slot_file_bytes") == 0


async def test_file_that_vanishes_while_it_is_written_is_none(kept: SlotDirectory, model: Path, monkeypatch) -> None:
    async with bench(kept, model, 1) as at:
        save = at.engine.save_slot

        async def loses(slot: int, name: str) -> Any:
            moved = await save(slot, name)
            (kept.path / name).unlink()
            return moved

        monkeypatch.setattr(at.engine, "save_slot", loses)
        await at.ask(talk(1))
        await at.ask(talk(2))
        assert (refused(at, "save"), at.paging.kept.files) == (1, [])


async def test_same_engine_finds_its_files_again_and_another_none(kept: SlotDirectory, model: Path, caplog) -> None:
    async with bench(kept, model, 1) as at:
        for number in (1, 2):
            await at.ask(talk(number))
        paging = at.paging
    again = await restarted(paging, kept, model, 1)
    assert again.metric("codec_slot_file_bytes") == paging.kept.size > 0
    assert len(await again.ask([*talk(1), 5])) == 50

    count, others = len(paging.kept.files), model.with_name("others.gguf")
    await anyio.Path(others).write_bytes(b"others")
    other = await restarted(paging, kept, others, 1)
    assert (refused(other, "engine"), files(kept)) == (count, [])
    assert other.metric("codec_slot_file_bytes") == 0
    assert await other.ask([*talk(1), 5]) == []


async def test_next_process_finds_the_files_that_an_identical_engine_has_left(
    kept: SlotDirectory, model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench(kept, model, 1) as at:
        for number in (1, 2, 3):
            await at.ask(talk(number))
        (spoilt, _) = at.paging.kept.files
        (kept.path / f"{spoilt.name}.json").write_text("{}")
    next_process = await restarted(Paging(kept.limit, FixedRates()), kept, model, 1)

    assert [file.ids for file in next_process.paging.kept.files] == [talk(2)]
    assert refused(next_process, "note") == 1
    assert "'reason': 'note'" in caplog.text
    assert len(await next_process.ask([*talk(2), 5])) == 50


async def test_next_process_with_less_room_gives_up_files(kept: SlotDirectory, model: Path) -> None:
    async with bench(kept, model, 1) as at:
        for number in (1, 2, 3):
            await at.ask(talk(number))
    next_process = await restarted(Paging(60 * AN_ID, FixedRates()), kept, model, 1)

    (file,) = next_process.paging.kept.files
    assert files(kept) == [file.name, f"{file.name}.json"]


async def test_next_process_finds_nothing_of_a_directory_that_is_not_kept(model: Path) -> None:
    with slot_directory("auto", 10**7) as directory:
        assert directory is not None
        async with bench(directory, model, 1) as at:
            for number in (1, 2):
                await at.ask(talk(number))
        next_process = await restarted(Paging(directory.limit, FixedRates()), directory, model, 1)
        assert next_process.paging.kept.files == []


async def test_slots_at_rest_are_saved_at_the_end_where_files_are_kept(kept: SlotDirectory, model: Path) -> None:
    async with bench(kept, model, 3) as at:
        await at.ask(talk(1))
        async with at.table.take(talk(2), "ada") as place:
            at.engine.run(place.slot.number, talk(2), "ada")
            place.slot.holds(talk(2), at_rest=False, answered=True)
        await at.table.keep()
        assert [file.ids for file in at.paging.kept.files] == [talk(1)]
        # What is in a file already is not saved again.
        await at.table.keep()
        assert len([each for each in at.engine.done if "save" in each]) == 1

    with slot_directory("auto", 10**7) as directory:
        assert directory is not None
        async with bench(directory, model, 1) as at:
            await at.ask(talk(1))
            await at.table.keep()
            assert at.engine.done == []


async def test_nothing_is_swapped_before_it_is_known_which_engine_it_is(kept: SlotDirectory, model: Path) -> None:
    engine, paging = SlotEngine(kept.path, 1), Paging(kept.limit, FixedRates())
    swapper = Swapper(engine, kept, paging, Metrics().slot_files)
    at = Bench(engine, paging, SlotTable(1, at_rest=engine.at_rest, swapper=swapper), Metrics())
    for number in (1, 2):
        await at.ask(talk(number))
    await at.table.keep()
    assert engine.done == []
    assert not swapper.adopted.is_set()

    await swapper.adopt(model, {})
    await at.table.keep()
    assert engine.done == ["save 0"]


async def test_engine_is_known_by_its_weights_and_by_what_else_makes_states_unfit(
    kept: SlotDirectory, tmp_path: Path
) -> None:
    models = [tmp_path / "a.gguf", tmp_path / "b.gguf"]
    for path, weights in zip(models, (b"a", b"b"), strict=True):
        path.write_bytes(weights)
    begun: list[str] = []

    class Noting(Paging):
        def begin(self, engine: str) -> None:
            begun.append(engine)

    swapper = Swapper(SlotEngine(kept.path, 1), kept, Noting(1, FixedRates()), Metrics().slot_files)
    for path, context in ((models[0], 1), (models[1], 1), (models[0], 2), (None, 1), (models[0], 1)):
        await swapper.adopt(path, {"context": context})

    assert len(set(begun[:4])) == 4
    assert begun[4] == begun[0]
    assert model_digest(models[0]) != model_digest(models[1])


def fills(at: Bench, monkeypatch: pytest.MonkeyPatch, fails: str = "") -> list[int]:
    """Notes how many ids the engine is asked to hold, each time."""
    fill, asked = at.engine.fill_slot, list[int]()

    async def noted(slot: int, ids: Sequence[int]) -> Filled:
        asked.append(len(ids))
        if fails:
            raise EngineRefused(fails, 400)
        return await fill(slot, ids)

    monkeypatch.setattr(at.engine, "fill_slot", noted)
    return asked


@pytest.mark.parametrize(
    ("seconds", "parts"),
    [(1e-3, [512, 1500]), (1e-2, [512, 1500]), (0.0125, [512, 1312, 1500]), (1.0, [512, 1024, 1500])],
)
async def test_preamble_is_processed_in_parts_of_ten_seconds_and_with_nothing_of_others(
    kept: SlotDirectory, model: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, parts: list[int]
) -> None:
    async with bench(kept, model, 1, rates=FixedRates(process=seconds)) as at:
        swapper = at.table.swapper
        assert swapper is not None
        asked = fills(at, monkeypatch)
        at.engine.run(0, [*talk(1, 900), *talk(2)], "eve")
        slot = Slot(0, [*talk(1, 900), *talk(2)], "eve", at_rest=True, checkpoints=())
        await swapper.prepare(slot, [*talk(1, 1500), *talk(3)], "ada", Hints(preamble=1500))

        assert at.engine.done == ["erase 0", *["fill 0"] * len(parts), "save 0"]
        assert asked == parts
        assert (slot.ids, slot.owner, slot.mixed, slot.at_rest, slot.answered) == (
            talk(1, 1500),
            "ada",
            False,
            True,
            True,
        )
        (shared,) = at.paging.kept.files
        assert (shared.ids, shared.owner, shared.shared, shared.slot) == (talk(1, 1500), "ada", True, None)


async def test_preamble_goes_on_from_what_its_principal_has_in_the_slot(
    kept: SlotDirectory, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(kept, model, 1) as at:
        swapper = at.table.swapper
        assert swapper is not None
        asked = fills(at, monkeypatch)
        for mixed in (False, True):
            at.engine.run(0, talk(1, 300), "ada")
            at.engine.done.clear()
            slot = Slot(0, talk(1, 300), "ada", at_rest=True, answered=True, mixed=mixed, checkpoints=())
            await swapper.prepare(slot, talk(1 + mixed, 900), "ada", Hints(preamble=800))
            # What another may have left goes before its states become this principal's.
            assert ("erase 0" in at.engine.done) is mixed

        assert asked == [800, 512, 800]


async def test_beginning_that_the_engine_refuses_is_not_kept(kept: SlotDirectory, model: Path, monkeypatch, caplog):
    async with bench(kept, model, 1) as at:
        fills(at, monkeypatch, "the engine answered 400: too long")
        for number in (2, 3):
            await at.ask([*talk(1, 200), *talk(number)])

        assert not any(file.shared for file in at.paging.kept.files)
        assert "a shared beginning was not kept" in caplog.text
        assert "too long" in caplog.text


@pytest.mark.parametrize("rewind", ["anywhere", "window", "checkpoints"])
@pytest.mark.parametrize("refuses", [True, False])
async def test_window_is_saved_with_a_checkpoint_at_its_end(
    kept: SlotDirectory, model: Path, monkeypatch: pytest.MonkeyPatch, rewind: Rewind, *, refuses: bool
) -> None:
    async with bench(kept, model, 1) as at:
        swapper = at.table.swapper
        assert swapper is not None
        swapper.rewind = rewind
        asked = fills(at, monkeypatch, "the context is full" if refuses else "")
        await at.ask(talk(1))
        await at.ask(talk(2))

        assert asked == [50] * (rewind == "window")
        assert [file.ids for file in at.paging.kept.files] == [talk(1)]


async def test_file_that_is_about_to_be_restored_is_protected_until_it_is(
    kept: SlotDirectory, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(kept, model, 1) as at:
        for number in (1, 2):
            await at.ask(talk(number))
        (file,) = at.paging.kept.files
        restore, readers = at.engine.restore_slot, list[int]()

        async def noted(slot: int, name: str) -> Any:
            readers.append(file.readers)
            return await restore(slot, name)

        monkeypatch.setattr(at.engine, "restore_slot", noted)
        await at.ask([*talk(1), 5])
        assert (readers, file.readers) == ([1], 0)


async def test_restored_slot_is_as_it_was_when_it_was_saved(kept: SlotDirectory, model: Path) -> None:
    async with bench(kept, model, 1) as at:
        swapper = at.table.swapper
        assert swapper is not None
        at.engine.run(0, talk(1), "ada")
        slot = Slot(0, talk(1), "ada", at_rest=True, answered=True, checkpoints=(46,), answer="one", question=40)
        assert await swapper.prepare(slot, talk(2), "ada") == 0
        (file,) = at.paging.kept.files
        assert (file.checkpoints, file.answer, file.question, file.held) == ((46,), "one", 40, 50)

        other = Slot(0, talk(2), "eve", at_rest=True, answered=True, mixed=True, checkpoints=())
        hints = Hints(answer="two", before="one")
        assert await swapper.prepare(other, [*talk(1), 5], "ada", hints) == 50
        assert (other.ids, other.owner, other.mixed, other.checkpoints) == (talk(1), "ada", False, (46,))
        assert (other.at_rest, other.answered) == (True, True)


async def test_only_states_that_are_being_saved_are_waited_for(kept: SlotDirectory, model: Path, monkeypatch) -> None:
    async with bench(kept, model, 2) as at:
        asked, worth = list[tuple[list[int], str]](), at.paging.is_worth_waiting

        def noted(slot: Slot, prompt: list[int], owner: str, ids: list[int], checkpoints: object) -> bool:
            asked.append((ids, owner))
            return worth(slot, prompt, owner, ids, None)

        monkeypatch.setattr(at.paging, "is_worth_waiting", noted)
        for number in (1, 2, 3, 4):
            await at.ask(talk(number))
        assert asked == []
        save, saving, go = at.engine.save_slot, anyio.Event(), anyio.Event()

        async def slow(slot: int, name: str) -> Any:
            saving.set()
            await go.wait()
            return await save(slot, name)

        monkeypatch.setattr(at.engine, "save_slot", slow)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(at.ask, talk(5))
            await saving.wait()
            # Others are not kept waiting by what is none of theirs.
            tasks.start_soon(at.ask, talk(6), "eve")
            await anyio.wait_all_tasks_blocked()
            assert asked == []
            go.set()


async def test_who_waits_for_a_state_goes_on_where_it_could_not_be_saved(
    kept: SlotDirectory, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(kept, model, 2) as at:
        saving, go = anyio.Event(), anyio.Event()

        async def breaks(slot: int, name: str) -> None:
            saving.set()
            await go.wait()
            raise RuntimeError

        async def leave() -> None:
            with pytest.raises(RuntimeError):
                await at.ask(talk(3))

        for number in (1, 2):
            await at.ask(talk(number))
        monkeypatch.setattr(at.engine, "save_slot", breaks)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(leave)
            await saving.wait()
            monkeypatch.undo()
            found: list[int] = []

            async def back() -> None:
                found.append(len(await at.ask([*talk(1), 5])))

            tasks.start_soon(back)
            await anyio.wait_all_tasks_blocked()
            assert found == []
            go.set()
        assert found == [0]
