"""The audit log: who called what, one JSON line a call.

Turns what a face says of a call into a line of a file. The event loop only puts it into a bounded queue; a thread makes
the text, masks what is secret, and writes, a batch at a time. What does not fit, or can't be written, is counted and
noted in the file itself. The file is opened anew when its name leads to another one (logrotate), so no signal is
needed. It knows no face and no server. `audit_line.py` below; `serve` and `agent` above.
"""

import os
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
from gateway.observe.logs import get_logger

QUEUE_BOUND: Final = 10_000
"""Lines that may wait to be written."""
ARGUMENTS_BOUND: Final = 64 * 1024 * 1024
"""Bytes of requests whose arguments may wait with them."""
BATCH_SECONDS: Final = 0.05
_STOP_SECONDS: Final = 5.0

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
        self._file = -1
        self._torn = False

    def __enter__(self) -> Self:
        """Open the file and start the thread.

        Raises:
            ConfigError: the file can't be written.
        """
        try:
            self._file = _open(self._path)
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
            os.close(self._file)

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
            self._awake.wait()
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
        if dropped:
            self._dropped_told += dropped
            self._metrics.audit_dropped(dropped)
            lines.append(self._lines.note(datetime.now(UTC), dropped=dropped, reason="the calls came too fast"))
        if lines:
            self._write(lines)

    def _write(self, lines: list[str]) -> None:
        text = "\n".join(lines) + "\n"
        try:
            self._follow()
            # After a write that broke off, the next line must not begin in the middle of an old one.
            rest = memoryview((f"\n{text}" if self._torn else text).encode("ascii"))
            self._torn = True
            while rest:
                rest = rest[os.write(self._file, rest) :]
            self._torn = False
        except OSError as error:
            self._metrics.audit_dropped(len(lines))
            log.error("the audit log can't be written", path=str(self._path), reason=str(error), lines=len(lines))

    def _follow(self) -> None:
        """Open the file anew if another stands there now, or none: the old one was moved away."""
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
