"""Alternatives that differ only in how many items, members or characters they allow, as one.

A grammar would write each with the same beginning. The union is exact: counts with a gap between them stay apart. Pure.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gateway.toolcalls.schema.merge import Schema, is_number

_PAIRS: Final = (("minItems", "maxItems"), ("minLength", "maxLength"), ("minProperties", "maxProperties"))


def united(plain: Sequence[Schema]) -> list[Schema]:
    """Return plain schemas that allow the same values as these together, as few as their counts show."""
    found = list(plain)
    for low, high in _PAIRS:
        if len(found) > 1 and any(low in each or high in each for each in found):
            found = _united_by(found, low, high)
    return found


def _united_by(plain: Sequence[Schema], low: str, high: str) -> list[Schema]:
    alike: dict[str, list[Schema]] = {}
    for each in plain:
        rest = {key: value for key, value in each.items() if key not in (low, high)}
        alike.setdefault(json.dumps(rest, sort_keys=True, default=dict), []).append(each)
    return [one for group in alike.values() for one in (_joined(group, low, high) if len(group) > 1 else group)]


def _joined(group: Sequence[Schema], low: str, high: str) -> list[Schema]:
    """Join the ranges of schemas that are otherwise the same; ranges that no reader can be sure of stay as they are."""
    if not all(is_number(each.get(key, 0)) for each in group for key in (low, high)):
        return list(group)
    ranges: list[tuple[float, float]] = []
    for least, most in sorted((each.get(low, 0), each.get(high, float("inf"))) for each in group):
        if ranges and least <= ranges[-1][1] + 1:
            ranges[-1] = ranges[-1][0], max(most, ranges[-1][1])
        elif least <= most:
            ranges.append((least, most))
    return [_ranged(group[0], low, least, high, most) for least, most in ranges] or list(group)


def _ranged(schema: Mapping[str, Any], low: str, least: float, high: str, most: float) -> Schema:
    rest = {key: value for key, value in schema.items() if key not in (low, high)}
    return {**rest, **({low: least} if least else {}), **({high: most} if most != float("inf") else {})}
