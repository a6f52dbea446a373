"""The metrics of the store that replicas share: whether it answers, and what became of each question.

Labels are words of fixed lists.
"""

from collections.abc import Callable
from typing import Final, Literal

from prometheus_client import Counter, Gauge

SharedResult = Literal["ok", "nothing", "away", "late", "lost", "refused", "unreadable", "dropped"]
SHARED_KINDS: Final = ("limit", "response", "memory", "event")
SHARED_RESULTS: Final = ("ok", "nothing", "away", "late", "lost", "refused", "unreadable", "dropped")


class SharedMetrics:
    """What is counted of the shared store."""

    def __init__(self, counter: Callable[..., Counter], gauge: Callable[..., Gauge]) -> None:
        self._up = gauge(
            "codec_shared_up", "Whether the shared store answers (1) or not (0); 1 where none is configured."
        )
        self._up.set(1)
        self._operations = counter(
            "codec_shared_operations",
            "Questions to the shared store, by what they were about and what came of them.",
            "kind",
            "result",
        )
        self._series = {
            (kind, result): self._operations.labels(kind, result) for kind in SHARED_KINDS for result in SHARED_RESULTS
        }

    def up(self, up: bool) -> None:
        """It answers, or no longer does."""
        self._up.set(up)

    def asked(self, kind: str, result: SharedResult) -> None:
        """One question; `kind` is one of SHARED_KINDS."""
        self._series[kind, result].inc()
