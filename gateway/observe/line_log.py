"""A file that gets one JSON line for each thing that happened, written outside the event loop.

Turns records into lines of a file. The event loop only puts them into a bounded queue; a thread makes the text and
writes it, a batch at a time. Records that do not fit, or can't be written, are counted, and noted in the file itself as
soon as it can be written again. What a line says is up to the user: `audit.py` or `trajectories.py`.
"""

import json
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from stat import S_ISREG
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from pydantic_core import to_json

from gateway.errors import ConfigError
from gateway.observe.logs import get_logger


def stamp(when: datetime) -> str:
    """A time in UTC as lines show it."""
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ascii_json(fields: Mapping[str, Any]) -> str:
    """JSON in printable ASCII: no caller can bring a line end, control character or direction mark into the file."""
    try:
        data = to_json(fields)
    except ValueError:
        # Half a surrogate pair, which only the slower writer accepts.
        data = b"\x7f"
    if data.isascii() and b"\x7f" not in data:
        return data.decode("ascii")
    return json.dumps(fields).replace("\x7f", "\\u007f")


# If a write breaks off, the part of a line that could not be finished is removed. The file is reopened when its name
# leads to another one (logrotate).


class LineFile:
    """One file, opened for appending."""

    def __init__(self, path: Path) -> None:
        """Open it, or create it for its owner alone. Raises OSError."""
        self._path = path
        self._file = _open(path)
        self._torn = False
        """Whether it ends in the middle of a line."""

    def close(self) -> None:
        """Close it."""
        os.close(self._file)

    def append(self, lines: Sequence[str]) -> tuple[int, OSError | None]:
        """Append lines of ASCII, given without their ends; returns how many are in the file, and why not all are."""
        written = 0
        data = b""
        try:
            self._follow()
            data = "\n".join(["", *lines, ""] if self._torn else [*lines, ""]).encode("ascii")
            while written < len(data):
                written += os.write(self._file, data[written:] if written else data)
        except OSError as error:
            whole = data.rfind(b"\n", 0, written) + 1
            finished = data[:whole].count(b"\n") - (self._torn and whole > 0)
            # What was torn before is ended by the first line end that got through.
            self._torn = (self._torn and not whole) or not self._cut(written - whole)
            return finished, error
        self._torn = False
        return len(lines), None

    def _cut(self, size: int) -> bool:
        """Remove the part of a line at the end. False: that is not possible, and the next write has to end the line."""
        if not size:
            return True
        try:
            held = os.fstat(self._file)
            if not S_ISREG(held.st_mode) or held.st_size < size:
                return False
            os.ftruncate(self._file, held.st_size - size)
        except OSError:
            return False
        return True

    def _follow(self) -> None:
        """Reopen the file if its name leads to another one now, or to none: the old one was moved away."""
        held = os.fstat(self._file)
        try:
            there = self._path.stat()
        except FileNotFoundError:
            there = None
        if there is None or (there.st_dev, there.st_ino) != (held.st_dev, held.st_ino):
            fresh = _open(self._path)
            os.close(self._file)
            self._file = fresh
            self._torn = False


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


QUEUE_BOUND: Final = 10_000
"""Lines that may wait to be written."""
WEIGHT_BOUND: Final = 64 * 1024 * 1024
"""Bytes that the waiting lines may keep alive."""
BATCH_SECONDS: Final = 0.05
_STOP_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 1.0
"""Between two attempts to note in the file what is missing from it, while no new line comes."""

log = get_logger("observe")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LineKind(Generic[T]):
    """What kind of lines a file has."""

    words: str
    """What the log calls the file."""
    setting: str
    """Where its path was set."""
    render: Callable[[datetime, T], str]
    """Returns the text of a line, in ASCII and without its end."""
    weigh: Callable[[T], int]
    """Returns how many bytes a record keeps alive while it waits."""
    dropped: Callable[[int], None]
    """Counts lines that are lost."""
    too_fast: str
    """The reason for lines that were lost because there were too many."""


class LineLog(Generic[T]):
    """One file. Its thread runs inside the context; what was recorded is written before the context ends."""

    def __init__(self, path: Path, kind: LineKind[T]) -> None:
        self._path = path
        self._kind = kind
        self._waiting: deque[tuple[datetime, T]] = deque()
        # Each number is written by one thread only, so none needs a lock.
        self._weight_in, self._weight_out = 0, 0
        self._dropped, self._dropped_told = 0, 0
        self._awake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=kind.setting.partition(".")[0], daemon=True)
        self._file: LineFile
        self._lost: dict[str, int] = {}
        """Lost lines that the file does not mention yet, by reason."""
        self._failing = False

    def __enter__(self) -> Self:
        """Open the file and start the thread. Raises `ConfigError`: the file can't be written."""
        try:
            self._file = LineFile(self._path)
        except OSError as error:
            where = f"{self._kind.setting}: {str(self._path)!r}"
            raise ConfigError(f"{where} can't be written ({error.strerror})") from None
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write what waits, and close."""
        self._stop.set()
        self._awake.set()
        # A disk that hangs must not keep the gateway from ending.
        self._thread.join(_STOP_SECONDS)
        if not self._thread.is_alive():
            self._file.close()

    def record(self, line: T) -> None:
        """Record one thing. Never blocks and never raises; takes about 2 µs."""
        heavy = self._kind.weigh(line)
        if len(self._waiting) >= QUEUE_BOUND or self._weight_in - self._weight_out + heavy > WEIGHT_BOUND:
            self._dropped += 1
            return
        self._weight_in += heavy
        self._waiting.append((datetime.now(UTC), line))
        if not self._awake.is_set():
            self._awake.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._awake.wait(_RETRY_SECONDS if self._lost else None)
            # Wait a moment for more lines: waking a thread for every line costs the loop more than the line itself.
            self._stop.wait(BATCH_SECONDS)
            self._awake.clear()
            self._write_waiting()
        self._write_waiting()

    def _write_waiting(self) -> None:
        lines: list[str] = []
        for _ in range(len(self._waiting)):
            when, line = self._waiting.popleft()
            lines.append(self._kind.render(when, line))
            self._weight_out += self._kind.weigh(line)
        dropped = self._dropped - self._dropped_told
        self._dropped_told += dropped
        self._lose(dropped, self._kind.too_fast)
        if lines or self._lost:
            self._write(lines)

    def _write(self, lines: list[str]) -> None:
        """Write notes about lines that were lost before, and then these lines."""
        now = stamp(datetime.now(UTC))
        notes = [ascii_json({"time": now, "dropped": count, "reason": reason}) for reason, count in self._lost.items()]
        written, error = self._file.append([*notes, *lines])
        for reason in list(self._lost)[:written]:
            del self._lost[reason]
        if error is None:
            if self._failing:
                log.info(f"{self._kind.words} can be written again", path=str(self._path))
            self._failing = False
            return
        missing = len(lines) - max(0, written - len(notes))
        self._lose(missing, f"the file could not be written: {error.strerror}")
        # Once, and not for every batch: the log may be on the same disk.
        if not self._failing:
            log.error(f"{self._kind.words} can't be written", path=str(self._path), reason=str(error), lines=missing)
        self._failing = True

    def _lose(self, count: int, reason: str) -> None:
        if count:
            self._kind.dropped(count)
            self._lost[reason] = self._lost.get(reason, 0) + count
