"""Numbers within bounds to GBNF, whole ones and those with a fraction."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from gateway.toolcalls.grammar.gbnf import Grammar
from gateway.toolcalls.schema.merge import Schema, is_number

# Whole numbers within bounds to GBNF: 7 to 120 is a digit from 7 on, any two digits, or 1 followed by 00 to 20.

NUMBER_BOUNDS = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"))

MAX_DIGITS = 20
"""Most digits of a number, before the point or after it: those of 64 bits, which is what readers keep of one.

A weak model that repeats a digit does not stop by itself.
"""

_LONG = 100
"""Most digits where the schema itself has a bound with more than `MAX_DIGITS`."""

_MAX_BOUND = 10**MAX_DIGITS
"""Bounds of this size or larger are not written."""


def integer_bounds(schema: Schema) -> tuple[int | None, int | None]:
    """Return the least and the greatest whole number of a schema; None where it has none, or it is too large."""
    least = (*_bound(schema, "minimum", math.ceil), *_bound(schema, "exclusiveMinimum", lambda x: math.floor(x) + 1))
    most = (*_bound(schema, "maximum", math.floor), *_bound(schema, "exclusiveMaximum", lambda x: math.ceil(x) - 1))
    return max(least, default=None), min(most, default=None)


def most_digits(schema: Schema) -> int:
    """Return how many digits a whole number of a schema may have."""
    named: list[Any] = [schema.get(key) for key in NUMBER_BOUNDS]
    return _LONG if any(is_number(value) and abs(value) >= _MAX_BOUND for value in named) else MAX_DIGITS


def integer_rules(g: Grammar, low: int | None, high: int | None, digits: int = MAX_DIGITS) -> str:
    """Return the expression for the whole numbers from `low` to `high`, both included; "" where there are none."""
    parts: list[str] = []
    if low is None or low < 0:
        below = _positive(g, 1 if high is None else max(1, -high), None if low is None else -low, digits)
        parts.append(f'"-" {below}' if below else "")
    if (low is None or low <= 0) and (high is None or high >= 0):
        parts.append('"0"')
    parts.append(_positive(g, 1 if low is None else max(1, low), high, digits))
    return g.either(filter(None, parts))


def _bound(schema: Schema, key: str, whole: Callable[[Any], int]) -> list[int]:
    value: Any = schema.get(key)
    return [whole(value)] if is_number(value) and -_MAX_BOUND < value < _MAX_BOUND else []


def _positive(g: Grammar, least: int, most: int | None, digits: int) -> str:
    """Return the expression for the numbers from `least`, at least 1, to `most`, with a part for each length."""
    if most is not None and most < least:
        return ""
    first = len(str(least))
    last = first if most is None else len(str(most))
    parts = [
        digits_between(
            g,
            str(least) if size == first else f"1{'0' * (size - 1)}",
            "9" * size if most is None or size < last else str(most),
        )
        for size in range(first, last + 1)
    ]
    if most is None and first < digits:
        parts.append(f"[1-9] {g.repeat('[0-9]', '', first, digits - 1)}")
    return g.either(parts)


def digits_between(g: Grammar, low: str, high: str) -> str:
    """Return the expression for the strings of digits from `low` to `high`, which have the same length."""
    if not low or (set(low) == {"0"} and set(high) == {"9"}):
        return g.repeat("[0-9]", "", len(low), len(low))
    if low[0] == high[0]:
        return f"{g.literal(low[0])} {digits_between(g, low[1:], high[1:])}".strip()
    nines, zeros = "9" * (len(low) - 1), "0" * (len(low) - 1)
    parts: list[str] = []
    start, end = int(low[0]), int(high[0])
    if low[1:] != zeros:
        parts.append(f"{g.literal(low[0])} {digits_between(g, low[1:], nines)}")
        start += 1
    if high[1:] != nines:
        parts.append(f"{g.literal(high[0])} {digits_between(g, zeros, high[1:])}")
        end -= 1
    if start <= end:
        parts.append(f"[{start}-{end}] {digits_between(g, zeros, nines)}".strip())
    return g.either(parts)


# Numbers with a fraction to GBNF: 0.5 to 2 is 0.5 to 0.9, with or without more digits, 1 with any decimals, or 2.
#
# Numbers with at most as many decimals as the bounds are whole numbers with a point in them; a number with more
# decimals lies between two of those. No exponents. A number has at most 15 digits, which always distinguish two
# numbers, so that a reader that converts it to binary also finds it within the bounds.

_SURE = 15
_MAX_FRACTION_BOUND = 10**15


@dataclass(frozen=True, slots=True)
class NumberBounds:
    """The range of a number; None: unbounded. `above`, `below`: the bound itself is excluded."""

    low: Decimal | None = None
    above: bool = False
    high: Decimal | None = None
    below: bool = False

    @classmethod
    def of(cls, schema: Schema) -> "NumberBounds | None":
        """Return the bounds of a schema; None where one is too large, or has too many decimals, to be written."""
        least = [(_decimal(schema[key]), key != "minimum") for key in ("minimum", "exclusiveMinimum") if key in schema]
        most = [(_decimal(schema[key]), key != "maximum") for key in ("maximum", "exclusiveMaximum") if key in schema]
        if any(value is None for value, _ in (*least, *most)):
            return None
        low = max(((value, open_) for value, open_ in least if value is not None), default=(None, False))
        high = min(((value, not open_) for value, open_ in most if value is not None), default=(None, True))
        return cls(*low, high[0], not high[1])


def number_rules(g: Grammar, bounds: NumberBounds) -> str:
    """Return the expression for the numbers within bounds; "" where there are none."""
    low, high = bounds.low, bounds.high
    parts: list[str] = []
    if low is None or low < 0:
        # The negative part, mirrored.
        least, open_ = (-high, bounds.below) if high is not None and high < 0 else (Decimal(0), True)
        below = _unsigned(g, NumberBounds(least, open_, None if low is None else -low, bounds.above))
        parts.append(f'"-" {below}' if below else "")
    if high is None or high >= 0:
        least, open_ = (low, bounds.above) if low is not None and low >= 0 else (Decimal(0), False)
        parts.append(_unsigned(g, NumberBounds(least, open_, high, bounds.below)))
    return g.either(filter(None, parts))


def _decimal(value: Any) -> Decimal | None:
    if not is_number(value) or math.isinf(value):
        return None
    # The number as the schema's author wrote it, not the exact value of its binary form.
    found = Decimal(repr(value))
    return found if abs(found) < _MAX_FRACTION_BOUND and _decimals(found) < _SURE else None


def _decimals(value: Decimal) -> int:
    exponent = value.normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _unsigned(g: Grammar, bounds: NumberBounds) -> str:
    """Return the expression for the numbers within bounds that are not below zero."""
    low, high = bounds.low or Decimal(0), bounds.high
    fine = max(_decimals(low), 0 if high is None else _decimals(high))
    parts = [_fixed(g, *_whole(bounds, size), size) for size in range(fine + 1)]
    least, most = int(low * 10**fine), None if high is None else int(high * 10**fine) - 1
    more = _SURE - len(str(max(least, most or 0)))
    if more > 0:
        rest = g.repeat("[0-9]", "", 1, more)
        if bounds.above and (most is None or least <= most):
            parts.append(_longer(g, least, least, fine, f"{g.repeat('[0-9]', '', 0, more - 1)} [1-9]".strip()))
        parts.append(_longer(g, least + bounds.above, most, fine, rest))
    return g.either(filter(None, parts))


def _whole(bounds: NumberBounds, size: int) -> tuple[int, int | None]:
    """Return the bounds as whole numbers, in units of the last of `size` decimals."""
    low, high = (bounds.low or Decimal(0)) * 10**size, bounds.high
    least = math.floor(low) + 1 if bounds.above else math.ceil(low)
    if high is None:
        return least, None
    return least, math.ceil(high * 10**size) - 1 if bounds.below else math.floor(high * 10**size)


def _longer(g: Grammar, least: int, most: int | None, size: int, rest: str) -> str:
    """Return the expression for the numbers with `size` decimals, each followed by more digits."""
    head = _fixed(g, least, most, size)
    if not head:
        return ""
    return f"{head} {rest}" if size else f'{head} "." {rest}'


def _fixed(g: Grammar, least: int, most: int | None, size: int) -> str:
    """Return the expression for whole numbers from `least` to `most`, with a point before their last `size` digits."""
    if most is not None and most < least:
        return ""
    if not size:
        return integer_rules(g, least, most)
    unit = 10**size
    first, from_ = divmod(least, unit)
    last, to = (None, 0) if most is None else divmod(most, unit)
    nines = "9" * size
    if first == last:
        return _pointed(g, first, digits_between(g, f"{from_:0{size}}", f"{to:0{size}}"))
    parts = [_pointed(g, first, digits_between(g, f"{from_:0{size}}", nines))]
    between = integer_rules(g, first + 1, None if last is None else last - 1)
    if between:
        parts.append(f'{between} "." {digits_between(g, "0" * size, nines)}')
    if last is not None:
        parts.append(_pointed(g, last, digits_between(g, "0" * size, f"{to:0{size}}")))
    return g.either(f"({part})" for part in parts)


def _pointed(g: Grammar, whole: int, digits: str) -> str:
    return f"{g.literal(f'{whole}.')} {digits}"
