"""Ids that came from outside to a verdict: may an engine see them in place of the text?

Three questions that no trust answers: are they ids at all, does the map have them, is none of them special (a special
id in a tool result is a role switch). The fourth, do they say exactly what the text says, is what a person and a
filter rely on; policy `trust` skips only that one. Pure: raises nothing and counts nothing. Above: the gateway's
proxy.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from sys import byteorder
from typing import Literal, cast

from leaf_sdk.errors import TextNotUnicode
from leaf_sdk.vocab import TokenMap

# Bytes to 1 or 0: whether a byte is at most 1, or is 0.
_TO_ONE = bytes([1, 1, *[0] * 254])
_TO_ZERO = bytes([1, *[0] * 255])

_FEW = 1024
"""Numbers that a vocabulary of any size may leave out."""

Reason = Literal["shape", "range", "special", "text"]


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why ids must not be used. `reason` is one of four words, fit for a metric's label; `detail` is for the log."""

    reason: Reason
    detail: str


def check_ids(
    token_map: TokenMap, text: str, ids: Sequence[object], level: Literal["verify", "trust"] = "verify"
) -> Rejection | None:
    """Judge the ids of one text; None means that they may be used.

    Args:
        token_map: the map that the ids claim to be of.
        text: the block's text.
        ids: as they came, of any type.
        level: `verify` compares the ids with the text; `trust` does not.
    """
    if not _may_pass(token_map, ids) and (rejection := _rejection(token_map, ids)) is not None:
        return rejection
    whole = cast("Sequence[int]", ids)
    if level == "verify" and not _says(token_map, whole, text):
        return Rejection("text", f"{len(whole)} ids do not say what the text of {len(text)} characters says")
    return None


def _may_pass(token_map: TokenMap, ids: Sequence[object]) -> bool:
    """Say at once that all are ids of ordinary tokens; False only means that a closer look is needed.

    This look is what `trust` costs, so it makes no Python object for an id: an array refuses what is no whole number.
    It takes true and false for 1 and 0, and only where one of these stands the types are looked at one by one.
    """
    whole = cast("Sequence[int]", ids)
    try:
        numbers = array("I", whole)
    except (TypeError, OverflowError):
        return False
    end, gaps, small = _ordinary_ids(token_map)
    if numbers and (max(whole) >= end or not gaps.isdisjoint(ids)):
        return False
    return not (small and _hold_zero_or_one(numbers.tobytes(), numbers.itemsize) and set(map(type, ids)) - {int})


def _hold_zero_or_one(numbers: bytes, size: int) -> bool:
    """Say whether one of the numbers is 0 or 1: every byte of it is 0, but for the lowest, which may be 1."""
    lowest = 0 if byteorder == "little" else size - 1
    fit = -1
    for place in range(size):
        allowed = _TO_ONE if place == lowest else _TO_ZERO
        fit &= int.from_bytes(numbers[place::size].translate(allowed))
    return fit != 0


@lru_cache(maxsize=32)
def _ordinary_ids(token_map: TokenMap) -> tuple[int, frozenset[object], bool]:
    """Give the ids that text may have, and whether 0 or 1, which true and false pass for, is among them.

    The ids are those below a number, but for a few: looking for each id among all of a vocabulary would wait for memory
    each time, and the few stay in the processor's cache.
    """
    ordinary = token_map.ordinary_ids
    end = max(ordinary, default=-1) + 1
    if end > 2 * len(ordinary) + _FEW:
        # Nobody numbers tokens so; then every list gets the closer look.
        return 0, frozenset(), False
    return end, frozenset(range(end)) - ordinary, not ordinary.isdisjoint((0, 1))


def _rejection(token_map: TokenMap, ids: Sequence[object]) -> Rejection | None:
    if set(map(type, ids)) - {int}:
        index, stray = next((at, each) for at, each in enumerate(ids) if type(each) is not int)
        return Rejection("shape", f"ids[{index}] is a {type(stray).__name__}, expected a whole number")
    whole = cast("Sequence[int]", ids)
    distinct = set(whole)
    if special := distinct & token_map.special_ids:
        return Rejection("special", f"id {min(special)} is a special token of map {token_map.map_id!r}")
    if unknown := [token_id for token_id in distinct if not token_map.has_id(token_id)]:
        return Rejection("range", f"id {min(unknown)!r:.40} is not in map {token_map.map_id!r}")
    return None


def _says(token_map: TokenMap, ids: Sequence[int], text: str) -> bool:
    try:
        # Bytes are compared, not text: an invalid byte must not pass for a U+FFFD that the text really has.
        if token_map.exact_decode and token_map.decode_bytes(ids) == text.encode():
            return True
        # A normalizer changes text, and a vocabulary that can't spell a byte leaves it out: then our own ids decide.
        return token_map.encode(text) == list(ids)
    except (TextNotUnicode, UnicodeEncodeError):
        return False
