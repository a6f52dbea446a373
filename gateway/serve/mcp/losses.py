"""The notifications that clients lose because they do not read: each one counted, and a line in the log now and then.

Counts every loss in the metrics, and logs the losses of a minute in one line, so that a server that floods a slow
client does not flood the log. It knows no stream.
"""

from collections.abc import Callable
from time import monotonic
from typing import Final

from gateway.observe.logs import get_logger

EVERY: Final = 60.0
"""The least number of seconds between two lines."""


class Losses:
    """The losses of all clients."""

    def __init__(self, count: Callable[[], None], clock: Callable[[], float] = monotonic) -> None:
        """`count` is called for each loss; `clock` gives seconds."""
        self._count = count
        self._clock = clock
        self._log = get_logger("gateway.serve.mcp")
        self._said: float | None = None
        self._unsaid = 0

    def __call__(self) -> None:
        """Count a lost notification."""
        self._count()
        self._unsaid += 1
        now = self._clock()
        if self._said is None or now - self._said >= EVERY:
            self._log.warning("a client is not reading: notifications for it are dropped", dropped=self._unsaid)
            self._said, self._unsaid = now, 0
