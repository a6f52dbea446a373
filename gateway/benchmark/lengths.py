"""How long prompts and answers are, as a person writes it, and numbers drawn from that.

Turns `200`, `uniform:50-400` and `lognormal:200:0.5` (the median, and the deviation of the logarithm) into `Lengths`.
What is drawn lies between 1 and a ceiling. Pure: who draws brings the random numbers.
"""

from dataclasses import dataclass
from math import isfinite, log
from random import Random
from typing import Final

_FORMS: Final = "a number, uniform:LEAST-MOST or lognormal:MEDIAN:SIGMA"
_WIDEST: Final = 3.0
"""Of a lognormal: one draw in twenty is then 400 times the median."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution of lengths, in tokens."""

    written: str
    """As the person wrote it."""
    least: int
    most: int
    sigma: float = 0.0
    """Of a lognormal, whose median `least` then is, and `most` the ceiling."""

    def draw(self, random: Random) -> int:
        """One length."""
        if not self.sigma:
            return random.randint(self.least, self.most)
        return min(self.most, max(1, round(random.lognormvariate(log(self.least), self.sigma))))

    def __str__(self) -> str:
        return self.written


def read_lengths(text: str, ceiling: int) -> Lengths:
    """The distribution that a text means. Raises `ValueError`, whose words say what was expected."""
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
            f"{text[:80]!r} is no length: expected {_FORMS}, in tokens from 1 to {ceiling}, and SIGMA up to {_WIDEST:g}"
        ) from error


def _checked(lengths: Lengths, ceiling: int) -> Lengths:
    if not 1 <= lengths.least <= lengths.most <= ceiling:
        raise ValueError("out of bounds")
    return lengths


def _lognormal(text: str, median: int, sigma: float, ceiling: int) -> Lengths:
    if not (isfinite(sigma) and 0 < sigma <= _WIDEST):
        raise ValueError("out of bounds")
    return _checked(Lengths(text, median, ceiling, sigma), ceiling)
