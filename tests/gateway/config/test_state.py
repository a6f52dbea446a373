"""Files that only their owner reads: written whole or not at all."""

import os
from pathlib import Path

import pytest

from gateway.config.state import replace_file, replace_private, state_folder
from gateway.errors import ConfigError


def test_state_is_in_the_user_s_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    assert state_folder() == tmp_path / "codec-gateway"


@pytest.mark.parametrize("before", [None, b"old and longer"])
def test_file_is_replaced_as_a_whole_and_only_its_owner_reads_it(tmp_path: Path, before: bytes | None) -> None:
    path = tmp_path / "token"
    if before is not None:
        path.write_bytes(before)
        path.chmod(0o644)
    replace_private(path, b"new")

    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o600)
    assert list(tmp_path.iterdir()) == [path]


def test_private_file_is_on_the_disk_before_it_takes_the_place_of_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced = tmp_path / "token", list[tuple[int, bool]]()
    monkeypatch.setattr(os, "fsync", lambda number: synced.append((os.fstat(number).st_size, path.exists())))

    replace_private(path, b"secret")
    assert synced == [(6, False)]
    replace_file(path, b"state")
    assert len(synced) == 1


def test_file_that_can_not_be_written_is_named_and_leaves_no_draft(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    for path in (tmp_path / "no" / "folder", tmp_path / "taken"):
        with pytest.raises(ConfigError, match=rf"{path}: can't be written \(.+\): check its folder"):
            replace_private(path, b"secret")

    assert [each.name for each in tmp_path.iterdir()] == ["taken"]
