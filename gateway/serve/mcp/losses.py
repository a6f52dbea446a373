"""What clients lose because they do not read: each notification counted, and one line in the log now and then.

Turns every loss into a count of the metrics, and the losses of a minute into one line, so that a server which floods a
slow client floods no log. It knows no stream. `endpoint.py` stands above, `outbox.py` calls it.
"""

from collections.abc import Callable
from time import monotonic
from typing import Final

from gateway.observe.logs import get_logger

EVERY: Final = 60.0
"""Seconds between two lines."""


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
        """A notification is lost."""
        self._count()
        self._unsaid += 1
        now = self._clock()
        if self._said is None or now - self._said >= EVERY:
            self._log.warning("a client does not read: notifications for it are dropped", dropped=self._unsaid)
            self._said, self._unsaid = now, 0
