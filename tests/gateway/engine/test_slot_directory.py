"""The directory of slot files is nobody else's and within its bounds, and no file is used but as it was written."""

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from gateway.engine.slots import slot_directory as slots
from gateway.engine.slots.slot_directory import FileUnfit, SlotDirectory, SlotFile, slot_directory
from gateway.errors import ConfigError
from tests.gateway.engine.spoilt_files import SPOILT, spoil_folder

ENGINE = "engine"
IDS = [1, 70_000, 3]


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[SlotDirectory]:
    """A directory whose files are kept for the next process."""
    with slot_directory(str(tmp_path / "kept"), 2**20) as directory:
        assert directory is not None
        yield directory


def written(directory: SlotDirectory, data: bytes = b"state " * 1000) -> SlotFile:
    """A file as a server leaves it, and its note."""
    name = directory.new_name()
    (directory.path / name).write_bytes(data)
    directory.close_to_others(name)
    size, digest = directory.measure(name)
    file = SlotFile(name, IDS, "ada", size, digest, len(IDS), shared=True, checkpoints=(1, 2))
    directory.note(file, ENGINE)
    return file


def respell(directory: SlotDirectory, file: SlotFile, **fields: object) -> None:
    path = directory.path / f"{file.name}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def free_bytes(monkeypatch: pytest.MonkeyPatch, of: Callable[[Path], int]) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=of(Path(path)) // 4, f_frsize=4))


def test_file_that_a_server_leaves_open_to_others_is_closed_to_them(tmp_path: Path) -> None:
    with slot_directory(str(tmp_path / "kept"), 2**20) as directory:
        assert directory is not None
        name = directory.new_name()
        written = directory.path / name
        written.write_bytes(b"state")
        written.chmod(0o644)
        directory.close_to_others(name)

        assert directory.measure(name)[0] == 5
        assert written.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("spoilt", SPOILT)
def test_file_is_used_only_while_it_is_what_was_written(kept: SlotDirectory, spoilt: str) -> None:
    file = written(kept, bytes(3 * 2**20))
    kept.check(file)
    spoil, fault = SPOILT[spoilt]
    spoil(kept.path / file.name)

    with pytest.raises(FileUnfit) as raised:
        kept.check(file)
    assert raised.value.fault == fault


@pytest.mark.parametrize("mode", [0o640, 0o620, 0o610, 0o604, 0o602, 0o601])
def test_file_is_not_used_if_others_could_do_anything_with_it(kept: SlotDirectory, mode: int) -> None:
    file = written(kept)
    (kept.path / file.name).chmod(mode)

    with pytest.raises(FileUnfit, match="mode"):
        kept.check(file)


def test_file_of_another_user_is_not_used(kept: SlotDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(kept)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)

    with pytest.raises(FileUnfit, match="owner"):
        kept.check(file)


def test_names_are_random_and_hold_nothing_but_digits(kept: SlotDirectory) -> None:
    names = {kept.new_name() for _ in range(20)}

    assert len(names) == 20
    assert all(re.fullmatch("[0-9a-f]{32}", name) for name in names)


def test_next_process_with_the_same_engine_knows_what_is_in_the_files(kept: SlotDirectory) -> None:
    file = written(kept)
    (found,) = kept.known(ENGINE)

    assert isinstance(found, SlotFile)
    told = ("name", "ids", "owner", "size", "sha256", "held", "shared", "checkpoints")
    assert [getattr(found, name) for name in told] == [getattr(file, name) for name in told]
    assert (found.answer, found.question, found.slot) == ("", 0, None)
    assert {path.stat().st_mode & 0o777 for path in kept.path.iterdir()} == {0o600}


def test_note_of_a_long_conversation_is_read_whole(kept: SlotDirectory) -> None:
    file = written(kept)
    (kept.path / f"{file.name}.json").unlink()
    kept.note(replace(file, ids=[*range(200_000)]), ENGINE)
    (found,) = kept.known(ENGINE)

    assert isinstance(found, SlotFile)
    assert found.ids == [*range(200_000)]


def test_cache_that_can_be_cut_anywhere_has_no_checkpoints_in_its_note(kept: SlotDirectory) -> None:
    respell(kept, written(kept), checkpoints=None)
    (found,) = kept.known(ENGINE)

    assert isinstance(found, SlotFile)
    assert found.checkpoints is None


def test_files_of_another_engine_are_removed_with_their_notes(kept: SlotDirectory) -> None:
    written(kept)

    assert list(kept.known("other")) == ["note"]
    assert list(kept.path.iterdir()) == []
    assert list(kept.known(ENGINE)) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "0" * 32},
        {"owner": None},
        {"size": "9"},
        {"size": True},
        {"held": 1.0},
        {"shared": 1},
        {"sha256": 7},
        {"ids": "AAAA"},
        {"ids": "AQAAAA=="},
        {"ids": "?"},
        {"ids": 7},
        {"ids_sha256": "0" * 64},
        {"checkpoints": 5},
        {"checkpoints": ["5"]},
    ],
    ids=str,
)
def test_note_that_is_not_what_was_written_costs_the_file(kept: SlotDirectory, fields: dict[str, object]) -> None:
    respell(kept, written(kept), **fields)

    assert list(kept.known(ENGINE)) == ["note"]
    assert list(kept.path.iterdir()) == []


@pytest.mark.parametrize("note", [b"", b"[]", b"\xff", b"[" * 100_000], ids=["empty", "list", "no text", "deep"])
def test_note_that_is_no_note_costs_the_file(kept: SlotDirectory, note: bytes) -> None:
    (kept.path / f"{written(kept).name}.json").write_bytes(note)

    assert list(kept.known(ENGINE)) == ["note"]


def test_file_of_another_size_than_its_note_says_is_removed_at_the_start(kept: SlotDirectory) -> None:
    with (kept.path / written(kept).name).open("ab") as file:
        file.write(b"more")

    assert list(kept.known(ENGINE)) == ["size"]
    assert list(kept.path.iterdir()) == []


def test_file_without_a_note_and_note_without_a_file_are_removed(kept: SlotDirectory) -> None:
    (kept.path / f"{written(kept).name}.json").unlink()
    (kept.path / written(kept).name).unlink()

    assert list(kept.known(ENGINE)) == ["gone", "gone"]
    assert list(kept.path.iterdir()) == []


def test_what_somebody_else_has_put_there_is_left_alone(kept: SlotDirectory) -> None:
    (kept.path / "README").write_text("mine")

    assert list(kept.known(ENGINE)) == []
    assert (kept.path / "README").exists()


def test_note_is_not_written_over_what_is_there(kept: SlotDirectory, tmp_path: Path) -> None:
    name = kept.new_name()
    (kept.path / f"{name}.json").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(FileExistsError):
        kept.note(SlotFile(name, IDS, "ada", 1, "", 3), ENGINE)
    assert not (tmp_path / "elsewhere").exists()


def test_files_that_are_not_kept_have_no_note(kept: SlotDirectory) -> None:
    file = written(replace(kept, kept=False))

    assert [path.name for path in kept.path.iterdir()] == [file.name]


def test_ranks_give_up_first_what_a_slot_holds_then_what_saves_least_then_what_was_used_longest_ago() -> None:
    file = SlotFile("", IDS, "ada", 9, "", 3)
    ranked = [
        replace(file, slot=1, density=9.0),
        replace(file, floor=1.0, density=0.25, used=3),
        replace(file, floor=0.5, density=1.0, used=1),
        replace(file, floor=0.5, density=1.0, used=2),
    ]

    mixed = [ranked[place] for place in (3, 1, 2, 0)]

    assert sorted(mixed, key=lambda each: each.rank) == ranked


@pytest.mark.parametrize("limit", [0, -1])
def test_without_bytes_for_files_there_are_none(tmp_path: Path, limit: int) -> None:
    with slot_directory(str(tmp_path / "kept"), limit) as directory:
        assert directory is None
    with slot_directory("off", 2**30) as directory:
        assert directory is None


def test_kept_directory_is_made_for_its_user_alone_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    with slot_directory(str(path), 2**20) as directory:
        assert directory is not None
        assert (directory.path, directory.limit, directory.kept) == (path, 2**20, True)
        assert path.stat().st_mode & 0o777 == 0o700
    assert path.exists()
    # Its lock is gone with it.
    with slot_directory(str(path), 2**20):
        pass


def test_kept_directory_takes_three_quarters_of_what_is_free_and_what_it_has(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "kept"
    path.mkdir(mode=0o700)
    (path / "file").write_bytes(bytes(500))
    free_bytes(monkeypatch, lambda place: 4000)
    limits: list[int] = []
    for wanted in (3000, 3500, 3501, 10_000):
        with slot_directory(str(path), wanted) as directory:
            assert directory is not None
            limits.append(directory.limit)

    assert limits == [3000, 3500, 3500, 3500]


@pytest.mark.parametrize("fault", ["link", "entry", "group", "file", "user"])
def test_directory_that_can_not_be_ours_alone_is_refused(tmp_path: Path, monkeypatch, fault: str) -> None:
    path = tmp_path / "kept"
    spoil_folder(path, fault)
    if fault == "user":
        monkeypatch.setattr(os, "geteuid", lambda: 12345)

    with pytest.raises(ConfigError, match=r"engine\.slot_files '.*kept'"), slot_directory(str(path), 2**20):
        pytest.fail("it is not to be opened")


def test_directory_of_another_gateway_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "kept")
    with (
        slot_directory(path, 2**20),
        pytest.raises(ConfigError, match="is used by another gateway"),
        slot_directory(path, 2**20),
    ):
        pass


def test_without_room_for_files_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, free in ((True, 2**20 * 4 // 3 + 4), (False, 2**20 * 4 // 3 - 4)):
        free_bytes(monkeypatch, lambda place, free=free: free)
        with slot_directory("auto", 2**30) as directory:
            assert (directory is not None) is there


def test_place_whose_room_is_not_known_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_place: Path) -> None:
        raise OSError

    monkeypatch.setattr(os, "statvfs", refuse)
    with slot_directory("auto", 2**30) as directory:
        assert directory is None


def test_own_directory_is_in_memory_if_it_fits_there_else_where_there_is_most_room(tmp_path, monkeypatch) -> None:
    memory, disk = tmp_path / "memory", tmp_path / "disk"
    for place in (memory, disk):
        place.mkdir()
    monkeypatch.setattr(slots, "_MEMORY", memory)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(disk))
    free = {memory: 4_000_000, disk: 8_000_000}
    free_bytes(monkeypatch, lambda place: next(free[each] for each in free if place.is_relative_to(each)))
    found: list[tuple[Path, int]] = []
    for wanted in (3_000_000, 3_000_001, 9_000_000):
        with slot_directory("auto", wanted) as directory:
            assert directory is not None
            found.append((directory.path.parent, directory.limit))
    free[disk] = 2_000_000
    with slot_directory("auto", 9_000_000) as directory:
        assert directory is not None
        found.append((directory.path.parent, directory.limit))

    assert found == [(memory, 3_000_000), (disk, 3_000_001), (disk, 6_000_000), (memory, 3_000_000)]


def test_places_that_can_not_be_written_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    with slot_directory("auto", 2**30) as directory:
        assert directory is None


def test_own_directory_goes_with_all_that_is_in_it_and_nobody_else_may_enter() -> None:
    with slot_directory("auto", 2**20) as directory:
        assert directory is not None
        assert directory.path.stat().st_mode & 0o777 == 0o700
        assert not directory.kept
        (directory.path / "file").write_text("state")
    assert not directory.path.exists()


def test_directory_of_a_gateway_that_was_killed_goes_with_the_next() -> None:
    with ExitStack() as stack:
        directory, another = (stack.enter_context(slot_directory("auto", 2**20)) for _ in range(2))
        assert directory is not None
        assert another is not None
        left = directory.path.parent / "codec-gateway-slots-left"
        left.mkdir(mode=0o700)
        (left / "file").write_text("")
        with slot_directory("auto", 2**20):
            assert not left.exists()
            # Those of gateways that run are locked.
            assert directory.path.exists()
            assert another.path.exists()
