"""Ids beside the text that they spell: which ids hold a part of the text, and which lines.

A part is widened to whole ids and whole characters, so that every slice of the ids is exact. Knows no tokenizer rules
beyond the bytes of each id. Pure.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from leaf_sdk.vocab import TokenMap
from leaf_sdk.vocab.utf8 import cuts_a_character

_NEAR: Final = 8
"""A cut is moved back to the end of a line if that costs at most one in so many ids."""


@dataclass(frozen=True, slots=True)
class SpelledPart:
    """Some consecutive ids: from `first` up to, but not including, `last`."""

    first: int
    last: int
    line: int
    """The number of the line that it begins in; the first one is 1."""
    label: str = ""
    """What it is, where there are several."""


class SpelledIds:
    """The ids of one text."""

    def __init__(self, ids: Sequence[int], token_map: TokenMap) -> None:
        pieces = [token_map.table.get(token_id) or b"" for token_id in ids]
        self.text = b"".join(pieces)
        self._ends = array("Q", accumulate(map(len, pieces)))

    def part(self, start: int, end: int, label: str = "") -> SpelledPart:
        """Return the ids that hold the bytes from `start` to `end`, which are at least one."""
        first, last = self._holding(start, end)
        return SpelledPart(first, last, self.line_at(self.byte_of(first)), label)

    def byte_of(self, n: int) -> int:
        """Where the bytes of the id number `n` begin."""
        return self._ends[n - 1] if n else 0

    def line_at(self, place: int) -> int:
        """The number of the line that a byte is in."""
        return self.text.count(b"\n", 0, place) + 1

    @property
    def line_count(self) -> int:
        """How many lines there are."""
        return self.text.count(b"\n") + (not self.text.endswith(b"\n"))

    def lines(self, first: int, last: int) -> tuple[int, int] | None:
        """The bytes of these lines, both included, without the last line's end; None: there is no first line."""
        start = 0
        for _ in range(first - 1):
            start = self.text.find(b"\n", start) + 1
            if not start:
                return None
        end = start - 1
        for _ in range(last - first + 1):
            end = self.text.find(b"\n", end + 1)
            if end < 0:
                end = len(self.text)
                break
        return (start, max(end, start + 1)) if start < len(self.text) else None

    def _holding(self, start: int, end: int) -> tuple[int, int]:
        while True:
            while start and self._goes_on(start):
                start -= 1
            while end < len(self.text) and self._goes_on(end):
                end += 1
            first, last = bisect_right(self._ends, start), bisect_left(self._ends, end) + 1
            widened = self.byte_of(first), self.byte_of(last)
            if widened == (start, end):
                return first, last
            start, end = widened

    def _goes_on(self, place: int) -> bool:
        """Whether a byte is not the first of its character."""
        return self.text[place] & 0xC0 == 0x80


def fitting(ids: Sequence[int], most: int, token_map: TokenMap) -> Sequence[int]:
    """Return at most `most` of the first ids: all, or up to the end of a line if one is near, or of a character."""
    if len(ids) <= most:
        return ids
    cut = ids[:most]
    for n in range(len(cut), len(cut) - len(cut) // _NEAR, -1):
        if token_map.decode_bytes(cut[n - 1 : n]).endswith(b"\n"):
            return cut[:n]
    return whole_characters(cut, token_map)


def whole_characters(ids: Sequence[int], token_map: TokenMap) -> Sequence[int]:
    """Return the ids without the last ones that spell only a part of a character."""
    while ids and cuts_a_character(token_map.decode_bytes(ids[-4:])):
        ids = ids[:-1]
    return ids
