"""Control tokens: where text that somebody else wrote must be cut so that it becomes none, and which are not shown.

A template prints names, keys and descriptions between characters of its own, and both together may spell a marker: `<`
+ `|im_start|` + `>`. Given the markers of a map, `MarkerGuard` finds the places in a string that need a separator:
inside each marker that the string spells, and at each end at which a marker could begin, continue or end.
`TokenMap.encode` reads no special token across a separator; the text stays the same.

Engines leave out a control token's text; ids have no text, so `hidden_ids` decides. What a map calls special may also
be markup that the model was taught to answer with (`<answer>`), which engines show and a map does not tell apart: so
only tokens in the form of control tokens are hidden. An id that the map does not have has no text at all: a model's
vocabulary is often padded beyond its tokenizer's, and engines leave such ids out of the text too. Pure.
"""

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from weakref import WeakKeyDictionary

from leaf_sdk.vocab import TokenMap

_REMEMBERED = 4096
"""Short strings whose places are kept, since every request repeats the definitions of tools."""
_SHORT = 200
_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_CONTROL: Final = re.compile(
    r"<[|｜].*[|｜]>|\[\|.*\|\]|</?s>|<(?:unk|pad|bos|eos|start_of_turn|end_of_turn)>|\[/?INST\]", re.DOTALL
)
_FOUND: Final[WeakKeyDictionary[TokenMap, dict[str, int]]] = WeakKeyDictionary()
"""The control tokens of each map, which may have thousands of special tokens."""


class MarkerGuard:
    """The markers of one map. Case is ignored, since templates change it (`type | upper`)."""

    def __init__(self, markers: Iterable[str]) -> None:
        """`markers`: spellings of special tokens. One of a single character can't be cut, and is left to `encode`."""
        known = sorted({_lower(marker) for marker in markers if len(marker) > 1}, key=len, reverse=True)
        self._longest = len(known[0]) if known else 0
        # The lookahead also finds overlapping markers.
        self._whole = re.compile(f"(?={'|'.join(map(re.escape, known))})") if known else None
        self._heads = frozenset(marker[:n] for marker in known for n in range(1, len(marker)))
        self._tails = frozenset(marker[n:] for marker in known for n in range(1, len(marker)))
        self._all = "\n".join(known)
        self._cores = frozenset(re.sub(r"^\W+|\W+$", "", marker) for marker in known)
        self._remembered = lru_cache(_REMEMBERED)(self._places)

    def guarded(self, text: str, separator: str) -> str:
        """Return `text` with the separator at every place where it could become part of a marker."""
        places = self._remembered(text) if len(text) <= _SHORT else self._places(text)
        if not places:
            return text
        ends = (*places, len(text))
        return text[: ends[0]] + "".join(separator + text[at:end] for at, end in zip(places, ends[1:], strict=True))

    def spells(self, word: str) -> bool:
        """Whether a marker consists of this word and signs around it: `title` and `<title>`."""
        return _lower(word) in self._cores

    def _places(self, text: str) -> tuple[int, ...]:
        if self._whole is None:
            return ()
        lower = _lower(text)
        places = {match.start() + 1 for match in self._whole.finditer(lower)}
        start = 0
        # Templates indent and join lines, so each line has ends of its own.
        for line in lower.split("\n"):
            end = start + len(line)
            if self._may_end(line):
                places.add(start)
            if self._may_begin(line):
                places.add(end)
            start = end + 1
        return tuple(sorted(places))

    def _may_end(self, line: str) -> bool:
        """Whether a marker that began before `line` could end inside it."""
        return any(line[:n] in self._tails for n in range(1, min(self._longest, len(line) + 1)))

    def _may_begin(self, line: str) -> bool:
        """Whether a marker that began inside `line` or before it could continue after it."""
        ends = any(line[-n:] in self._heads for n in range(1, min(self._longest, len(line) + 1)))
        return ends or (bool(line) and line in self._all)


def _lower(text: str) -> str:
    """The text with only ASCII letters lowered, so that every character stays one character."""
    return text.translate(_LOWER)


@dataclass(frozen=True, slots=True)
class _Hidden:
    """Some ids of a map, and all that it does not have."""

    token_map: TokenMap
    named: frozenset[int]

    def __contains__(self, token_id: object) -> bool:
        return token_id in self.named or (isinstance(token_id, int) and not self.token_map.has_id(token_id))


def hidden_ids(token_map: TokenMap, shown: Iterable[str] = ()) -> Container[int]:
    """Return the ids whose text is not shown.

    `shown`: texts for which somebody waits, such as a format's markers; tokens that occur in them are not hidden.
    """
    found = _FOUND.get(token_map)
    if found is None:
        tokens = token_map.special_texts.items()
        found = _FOUND[token_map] = {text: token_id for text, token_id in tokens if _CONTROL.fullmatch(text)}
    waited = "\n".join(shown)
    return _Hidden(token_map, frozenset(token_id for text, token_id in found.items() if text not in waited))


def spelled(token_map: TokenMap, token_id: int) -> bytes:
    """The bytes of a generated id: none for one that the map does not have."""
    return token_map.token_bytes(token_id) if token_map.has_id(token_id) else b""
