"""The metrics of several engines, by engine: which are there, how much each does, and what was moved between them.

Labels are names from the configuration.
"""

from collections.abc import Callable
from typing import Final

from prometheus_client import Counter, Gauge

from gateway.observe.labels import BoundedLabel

_SINCE: Final = ("start", "middle")


class EngineMetrics:
    """What is counted about engines."""

    def __init__(self, counter: Callable[..., Counter], gauge: Callable[..., Gauge], engines: BoundedLabel) -> None:
        self._engines = engines
        self._up = gauge(
            "codec_pool_engine_up", "Whether this engine answers and its map is proven (1 or 0).", "engine"
        )
        self._running = gauge("codec_pool_engine_answers", "Answers that this engine is generating.", "engine")
        self._moved = counter(
            "codec_pool_answers_moved",
            "Answers moved to another engine because this one was lost; `at`: before their first id or after it.",
            "engine",
            "at",
        )

    def engine_up(self, engine: str, up: bool) -> None:
        """An engine came up or went away."""
        self._up.labels(self._engines.admit(engine)).set(up)

    def engine_running(self, engine: str, answers: int) -> None:
        """`answers` answers are being made with an engine now."""
        self._running.labels(self._engines.admit(engine)).set(answers)

    def answer_moved(self, engine: str, *, begun: bool) -> None:
        """An answer left an engine that was lost; `begun`: whether it had ids already."""
        self._moved.labels(self._engines.admit(engine), _SINCE[begun]).inc()
