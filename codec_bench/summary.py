"""Turns samples into figures: quantiles of each server, and how each compares with the first, with an interval.

Servers are compared in pairs: the same request of the workload, asked of both in one run. A ratio is the median of the
ratios of all pairs. Its interval contains the true median in 95 of 100 runs, and is taken from the order of the ratios
alone (the sign test), so that no distribution is assumed. Pure.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import comb, floor, sqrt
from statistics import median
from typing import Final

from codec_bench.sample import Sample, Tally

_EXACT: Final = 200
"""Up to this many pairs the interval is exact; for more it is a normal approximation."""

COMPARED: Final[Mapping[str, Callable[[Sample], float | None]]] = {
    "first": lambda sample: sample.first,
    "a_token": lambda sample: sample.a_token,
    "whole": lambda sample: sample.whole,
    "socket_bytes": lambda sample: sample.socket_bytes,
}
"""The figures by which servers are compared. Of each, less is better."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The distribution of some values."""

    count: int
    least: float
    p50: float
    p90: float
    p99: float
    most: float


@dataclass(frozen=True, slots=True)
class Ratio:
    """How a figure of one server compares with that of the first, pair by pair."""

    middle: float
    low: float | None
    """The lower end of the interval; None if there are too few pairs for one."""
    high: float | None
    pairs: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """One server compared with the first."""

    ratios: Mapping[str, Ratio]
    same_ids: int
    other_ids: int
    same_text: int
    other_text: int


@dataclass(frozen=True, slots=True)
class Prompts:
    """What one server says about its prompts, summed over the answers that say it."""

    told: int
    """Answers that give both numbers."""
    tokens: int
    cached: int

    @property
    def processed(self) -> int:
        """Tokens that were not found in the cache."""
        return self.tokens - self.cached

    @property
    def reused(self) -> float | None:
        """The part that was found in the cache; None if there are no tokens."""
        return self.cached / self.tokens if self.tokens else None


def spread(values: Sequence[float]) -> Spread | None:
    """The quantiles of some values; None if there are none."""
    if not values:
        return None
    ordered = sorted(values)
    p50, p90, p99 = (quantile(ordered, part) for part in (0.5, 0.9, 0.99))
    return Spread(len(ordered), ordered[0], p50, p90, p99, ordered[-1])


def quantile(ordered: Sequence[float], part: float) -> float:
    """The quantile of sorted values, interpolated if it falls between two."""
    place = part * (len(ordered) - 1)
    below = floor(place)
    above = min(below + 1, len(ordered) - 1)
    low, high = ordered[below], ordered[above]
    # Rounding must not lead outside the two values.
    return min(max(low + (high - low) * (place - below), low), high)


def busy_seconds(tally: Tally) -> float:
    """For how long at least one answered request was running. While a server waits for its turn, no time is counted."""
    busy, until = 0.0, float("-inf")
    for began, ended in sorted((each.began, each.began + each.whole) for each in tally.samples):
        busy += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return busy


def prompts_of(tally: Tally) -> Prompts:
    """What a server says that it processed and found in its cache."""
    told = [(each.prompt_tokens, each.cached_tokens) for each in tally.samples]
    both = [(prompt, min(cached, prompt)) for prompt, cached in told if prompt is not None and cached is not None]
    return Prompts(len(both), sum(prompt for prompt, _ in both), sum(cached for _, cached in both))


def compared(first: Tally, other: Tally) -> Comparison:
    """How a server compares with the first."""
    pairs = list(_pairs(first, other))
    ids = [(a.ids, b.ids) for a, b in pairs if a.ids is not None and b.ids is not None]
    texts = [(a.text, b.text) for a, b in pairs if a.text is not None and b.text is not None]
    same_ids, same_text = sum(a == b for a, b in ids), sum(a == b for a, b in texts)
    ratios = {name: ratio for name, read in COMPARED.items() if (ratio := _ratio(pairs, read)) is not None}
    return Comparison(ratios, same_ids, len(ids) - same_ids, same_text, len(texts) - same_text)


def _pairs(first: Tally, other: Tally) -> Iterator[tuple[Sample, Sample]]:
    by_position = {sample.position: sample for sample in first.samples}
    for sample in other.samples:
        if (beside := by_position.get(sample.position)) is not None:
            yield beside, sample


def _ratio(pairs: Sequence[tuple[Sample, Sample]], read: Callable[[Sample], float | None]) -> Ratio | None:
    values = [(read(a), read(b)) for a, b in pairs]
    ratios = sorted(b / a for a, b in values if a and b)
    if not ratios:
        return None
    bounds = interval_places(len(ratios))
    low, high = (None, None) if bounds is None else (ratios[bounds[0]], ratios[bounds[1]])
    return Ratio(median(ratios), low, high, len(ratios))


def interval_places(count: int) -> tuple[int, int] | None:
    """Places of sorted values between which the true median lies in 95 of 100 cases; None if there are too few values.

    The median lies below the least of n values with a probability of 1 in 2^n, and so on.
    """
    if count > _EXACT:
        below = floor(count / 2 - 0.98 * sqrt(count)) - 1
        return below, count - 1 - below
    outside, place = 0, 0
    while (outside := outside + comb(count, place)) * 40 <= 2**count:
        place += 1
    return (place - 1, count - place) if place else None
