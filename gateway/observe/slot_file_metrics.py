"""The metrics of slot files: what was moved between the engine's slots and files, what it saved, what was refused.

Labels are words from fixed lists.
"""

from collections.abc import Callable
from typing import Final, Literal

from prometheus_client import Counter, Gauge

from gateway.observe.labels import OTHER, one_of

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
