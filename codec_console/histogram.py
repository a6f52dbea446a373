"""How long calls took, as bars: positions and sizes for a template to draw.

Turns the counts of a histogram into rectangles in an area of fixed size. Pure.
"""

from collections.abc import Sequence
from math import inf
from typing import Final, NamedTuple

WIDTH: Final = 300
HEIGHT: Final = 90
_BASE: Final = 74
_TOP: Final = 8
_GAP: Final = 2
_MARKS: Final = {0.001: "1 ms", 0.01: "10 ms", 0.1: "100 ms", 1.0: "1 s", 10.0: "10 s"}


class Bar(NamedTuple):
    """The bar of one bucket."""

    x: float
    y: float
    width: float
    height: float
    words: str
    """The bucket's upper bound, and how many calls it holds."""


class Mark(NamedTuple):
    """A label under the bars: a time."""

    x: float
    words: str


class Picture(NamedTuple):
    """The whole histogram."""

    calls: int
    bars: tuple[Bar, ...]
    marks: tuple[Mark, ...]
    width: int = WIDTH
    height: int = HEIGHT
    base: int = _BASE


def picture_of(buckets: Sequence[tuple[float, int]]) -> Picture:
    """Draw a histogram. `buckets`: upper bounds in seconds, each with the number of calls above the bound before it."""
    calls, most = sum(count for _, count in buckets), max((count for _, count in buckets), default=0)
    step = WIDTH / max(len(buckets), 1)
    bars: list[Bar] = []
    for n, (bound, count) in enumerate(buckets):
        # Even one call among thousands stays visible.
        height = max(2.0, (_BASE - _TOP) * count / most) if count else 0.0
        place = (n * step, _BASE - height, step - _GAP, height)
        bars.append(Bar(*(round(each, 1) for each in place), words=_words(bound, count)))
    marks = [Mark(round((n + 1) * step, 1), _MARKS[bound]) for n, (bound, _) in enumerate(buckets) if bound in _MARKS]
    return Picture(calls, tuple(bars), tuple(marks))


def _words(bound: float, count: int) -> str:
    up_to = "longer" if bound == inf else f"up to {bound * 1000:g} ms" if bound < 1 else f"up to {bound:g} s"
    return f"{up_to}: {count} {'call' if count == 1 else 'calls'}"
