"""Where text that somebody else wrote must be cut, so that it can't become a control token wherever it stands.

A template prints names, keys and descriptions between characters of its own, and both together may spell a marker: `<`
+ `|im_start|` + `>`. Given the markers of a map, this finds the places in one string at which a separator must stand:
inside each marker that it spells, and at each end with which a marker could begin, go on or end. Where the separator
stands, `TokenMap.encode` reads no special token; the text stays what it was.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

_REMEMBERED = 4096
"""Short strings whose places are kept: definitions of tools come again with every request."""
_SHORT = 200
_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


class MarkerGuard:
    """The markers of one map. Case does not count, since templates change it (`type | upper`)."""

    def __init__(self, markers: Iterable[str]) -> None:
        """`markers`: spellings of special tokens; one of a single character has no inside, and is left to `encode`."""
        known = sorted({_lower(marker) for marker in markers if len(marker) > 1}, key=len, reverse=True)
        self._longest = len(known[0]) if known else 0
        # Looking ahead finds those that overlap.
        self._whole = re.compile(f"(?={'|'.join(map(re.escape, known))})") if known else None
        self._heads = frozenset(marker[:n] for marker in known for n in range(1, len(marker)))
        self._tails = frozenset(marker[n:] for marker in known for n in range(1, len(marker)))
        self._all = "\n".join(known)
        self._cores = frozenset(re.sub(r"^\W+|\W+$", "", marker) for marker in known)
        self._remembered = lru_cache(_REMEMBERED)(self._places)

    def guarded(self, text: str, separator: str) -> str:
        """Give `text` with the separator at every place where a marker could come of it."""
        places = self._remembered(text) if len(text) <= _SHORT else self._places(text)
        if not places:
            return text
        ends = (*places, len(text))
        return text[: ends[0]] + "".join(separator + text[at:end] for at, end in zip(places, ends[1:], strict=True))

    def spells(self, word: str) -> bool:
        """Whether some marker is this word and signs around it: `title` and `<title>`."""
        return _lower(word) in self._cores

    def _places(self, text: str) -> tuple[int, ...]:
        if self._whole is None:
            return ()
        lower = _lower(text)
        places = {match.start() + 1 for match in self._whole.finditer(lower)}
        start = 0
        # Templates indent and join lines, so each of them has ends of its own.
        for line in lower.split("\n"):
            end = start + len(line)
            if self._may_end(line):
                places.add(start)
            if self._may_begin(line):
                places.add(end)
            start = end + 1
        return tuple(sorted(places))

    def _may_end(self, line: str) -> bool:
        """Whether a marker could end inside `line`, having begun before it."""
        return any(line[:n] in self._tails for n in range(1, min(self._longest, len(line) + 1)))

    def _may_begin(self, line: str) -> bool:
        """Whether a marker could go on behind `line`, having begun inside it or before."""
        ends = any(line[-n:] in self._heads for n in range(1, min(self._longest, len(line) + 1)))
        return ends or (bool(line) and line in self._all)


def _lower(text: str) -> str:
    """Lower case of ASCII alone: every character stays one."""
    return text.translate(_LOWER)
