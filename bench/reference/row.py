"""A figure of the reference beside ours, and which of the two is better: the rows of which every scene consists.

Theirs is typed in, with the words in which it is stated; ours always comes from a result. Whether ours is better is
computed, so that it stays right when a result is measured again. Pure.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

Results = Mapping[str, Mapping[str, Any]]
"""Results of benchmarks by the names of their files."""
Unit = Literal["B", "B/token", "ms", "µs", "ns", "times", "of plain", "%", "million/s"]
Verdict = Literal["better", "alike", "worse", ""]

_ALIKE: Final = 1.05
_MORE_IS_BETTER: Final[frozenset[Unit]] = frozenset(("times", "%", "million/s"))
NOTHING: Final = "–"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of both. None: theirs is not stated, or ours is not measured; `words` then say what there is."""

    what: str
    theirs: float | None
    ours: float | None
    unit: Unit
    stated: str = ""
    """Their figure in their own words, if these are not the number."""
    words: str = ""

    @property
    def verdict(self) -> Verdict:
        """How ours compares with theirs; empty if one of them is missing."""
        factor = self.factor
        if factor is None:
            return ""
        return "better" if factor > _ALIKE else "worse" if factor < 1 / _ALIKE else "alike"

    @property
    def factor(self) -> float | None:
        """How many times better ours is; below 1 it is worse."""
        if self.theirs is None or self.ours is None:
            return None
        return self.ours / self.theirs if self.unit in _MORE_IS_BETTER else self.theirs / self.ours

    def line(self) -> str:
        """Return the row as Markdown."""
        theirs = self.stated or (NOTHING if self.theirs is None else _with_unit(f"{self.theirs:,}", self.unit))
        ours = self.words or (NOTHING if self.ours is None else shown(self.ours, self.unit))
        return f"| {self.what} | {theirs} | {ours} | {self._judged()} |"

    def _judged(self) -> str:
        factor = self.factor
        if factor is None or self.verdict == "alike":
            return self.verdict
        return f"{self.verdict}, {_digits(max(factor, 1 / factor))}×"


@dataclass(frozen=True, slots=True)
class Scene:
    """One bench of the reference."""

    title: str
    definition: str
    """What they measure, by their definition."""
    stated: str
    """Where its figures are stated."""
    rows: Sequence[Row]
    why: str


def kib(size: float) -> float:
    """Return the bytes of a size that the reference writes in KB, of 1,024 bytes each."""
    return size * 1024


def kb(size: float) -> str:
    """Return a size made with `kib` as the reference writes it; empty for one in whole bytes."""
    return f"{size / kib(1):.1f} KB" if isinstance(size, float) else ""


def median(row: Mapping[str, Any], *keys: str) -> float:
    """Return the median at the end of these keys."""
    found: Any = row
    for key in keys:
        found = found[key]
    return float(found["median"])


def shown(value: float, unit: Unit) -> str:
    """Return a figure with its unit."""
    return _with_unit(f"{value:,.0f}" if unit == "B" else _digits(value), unit)


def _with_unit(digits: str, unit: Unit) -> str:
    return f"{digits}×" if unit == "times" else f"{digits} {unit}"


def _digits(value: float) -> str:
    """Return three digits, or all of those before the point."""
    places = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{min(places, 4)}f}"
