"""Any number of durations, counted in bounded memory with a precision of half a percent.

Turns durations into counts of buckets, each one percent wider than the one before, and these into quantiles. A duration
below ten microseconds counts as zero: it is between pieces that arrived together in one read of a connection.
"""

from collections.abc import Mapping
from math import floor, log, sqrt
from typing import Final

_LEAST: Final = 1e-5
_GROWTH: Final = log(1.01)
_MOST: Final = 1e5


class Histogram:
    """Durations in seconds, counted."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.count = 0

    def add(self, seconds: float, times: int = 1) -> None:
        """Count one more duration, or several of the same length."""
        bucket = -1 if seconds < _LEAST else floor(log(min(seconds, _MOST) / _LEAST) / _GROWTH)
        self._counts[bucket] = self._counts.get(bucket, 0) + times
        self.count += times

    def quantile(self, part: float) -> float | None:
        """The duration that this part of all durations does not exceed; None if there are none."""
        wanted, seen = part * self.count, 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen >= wanted:
                return _middle(bucket)
        return None

    @property
    def counts(self) -> Mapping[int, int]:
        """How many durations fell into each bucket."""
        return self._counts


def _middle(bucket: int) -> float:
    return 0.0 if bucket < 0 else _LEAST * sqrt(1.01) * 1.01**bucket
