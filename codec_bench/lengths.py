"""How long prompts and answers are: distributions as a person writes them, and lengths drawn from them.

Turns `200`, `uniform:50-400` and `lognormal:200:0.5` (the median, and the standard deviation of the logarithm) into
`Lengths`. What is drawn lies between 1 and a ceiling. Pure: the caller provides the random numbers.
"""

from dataclasses import dataclass
from math import isfinite, log
from random import Random
from typing import Final

_FORMS: Final = "a number, uniform:LEAST-MOST or lognormal:MEDIAN:SIGMA"
_WIDEST: Final = 3.0
"""The largest sigma of a lognormal: one draw in forty is then more than 350 times the median."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution of lengths, in tokens."""

    written: str
    """As the person wrote it."""
    least: int
    most: int
    sigma: float = 0.0
    """Not 0 for a lognormal: `least` is then its median, and `most` the ceiling."""

    def draw(self, random: Random) -> int:
        """Draw one length."""
        if not self.sigma:
            return random.randint(self.least, self.most)
        return min(self.most, max(1, round(random.lognormvariate(log(self.least), self.sigma))))

    def __str__(self) -> str:
        return self.written


def read_lengths(text: str, ceiling: int) -> Lengths:
    """Read the distribution that a text describes. Raises `ValueError`, which says what was expected."""
    kind, _, rest = text.strip().partition(":")
    try:
        match kind:
            case "uniform":
                least, _, most = rest.partition("-")
                return _checked(Lengths(text, int(least), int(most)), ceiling)
            case "lognormal":
                median, _, sigma = rest.partition(":")
                return _lognormal(text, int(median), float(sigma), ceiling)
            case _:
                return _checked(Lengths(text, int(text), int(text)), ceiling)
    except ValueError as error:
        raise ValueError(
            f"{text[:80]!r} is not a length: expected {_FORMS}, in tokens from 1 to {ceiling}, and SIGMA up to "
            f"{_WIDEST:g}"
        ) from error


def _checked(lengths: Lengths, ceiling: int) -> Lengths:
    if not 1 <= lengths.least <= lengths.most <= ceiling:
        raise ValueError("out of bounds")
    return lengths


def _lognormal(text: str, median: int, sigma: float, ceiling: int) -> Lengths:
    if not (isfinite(sigma) and 0 < sigma <= _WIDEST):
        raise ValueError("out of bounds")
    return _checked(Lengths(text, median, ceiling, sigma), ceiling)
