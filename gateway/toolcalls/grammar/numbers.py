"""Whole numbers within bounds to GBNF: 7 to 120 is a digit from 7 on, any two digits, or 1 followed by 00 to 20."""

import math
from collections.abc import Callable
from typing import Any

from gateway.toolcalls.grammar.gbnf import Grammar
from gateway.toolcalls.schema.merge import Schema, is_number

MAX_DIGITS = 100
"""Most digits of a number without a bound: the parsers hold a number until it ends (`json_scanner.MAX_ATOM`)."""

_MAX_BOUND = 10**20
"""Bounds of this size or larger are not written."""


def integer_bounds(schema: Schema) -> tuple[int | None, int | None]:
    """Return the least and the greatest whole number of a schema; None where it has none, or it is too large."""
    least = (*_bound(schema, "minimum", math.ceil), *_bound(schema, "exclusiveMinimum", lambda x: math.floor(x) + 1))
    most = (*_bound(schema, "maximum", math.floor), *_bound(schema, "exclusiveMaximum", lambda x: math.ceil(x) - 1))
    return max(least, default=None), min(most, default=None)


def integer_rules(g: Grammar, low: int | None, high: int | None) -> str:
    """Return the expression for the whole numbers from `low` to `high`, both included; "" where there are none."""
    parts: list[str] = []
    if low is None or low < 0:
        below = _positive(g, 1 if high is None else max(1, -high), None if low is None else -low)
        parts.append(f'"-" {below}' if below else "")
    if (low is None or low <= 0) and (high is None or high >= 0):
        parts.append('"0"')
    parts.append(_positive(g, 1 if low is None else max(1, low), high))
    return g.either(filter(None, parts))


def _bound(schema: Schema, key: str, whole: Callable[[Any], int]) -> list[int]:
    value: Any = schema.get(key)
    return [whole(value)] if is_number(value) and -_MAX_BOUND < value < _MAX_BOUND else []


def _positive(g: Grammar, least: int, most: int | None) -> str:
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
    if most is None:
        parts.append(f"[1-9] {g.repeat('[0-9]', '', first, MAX_DIGITS)}")
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
