"""Ids from outside to a verdict: may an engine see them in place of the text?

Three checks are always made: they are ids, the map has them, and none of them is special (a special id in a tool result
is a role switch). The fourth, that they say exactly what the text says, is what people and filters rely on; level
`trust` skips only that one. Pure: raises nothing and counts nothing.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from sys import byteorder
from typing import Literal, cast

from leaf_sdk.errors import TextNotUnicode
from leaf_sdk.vocab import TokenMap

_SIZE = 4
"""Bytes of an id in an array."""
_SHORT = 64
"""Up to this many ids, `max` is the fastest way to compare them with the end."""

Reason = Literal["shape", "range", "special", "text"]


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why ids must not be used. `reason` is one of four words, fit for a metric's label; `detail` is for the log."""

    reason: Reason
    detail: str


def check_ids(
    token_map: TokenMap, text: str, ids: Sequence[object], level: Literal["verify", "trust"] = "verify"
) -> Rejection | None:
    """Return why the ids of one text must not be used; None if they may be.

    Args:
        token_map: the map that the ids are said to belong to.
        text: the block's text.
        ids: as received; elements may be of any type.
        level: `verify` compares the ids with the text; `trust` does not.
    """
    if not _may_pass(token_map, ids) and (rejection := _rejection(token_map, ids)) is not None:
        return rejection
    whole = cast("Sequence[int]", ids)
    if level == "verify" and not _says(token_map, whole, text):
        return Rejection("text", f"the {len(whole)} ids do not spell the text of {len(text)} characters")
    return None


def _may_pass(token_map: TokenMap, ids: Sequence[object]) -> bool:
    """Return quickly whether all are ids of ordinary tokens; False only means that a closer look is needed.

    This check is what `trust` costs, so it makes no Python object per id: an array refuses what is not a whole number.
    It takes true and false for 1 and 0, so where one of these occurs the types are looked at one by one.
    """
    whole = cast("Sequence[int]", ids)
    try:
        numbers = array("I", whole)
    except (TypeError, OverflowError):
        return False
    known = _ordinary_ids(token_map)
    sure = len(whole) > _SHORT and known.surely_hold(numbers)
    if whole and not sure and max(whole) >= known.end:
        return False
    return known.watched.isdisjoint(ids) or (known.gaps.isdisjoint(ids) and not set(map(type, ids)) - {int})


class OrdinaryIds:
    """The ids that text may have: all below a number, except for a few.

    Looking each id up in the whole vocabulary would wait for memory every time; the few exceptions stay in the
    processor's cache.
    """

    def __init__(self, end: int, gaps: frozenset[int]) -> None:
        """`end`: the last id plus one. `gaps`: the numbers below it that text may not have."""
        self.end = end
        self.gaps = gaps
        self.watched = gaps | {0, 1}
        self._place = 1 if end <= 1 << 16 else 2
        self._low = bytes(range(min(end >> 8 * self._place, 256)))

    def surely_hold(self, numbers: "array[int]") -> bool:
        """Whether the upper bytes alone show that all are below the end: for 1,000 ids a third of the time of `max`."""
        if numbers.itemsize != _SIZE or byteorder != "little":
            return False
        data = numbers.tobytes()
        if any(data[place::_SIZE].strip(b"\0") for place in range(self._place + 1, _SIZE)):
            return False
        return not data[self._place :: _SIZE].translate(None, self._low)


@lru_cache(maxsize=32)
def _ordinary_ids(token_map: TokenMap) -> OrdinaryIds:
    table = token_map.table
    gaps = table.gaps()
    if gaps is None:
        # No real vocabulary is numbered like this; every list then gets the closer look.
        return OrdinaryIds(0, frozenset())
    return OrdinaryIds(len(table) + len(gaps), token_map.special_ids.union(gaps))


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
        # A normalizer changes text, and a vocabulary that can't spell a byte drops it: in both cases our ids decide.
        return token_map.encode(text) == list(ids)
    except (TextNotUnicode, UnicodeEncodeError):
        return False
