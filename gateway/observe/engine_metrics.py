"""The metrics of engines by engine, of their slot files, and of the store that replicas share."""

from collections.abc import Callable
from typing import Final, Literal, get_args

from prometheus_client import Counter, Gauge

from gateway.observe.exposition import OTHER, BoundedLabel, one_of

# The metrics of several engines, by engine: which are there, how much each does, and what was moved between them.
#
# Labels are names from the configuration.

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


# The metrics of slot files: what was moved between the engine's slots and files, what it saved, what was refused.
#
# Labels are words from fixed lists.

_WAYS: Final = ("save", "restore")
_FAULTS: Final = ("gone", "link", "owner", "mode", "size", "digest", "note", "engine", "save", OTHER)


class SlotFileMetrics:
    """What is counted about slot files."""

    def __init__(self, counter: Callable[..., Counter], gauge: Callable[..., Gauge]) -> None:
        self._moves = counter("codec_slot_file_moves", "Slots saved to files or restored from them.", "way")
        self._bytes = counter(
            "codec_slot_file_moved_bytes", "Bytes of the slot files that were written or read.", "way"
        )
        self._ids = counter("codec_slot_file_restored_ids", "Ids in the slots that were restored.")
        self._refused = counter(
            "codec_slot_files_refused",
            "Slot files that were rejected or could not be written, by reason; in each case ids are processed again.",
            "reason",
        )
        self._held = gauge("codec_slot_file_bytes", "Total size of all slot files in bytes.")
        for way in _WAYS:
            self._moves.labels(way)
            self._bytes.labels(way)
        for fault in _FAULTS[:-1]:
            self._refused.labels(fault)

    def moved(self, way: Literal["save", "restore"], size: int, *, ids: int = 0) -> None:
        """A slot was saved to a file of `size` bytes or restored from it; `ids`: how many were restored."""
        self._moves.labels(way).inc()
        self._bytes.labels(way).inc(size)
        self._ids.inc(ids)

    def refused(self, fault: str) -> None:
        """A file was not used, or (`save`) not written."""
        self._refused.labels(one_of(_FAULTS, fault)).inc()

    def held(self, size: int) -> None:
        """All slot files together have `size` bytes now."""
        self._held.set(size)


# The metrics of the store that replicas share: whether it answers, and what came of each question to it.
#
# Labels are words from fixed lists.

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
