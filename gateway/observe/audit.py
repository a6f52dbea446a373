"""The audit log: who called what, one JSON line a call.

Turns what an endpoint says of a call into a line of a file. The event loop only puts it into a bounded queue; a thread
makes the text, masks what is secret, and writes, a batch at a time. What does not fit, or can't be written, is counted,
and noted in the file itself as soon as that can be written. It knows no endpoint and no server.
"""

import threading
from collections import deque
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from gateway.errors import ConfigError
from gateway.observe.access_metrics import AccessMetrics
from gateway.observe.audit_line import AuditLine, LineWriter
from gateway.observe.line_file import LineFile
from gateway.observe.logs import get_logger

QUEUE_BOUND: Final = 10_000
"""Lines that may wait to be written."""
ARGUMENTS_BOUND: Final = 64 * 1024 * 1024
"""Bytes of requests whose arguments may wait with them."""
BATCH_SECONDS: Final = 0.05
_STOP_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 1.0
"""Between two tries to note in the file what it lacks, while no call comes."""

log = get_logger("observe")


class Audit:
    """One audit log. Inside the context its thread runs; what was recorded is written before it ends."""

    def __init__(
        self, path: Path, metrics: AccessMetrics, *, arguments: bool = False, secrets: Iterable[str] = ()
    ) -> None:
        """`secrets`: values that must stand in no line, wherever they come from."""
        self._path = path
        self._metrics = metrics
        self._arguments = arguments
        self._lines = LineWriter(arguments=arguments, secrets=frozenset(secrets))
        self._waiting: deque[tuple[datetime, AuditLine]] = deque()
        # Each number is written by one thread only, so none needs a lock.
        self._weight_in = self._weight_out = 0
        self._dropped = self._dropped_told = 0
        self._awake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._file: LineFile
        self._lost: dict[str, int] = {}
        """Lines of which the file does not say yet that they are not in it, by the reason."""
        self._failing = False

    def __enter__(self) -> Self:
        """Open the file and start the thread.

        Raises:
            ConfigError: the file can't be written.
        """
        try:
            self._file = LineFile(self._path)
        except OSError as error:
            raise ConfigError(f"audit.path: {str(self._path)!r} can't be written ({error.strerror})") from None
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

    def record(self, line: AuditLine) -> None:
        """Note one call. Never blocks and never raises; about 2 µs."""
        heavy = self._weight(line)
        if len(self._waiting) >= QUEUE_BOUND or self._weight_in - self._weight_out + heavy > ARGUMENTS_BOUND:
            self._dropped += 1
            return
        self._weight_in += heavy
        self._waiting.append((datetime.now(UTC), line))
        if not self._awake.is_set():
            self._awake.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._awake.wait(_RETRY_SECONDS if self._lost else None)
            # A moment for others to join: a thread that is woken for every line costs the loop more than the line does.
            self._stop.wait(BATCH_SECONDS)
            self._awake.clear()
            self._write_waiting()
        self._write_waiting()

    def _weight(self, line: AuditLine) -> int:
        return line.bytes_in if self._arguments and line.arguments is not None else 0

    def _write_waiting(self) -> None:
        lines: list[str] = []
        for _ in range(len(self._waiting)):
            when, line = self._waiting.popleft()
            lines.append(self._lines.render(when, line))
            self._weight_out += self._weight(line)
        dropped = self._dropped - self._dropped_told
        self._dropped_told += dropped
        self._lose(dropped, "the calls came too fast")
        if lines or self._lost:
            self._write(lines)

    def _write(self, lines: list[str]) -> None:
        """Write the lines behind notes of those that were lost before."""
        now = datetime.now(UTC)
        notes = [self._lines.note(now, dropped=count, reason=reason) for reason, count in self._lost.items()]
        written, error = self._file.append([*notes, *lines])
        for reason in list(self._lost)[:written]:
            del self._lost[reason]
        if error is None:
            if self._failing:
                log.info("the audit log is written again", path=str(self._path))
            self._failing = False
            return
        missing = len(lines) - max(0, written - len(notes))
        self._lose(missing, f"the file could not be written: {error.strerror}")
        # Once, and not for every batch: the log may stand on the same disk.
        if not self._failing:
            log.error("the audit log can't be written", path=str(self._path), reason=str(error), lines=missing)
        self._failing = True

    def _lose(self, count: int, reason: str) -> None:
        if count:
            self._metrics.audit_dropped(count)
            self._lost[reason] = self._lost.get(reason, 0) + count
