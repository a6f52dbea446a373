"""The metrics about the connections of clients.

Turns connections that were refused or ended into series by reason. How many are open is read when the page is
requested.
"""

from collections.abc import Callable
from typing import Final, Literal, get_args

from prometheus_client import Counter, Gauge

EndReason = Literal[
    "total",
    "address",
    "descriptors",
    "head_size",
    "head_time",
    "malformed",
    "body_time",
    "idle",
    "write_time",
]
END_REASONS: Final[tuple[EndReason, ...]] = get_args(EndReason)


class ConnectionMetrics:
    """What is counted about the connections of clients."""

    def __init__(self, counter: Callable[..., Counter], gauge: Callable[..., Gauge]) -> None:
        """Create every series, so that each is there from the start."""
        self._open = gauge("codec_connections", "Open connections of clients.")
        self._ended = counter(
            "codec_connections_ended", "Connections of clients that the gateway refused or ended, by reason.", "reason"
        )
        for reason in END_REASONS:
            self._ended.labels(reason)

    def follow(self, count: Callable[[], int]) -> None:
        """Show what `count` returns as the number of open connections."""
        self._open.set_function(count)

    def ended(self, reason: EndReason) -> None:
        """The gateway refused or ended a connection."""
        self._ended.labels(reason).inc()
