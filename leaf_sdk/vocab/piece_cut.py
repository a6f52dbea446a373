"""A text's pieces, cut with Python's `re` at exactly the places where `tokenizers` cuts.

ASCII text has an expression of its own, which is the fastest; all other text has one over Unicode's basic plane, with
`stand_ins` for the characters beyond. Where it is not certain that the cut would be the library's, none is made.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property
from itertools import chain
from typing import Final

from .expressions import NUMERALS, Alphabet, translated
from .programs import CJK, DIGIT
from .stand_ins import StandIns

AT_ONCE: Final = 4 * 1024
"""Characters. A longer text is cut piece by piece, so that other threads get their turn in between."""
_ASCII_END, _PLANE_END = 0x80, 0x10000


class PieceCut:
    """Cuts text by one pre-tokenizer's expressions."""

    def __init__(self, stages: Sequence[str]) -> None:
        """`stages`: Oniguruma expressions that cut in turn. Nothing is built before the first text."""
        self._stages = stages

    def pieces(self, text: str) -> Iterable[str] | None:
        """Return the pieces, which joined are the text; None if only the library can cut it.

        Raises:
            UnicodeEncodeError: a lone surrogate.
        """
        if text.isascii():
            return None if self._ascii is None else self._ascii.pieces(text)
        if self._plane is None:
            return None
        # Exactly two bytes per character: none is beyond the basic plane.
        if len(text.encode("utf-16-le")) == 2 * len(text):
            return self._plane.pieces(text)
        shape = None if self._stand_ins is None else self._stand_ins.shape(text)
        return None if shape is None else _slices(text, self._plane.pieces(shape))

    @cached_property
    def _ascii(self) -> "_Expressions | None":
        return _Expressions.of(self._stages, _alphabet(_ASCII_END))

    @cached_property
    def _plane(self) -> "_Expressions | None":
        return _Expressions.of(self._stages, _alphabet(_PLANE_END))

    @cached_property
    def _stand_ins(self) -> StandIns | None:
        """None if an expression but CJK names non-ASCII characters: it may tell a stand-in from what it stands for."""
        if self._plane is None or not all(stage.isascii() or stage == CJK for stage in self._stages):
            return None
        return StandIns(self._plane.categories)


class _Expressions:
    """The expressions for text of one alphabet."""

    def __init__(self, before: Sequence[str], last: str, categories: frozenset[str]) -> None:
        self.categories = categories
        self._before = [re.compile(f"({each})") for each in before]
        # Text that nothing matches is a piece too, up to the next match.
        self._last = re.compile(rf"{last}|(?:(?!{last})[\s\S])+")

    @classmethod
    def of(cls, stages: Sequence[str], alphabet: Alphabet) -> "_Expressions | None":
        categories: set[str] = set()

        def members(category: str) -> str:
            categories.add(category)
            return alphabet.members(category)

        *before, last = (f"[{members(NUMERALS)}]" if stage == DIGIT else translated(stage, members) for stage in stages)
        known = [each for each in before if each is not None]
        return cls(known, last, frozenset(categories)) if last is not None and len(known) == len(before) else None

    def pieces(self, text: str) -> Iterable[str]:
        parts: Iterable[str] = (text,)
        for pattern in self._before:
            parts = chain.from_iterable(map(pattern.split, parts))
        if len(text) > AT_ONCE:
            return (match[0] for part in parts for match in self._last.finditer(part))
        return chain.from_iterable(map(self._last.findall, parts))


@cache
def _alphabet(end: int) -> Alphabet:
    return Alphabet(end)


def _slices(text: str, pieces: Iterable[str]) -> Iterator[str]:
    """Yield the text in pieces of the same lengths as these."""
    at = 0
    for piece in pieces:
        yield text[at : at + len(piece)]
        at += len(piece)
