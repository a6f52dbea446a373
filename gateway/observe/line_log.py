"""A file that gets one JSON line for each thing that happened, written outside the event loop.

Turns records into lines of a file. The event loop only puts them into a bounded queue; a thread makes the text and
writes it, a batch at a time. Records that do not fit, or can't be written, are counted, and noted in the file itself as
soon as it can be written again. What a line says is up to the user: `audit.py` or `trajectories.py`.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

from gateway.errors import ConfigError
from gateway.observe.json_line import ascii_json, stamp
from gateway.observe.line_file import LineFile
from gateway.observe.logs import get_logger

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
        self._weight_in = self._weight_out = 0
        self._dropped = self._dropped_told = 0
        self._awake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=kind.setting.partition(".")[0], daemon=True)
        self._file: LineFile
        self._lost: dict[str, int] = {}
        """Lost lines that the file does not mention yet, by reason."""
        self._failing = False

    def __enter__(self) -> Self:
        """Open the file and start the thread.

        Raises:
            ConfigError: the file can't be written.
        """
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
