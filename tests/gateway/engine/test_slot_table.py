"""The slots of an engine that has come up: which are ours, where their caches can be cut, and whether files fit."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from gateway.config import EngineConfig, GatewayConfig
from gateway.engine.interface import Capabilities, EngineFacts, Filled, Moved, Rewind
from gateway.engine.slots.engine_slots import SlotFiles, find_rewind, open_slot_files, own_part, slot_table
from gateway.engine.slots.engine_speed import Rates
from gateway.engine.slots.slot_directory import SlotDirectory, slot_directory
from gateway.errors import ConfigError, EngineRefused, EngineUnavailable
from gateway.observe.metrics import Metrics

pytestmark = pytest.mark.anyio

SAVED = Moved(12, 5, 0.1)
FACTS = EngineFacts("model", None, "", False, 100, 4096, 2, (), start_marker="started-1")
TOKENS = [11, 11, 12, 13]
URL = {"kind": "url", "url": "http://e"}


@dataclass
class Keeper:
    """An engine that says what a test wants; notes what it is asked."""

    processes: list[int] = field(default_factory=lambda: [12, 3, 1, 12, 1])
    """Ids that each request to fill a slot processes."""
    shows: bool = True
    busy: set[int] = field(default_factory=set[int])
    path: Path | None = None
    restores: Moved = SAVED
    refuses: str = ""
    asked: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])

    async def shows_slots(self) -> bool:
        return self.shows

    async def is_at_rest(self, slot: int) -> bool:
        self.asked.append(("look", slot))
        return slot not in self.busy

    def _note(self, what: str, slot: int, *more: Any) -> None:
        self.asked.append((what, slot, *more))
        if self.refuses == what:
            raise EngineRefused(f"the engine answered 501: no {what}", 501)

    async def fill_slot(self, slot: int, ids: Sequence[int]) -> Filled:
        self._note("fill", slot, [*ids])
        return Filled(self.processes[sum(each[0] == "fill" for each in self.asked) - 1], 0.1)

    async def save_slot(self, slot: int, name: str) -> Moved:
        self._note("save", slot)
        if self.path is not None:
            (self.path / name).write_bytes(b"state")
        return SAVED

    async def restore_slot(self, slot: int, name: str) -> Moved:
        self._note("restore", slot)
        return self.restores

    async def erase_slot(self, slot: int) -> None:
        self._note("erase", slot)

    def did(self) -> list[str]:
        return [f"{each[0]} {each[1]}" for each in self.asked]


@pytest.fixture
def files(tmp_path: Path) -> Iterator[SlotDirectory]:
    with slot_directory(str(tmp_path / "kept"), 2**20) as directory:
        assert directory is not None
        yield directory


async def probed(keeper: Keeper, directory: SlotDirectory | None = None) -> tuple[str, str | None]:
    found = await find_rewind(keeper, range(2), TOKENS, directory)
    return found.rewind, found.fault


@pytest.mark.parametrize(
    ("grown", "cut", "rewind"),
    [
        (3, 1, "anywhere"),
        (15, 0, "anywhere"),
        (3, 2, "checkpoints"),
        (2, 6, "checkpoints"),
        (4, 2, "window"),
        (15, 6, "window"),
    ],
)
async def test_cache_s_kind_is_told_by_what_is_processed_again(grown: int, cut: int, rewind: Rewind) -> None:
    keeper = Keeper([12, grown, cut])

    assert await probed(keeper) == (rewind, None)
    held = (TOKENS * 3)[:12]
    assert [each[2] for each in keeper.asked if each[0] == "fill"] == [held, [*held, 13, 12, 11], [*held[:5], 12]]
    assert keeper.did() == ["look 0", "fill 0", "fill 0", "fill 0", "erase 0"]


async def test_slot_that_restores_all_can_be_kept_in_files(files: SlotDirectory) -> None:
    keeper = Keeper(path=files.path)

    assert await probed(keeper, files) == ("anywhere", None)
    assert keeper.did() == ["look 0", *["fill 0"] * 4, "save 0", "erase 0", "restore 0", "fill 0", "erase 0"]
    held = (TOKENS * 3)[:12]
    # Its last token is another.
    assert [each[2] for each in keeper.asked if each[0] == "fill"][3:] == [held, [*held[:-1], 11]]
    assert list(files.path.iterdir()) == []


@pytest.mark.parametrize(
    ("keeper", "fault"),
    [
        (Keeper(restores=Moved(11, 5, 0.1)), "of 12 saved tokens in 5 bytes it restores 11 in 5"),
        (Keeper(restores=Moved(12, 4, 0.1)), "of 12 saved tokens in 5 bytes it restores 12 in 4"),
        (Keeper([12, 3, 1, 12, 8]), "after it has restored a slot of 12 tokens, it processes 8 of them again"),
        (Keeper([12, 3, 1, 12, 7]), None),
        (Keeper(refuses="save"), "the engine answered 501: no save"),
        (Keeper(refuses="restore"), "the engine answered 501: no restore"),
    ],
)
async def test_slot_that_loses_something_is_not_kept_in_files(
    files: SlotDirectory, keeper: Keeper, fault: str | None
) -> None:
    keeper = replace(keeper, path=files.path, asked=[])

    assert await probed(keeper, files) == ("anywhere", fault)
    assert keeper.did()[-1] == "erase 0"
    assert list(files.path.iterdir()) == []


async def test_file_that_the_engine_saves_elsewhere_is_none(files: SlotDirectory) -> None:
    rewind, fault = await probed(Keeper(), files)

    assert (rewind, fault) == ("anywhere", "the file of a slot that the engine reports as saved can't be used (gone)")


@pytest.mark.parametrize("refuses", ["fill", "erase"])
async def test_engine_that_refuses_the_probe_counts_as_one_that_can_be_cut(refuses: str, caplog) -> None:
    caplog.set_level(logging.INFO)
    keeper = Keeper([12, 15, 6], refuses=refuses)

    assert await probed(keeper) == ("anywhere" if refuses == "fill" else "window", None)
    assert ("it was not found out where the engine's cache can be cut" in caplog.text) is (refuses == "fill")
    assert keeper.did()[-1] == "erase 0"


async def test_slot_that_comes_to_rest_in_five_seconds_is_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    keeper, pauses = Keeper(busy={0, 1}), list[float]()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == rests_after:
            keeper.busy.discard(1)

    monkeypatch.setattr("gateway.engine.slots.engine_slots.anyio.sleep", sleep)
    rests_after = 19
    assert await probed(keeper) == ("anywhere", None)
    assert "fill 1" in keeper.did()
    assert sum(pauses) == 19 * 0.25
    keeper, rests_after = Keeper(busy={0, 1}), 0
    pauses.clear()
    assert await probed(keeper) == ("anywhere", "none of the engine's slots was at rest when it was to be tried")
    assert {*keeper.did()} == {"look 0", "look 1"}


def test_part_of_a_server_s_slots_is_this_gateway_s() -> None:
    keeper = Keeper()

    assert own_part(FACTS, keeper, None) is own_part(FACTS, None, range(5, 9)) is FACTS
    assert own_part(FACTS, keeper, range(1, 2)).slots == 1
    assert own_part(FACTS, keeper, range(2)).slots == 2
    with pytest.raises(EngineUnavailable, match="is 1-2, but the server's slots are 0-1: name slots that it has"):
        own_part(FACTS, keeper, range(1, 3))


async def table_of(keeper: Keeper | None, facts: EngineFacts = FACTS, files: SlotFiles | None = None, **engine: Any):
    config = GatewayConfig(engine=EngineConfig(**engine))
    async with anyio.create_task_group() as tasks:
        return await slot_table(keeper, facts, TOKENS, config, files, tasks)


@pytest.mark.parametrize(
    ("engine", "ours"),
    [
        ({"kind": "embedded"}, True),
        ({**URL, "exclusive": True}, True),
        ({**URL, "own_slots": "1-2"}, True),
        (URL, False),
    ],
)
async def test_slots_are_chosen_here_where_nobody_else_uses_them(engine: dict[str, Any], *, ours: bool, caplog) -> None:
    keeper = Keeper([12, 3, 6])
    table = await table_of(keeper, **engine)

    assert table.chooses is ours
    assert table.rewind == ("checkpoints" if ours else "anywhere")
    assert table.swapper is None
    first = 1 if "own_slots" in engine else 0
    assert keeper.did()[:1] == [f"look {first}"] * ours
    async with table.take([1], "ada") as one, table.take([2], "eve") as two:
        assert [one.pinned, two.pinned] == ([first, first + 1] if ours else [None, None])
        assert table.is_idle is False
    assert caplog.text == ""
    assert (await table_of(None, **engine)).chooses is False


async def test_engine_that_hides_its_slots_is_warned_of(caplog) -> None:
    assert not (await table_of(Keeper(shows=False), kind="embedded")).chooses
    assert "start it with --slots" in caplog.text


@pytest.mark.parametrize(("salts", "isolate"), [(True, True), (True, False), (False, True)])
async def test_principals_are_kept_apart_by_salts_where_the_engine_has_them(*, salts: bool, isolate: bool) -> None:
    facts = replace(FACTS, can=Capabilities(salts=salts))
    table = await table_of(None, facts, **URL, isolate=isolate, api_key="key")
    given: list[str | None] = []
    for owner in ("ada", "eve", "ada"):
        async with table.take([1], owner) as place:
            given.append(place.salt)
            assert place.own == (1 if salts and isolate else 0)

    if salts and isolate:
        assert given[0] == given[2] != given[1]
        assert None not in given
    else:
        assert given == [None] * 3


async def test_slots_of_an_engine_that_restores_nothing_are_not_kept_in_files(files: SlotDirectory, caplog) -> None:
    with opened(files, kind="embedded") as slot_files:
        table = await table_of(Keeper([12, 3, 1, 12, 12], path=files.path), files=slot_files, kind="embedded")

    assert (table.chooses, table.swapper) == (True, None)
    assert "the KV caches of idle conversations are not kept in files" in caplog.text


def opened(files: SlotDirectory, model: Path | None = None, **engine: Any) -> Any:
    settings = EngineConfig(slot_files=str(files.path.parent / "files"), model=model, **engine)
    return open_slot_files(settings, Rates(), 1.0, Metrics().slot_files)


async def test_slots_are_kept_in_files_once_it_is_known_which_engine_it_is(files, tmp_path, caplog) -> None:
    caplog.set_level(logging.INFO)
    model = tmp_path / "m.gguf"
    model.write_bytes(b"weights")
    with opened(files, model, kind="embedded", slot_files_bytes=3 * 2**29) as slot_files:
        keeper = Keeper([12, 15, 6, 12, 1], path=slot_files.directory.path)
        table = await table_of(keeper, files=slot_files, kind="embedded")

        assert table.swapper is not None
        assert table.swapper.adopted.is_set()
        assert (table.swapper.rewind, table.rewind) == ("window", "window")
        assert slot_files.model == model
    (line,) = [str(record.msg) for record in caplog.records]
    assert f"'path': '{files.path.parent / 'files'}', 'size': 'up to 1.5 GiB (engine.slot_files_bytes)'" in line


async def test_files_last_as_long_as_somebody_else_s_server_runs(files: SlotDirectory, caplog) -> None:
    known: list[bool] = []
    with opened(files, **URL) as slot_files:
        assert slot_files.model is None
        for marker in ("one", "two", "one", None):
            swapper = slot_files.swapper(Keeper(), "anywhere")
            before = slot_files.paging.fit
            fits: list[bool] = []
            slot_files.paging.fit = lambda engine, before=before, fits=fits: fits.append(before(engine)) or fits[-1]
            await slot_files.adopt(swapper, replace(FACTS, start_marker=marker))
            slot_files.paging.fit = before
            known += fits
            assert swapper.adopted.is_set() is (marker is not None)
    assert known == [False] * 3
    assert "does not report whether it has been restarted" in caplog.text


async def test_model_that_can_not_be_read_again_keeps_no_files(files: SlotDirectory, tmp_path: Path, caplog) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"weights")
    with opened(files, model, kind="embedded") as slot_files:
        model.unlink()
        swapper = slot_files.swapper(Keeper(), "anywhere")
        await slot_files.adopt(swapper, FACTS)

        assert not swapper.adopted.is_set()
    assert "it is not known which of them fit the engine" in caplog.text


@pytest.mark.parametrize(
    ("engine", "there"),
    [
        ({"kind": "embedded", "slot_files": "off"}, False),
        ({"kind": "embedded", "slot_files": "auto"}, True),
        ({**URL, "slot_files": "auto"}, False),
        ({**URL, "slot_files": "off"}, False),
        ({"kind": "embedded", "slot_files": "auto", "slot_files_bytes": 0}, False),
    ],
)
def test_only_an_engine_of_ours_has_files_unless_a_directory_is_named(engine: dict[str, Any], *, there: bool) -> None:
    settings = EngineConfig(**{"slot_files_bytes": 2**20, **engine})
    with open_slot_files(settings, Rates(), 0.5, Metrics().slot_files) as files:
        assert (files is not None) is there
        if files is not None:
            assert files.directory.limit == files.paging.kept.limit == 2**20


def test_directory_that_can_not_be_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    settings = EngineConfig(kind="url", url="http://e", slot_files=str(tmp_path / "file"))
    with pytest.raises(ConfigError), open_slot_files(settings, Rates(), 1.0, Metrics().slot_files):
        pass
