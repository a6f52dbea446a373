"""What we log about one server: its standard error, and what it does wrong.

Turns bytes of standard error into one log event for each line, escaped and cut, and passes on our own warnings. Both
together are limited to some lines a second, and the rest is only counted, so that no server can fill the disk. It
knows no process and no message.
"""

from collections.abc import Callable
from time import monotonic
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from gateway.observe.escape import escape_text
from gateway.protocol.lines import LineSplitter, LongLine

LINES: Final = 200
"""Lines that are logged in a second, at most."""
_SECOND: Final = 1.0
_LENGTH: Final = 4096


class ServerLog:
    """The bounded log of one server."""

    def __init__(self, log: FilteringBoundLogger, clock: Callable[[], float] = monotonic) -> None:
        """`clock` returns seconds."""
        self._log = log
        self._clock = clock
        self._splitter = LineSplitter(_LENGTH)
        self._since = clock()
        self._said = 0

    def stderr(self, data: bytes) -> None:
        """Log the lines of standard error that `data` completes."""
        for line in self._splitter.feed(data):
            self._say(line)

    def warning(self, event: str, **fields: Any) -> None:
        """Log what the server did wrong; the server's words in the fields must be escaped already."""
        if self._may():
            self._log.warning(event, **fields)

    def close(self) -> None:
        """Log what is left."""
        for line in self._splitter.close():
            self._say(line)
        self._begin_second()

    def _say(self, line: bytes | LongLine) -> None:
        data = line.head if isinstance(line, LongLine) else line
        text = data.decode("utf-8", "backslashreplace").strip()
        if text and self._may():
            self._log.info("upstream stderr", line=escape_text(text, _LENGTH))

    def _may(self) -> bool:
        if self._clock() - self._since >= _SECOND:
            self._begin_second()
        self._said += 1
        return self._said <= LINES

    def _begin_second(self) -> None:
        if self._said > LINES:
            self._log.warning(
                "upstream caused too many log lines; some were dropped", lines_left_out=self._said - LINES
            )
        self._since, self._said = self._clock(), 0
