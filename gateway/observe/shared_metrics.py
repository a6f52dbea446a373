"""The metrics of the store that replicas share: whether it answers, and what came of each question to it.

Labels are words from fixed lists.
"""

from collections.abc import Callable
from typing import Final, Literal, get_args

from prometheus_client import Counter, Gauge

SharedResult = Literal["ok", "nothing", "away", "late", "lost", "refused", "unreadable", "dropped"]
SHARED_KINDS: Final = ("limit", "response", "memory", "event", "sign-in", "pending")
SHARED_RESULTS: Final[tuple[SharedResult, ...]] = get_args(SharedResult)


class SharedMetrics:
    """What is counted about the shared store."""

    def __init__(self, counter: Callable[..., Counter], gauge: Callable[..., Gauge]) -> None:
        self._up = gauge(
            "codec_shared_up", "Whether the shared store answers (1) or not (0); 1 where none is configured."
        )
        self._up.set(1)
        self._operations = counter(
            "codec_shared_operations",
            "Operations on the shared store, by kind and result.",
            "kind",
            "result",
        )
        self._series = {
            (kind, result): self._operations.labels(kind, result) for kind in SHARED_KINDS for result in SHARED_RESULTS
        }

    def up(self, up: bool) -> None:
        """The store answers, or no longer does."""
        self._up.set(up)

    def asked(self, kind: str, result: SharedResult) -> None:
        """The store was asked once; `kind` is one of SHARED_KINDS."""
        self._series[kind, result].inc()
