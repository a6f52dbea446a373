"""A file of whole lines, whatever happens to it, and the thread that writes it."""

import errno
import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from gateway.observe.audit import Audit, AuditLine
from gateway.observe.line_log import LineFile
from gateway.observe.metrics import Metrics


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes the next writes take together, before there is no space left."""
    left, write = [0], os.write

    def limited(file: int, data: bytes) -> int:
        fits = bytes(data[: left[0]])
        if not fits:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left[0] -= len(fits)
        return write(file, fits)

    monkeypatch.setattr(os, "write", limited)
    return left


def append(file: LineFile, *lines: str) -> tuple[int, bool]:
    """How many lines are in the file, and whether that is all of them."""
    written, error = file.append(lines)
    return written, error is None


def refuse(*_: object) -> None:
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))


def open_in(folder: Path) -> list[str]:
    """The files there that this process has open, by the names that they had when they were opened or have now."""
    found: list[str] = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.append(str(each.readlink()))
    return sorted(Path(each).name for each in found if each.startswith(f"{folder}/"))


def test_line_that_broke_off_in_a_pipe_is_ended_before_the_next_one(tmp_path: Path, room: list[int]) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    file = LineFile(path)
    written: list[tuple[int, bool]] = []
    for space, lines in ((2, ["one", "two"]), (0, ["lost"]), (9, ["three", "four"]), (1, ["lost"]), (99, ["five"])):
        room[0] = space
        written.append(append(file, *lines))
    file.close()

    assert written == [(0, False), (0, False), (1, False), (0, False), (1, True)]
    assert os.read(reader, 99) == b"on\nthree\nfo\nfive\n"
    os.close(reader)


@pytest.mark.parametrize("how", ["can't be cut", "was cut by others"])
def test_part_of_a_line_that_stays_is_ended_before_the_next_one(
    tmp_path: Path, room: list[int], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    path = tmp_path / "lines"
    file = LineFile(path)
    room[0] = 99
    file.append(["one"])
    room[0] = 2
    with monkeypatch.context() as patch:
        if how == "can't be cut":
            patch.setattr(os, "ftruncate", refuse)
        else:
            real = os.fstat

            def cut(number: int) -> os.stat_result:
                if path.read_bytes() == b"one\ntw":
                    path.write_bytes(b"o")
                return real(number)

            patch.setattr(os, "fstat", cut)
        assert append(file, "two") == (0, False)
    room[0] = 99
    assert [append(file, "three"), append(file, "four")] == [(1, True), (1, True)]
    file.close()

    kept = "one\ntw" if how == "can't be cut" else "o"
    assert path.read_text() == f"{kept}\nthree\nfour\n"


def test_new_file_in_the_place_of_one_that_broke_off_begins_with_a_line(
    tmp_path: Path, room: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lines"
    file = LineFile(path)
    room[0] = 2
    monkeypatch.setattr(os, "ftruncate", refuse)
    file.append(["one"])
    path.rename(tmp_path / "old")
    room[0] = 99
    file.append(["two"])

    assert open_in(tmp_path) == ["lines"]
    assert path.read_text() == "two\n"
    file.close()
    assert open_in(tmp_path) == []


def test_log_without_a_line_ends_at_once_and_leaves_nothing_open(tmp_path: Path) -> None:
    others = threading.enumerate()
    with Audit(tmp_path / "a", Metrics().access):
        (writer,) = [each for each in threading.enumerate() if each not in others]
        assert open_in(tmp_path) == ["a"]
        # A disk that hangs does not keep the process from ending.
        assert writer.daemon

    assert not writer.is_alive()
    assert open_in(tmp_path) == []


def test_file_that_fails_again_is_said_again(
    tmp_path: Path, room: list[int], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.observe.line_log._RETRY_SECONDS", 0.01)
    caplog.set_level("INFO")
    with Audit(tmp_path / "a", Metrics().access) as audit:
        for space, words in ((0, "can't be written"), (9999, "can be written again")) * 2:
            said = len(caplog.records)
            room[0] = space
            audit.record(AuditLine("a", "v1", "m", "ok"))
            while len(caplog.records) == said:
                pass
            assert words in caplog.records[-1].getMessage()
