"""Ids of a text by its pieces, most of which were seen before: cut here, looked up, and only what is new is merged.

`tokenizers` keeps offsets, alignments and copies of every piece, of which nobody reads anything but the ids. Cutting
with Python's engine and looking pieces up costs a fraction of that for text as tools write it (`bench.maps`). Where the
cut can't be made here for sure as the library makes it, the library encodes the whole text. Below: `expressions`.
Above: `encoding`.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache, cached_property
from itertools import chain
from typing import TYPE_CHECKING, Final

from .byte_level import ALPHABET
from .expressions import NUMERALS, Alphabet, translated
from .programs import DIGIT

if TYPE_CHECKING:
    from tokenizers import Tokenizer

AT_ONCE: Final = 4 * 1024
"""Characters. What is longer is cut piece by piece, so that other threads get their turn in between."""
LONGEST_PIECE: Final = 32
"""Characters; longer pieces hardly come twice, and are merged each time."""
MOST: Final = 16 * 1024
"""Pieces that are kept, some 3 MB; then all are forgotten, and those in use are soon known again."""
_SPELLED: Final = dict(enumerate(ALPHABET))


@cache
def ascii_letters() -> Alphabet:
    """What most text is made of."""
    return Alphabet(0x80)


@cache
def plane() -> Alphabet:
    """Unicode's basic plane. Beyond it Python tries the ranges of a class one by one, and is no faster than the
    library."""
    return Alphabet(0x10000)


class KnownPieces:
    """Encodes text in front of a byte-level tokenizer."""

    def __init__(self, tokenizer: "Tokenizer", stages: Sequence[str], added: Collection[str]) -> None:
        """Nothing is built before the first text.

        Args:
            tokenizer: encodes what can't be done here.
            stages: the expressions that it cuts by, in turn.
            added: tokens that it matches in ordinary text before it cuts; a text with one is left to it.
        """
        self._tokenizer = tokenizer
        self._stages = stages
        self._added = re.compile("|".join(map(re.escape, added))) if added else None
        self._ids = PieceIds(tokenizer)

    def encode(self, text: str) -> list[int]:
        """Give the ids of a text.

        Raises:
            TypeError, UnicodeEncodeError: a lone surrogate.
        """
        cut, normal = self._cut_of(text)
        if cut is None or (self._added is not None and self._added.search(text) is not None):
            return self._tokenizer.encode(text, add_special_tokens=False).ids
        pieces = cut.pieces(normal) if len(normal) <= AT_ONCE else cut.in_turn(normal)
        return list(chain.from_iterable(map(self._ids.__getitem__, pieces)))

    def _cut_of(self, text: str) -> "tuple[Cut | None, str]":
        """How the text is cut, and what is cut in its place."""
        if text.isascii():
            return self._ascii_cut, text
        if self._normalize is not None:
            text = self._normalize(text)
        # Two bytes a character exactly where none is beyond the basic plane.
        return (self._plane_cut if len(text.encode("utf-16-le")) == 2 * len(text) else None), text

    @cached_property
    def _ascii_cut(self) -> "Cut | None":
        return Cut.by(self._stages, ascii_letters())

    @cached_property
    def _plane_cut(self) -> "Cut | None":
        return Cut.by(self._stages, plane())

    @cached_property
    def _normalize(self) -> Callable[[str], str] | None:
        normalizer = self._tokenizer.normalizer
        return None if normalizer is None else normalizer.normalize_str


class PieceIds(dict[str, tuple[int, ...]]):
    """Ids by piece; a piece that is not known is merged."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        """`tokenizer`: whose model merges."""
        super().__init__()
        self._model = tokenizer.model

    def __missing__(self, piece: str) -> tuple[int, ...]:
        """Ask the model, which knows bytes by their letters."""
        spelled = piece.encode().decode("latin-1").translate(_SPELLED)
        ids = tuple([token.id for token in self._model.tokenize(spelled)])
        if len(piece) <= LONGEST_PIECE:
            if len(self) >= MOST:
                self.clear()
            self[piece] = ids
        return ids


class Cut:
    """Text to its pieces, by expressions of Python's."""

    def __init__(self, before: Sequence[re.Pattern[str]], last: re.Pattern[str]) -> None:
        """`before`: each has one group, the whole. `last`: matches all of a text."""
        self._before = before
        self._last = last

    @classmethod
    def by(cls, stages: Sequence[str], alphabet: Alphabet) -> "Cut | None":
        """Give the cut that `tokenizers` makes by these expressions in text of an alphabet; None: not for sure."""
        members = alphabet.members
        *before, last = (f"[{members(NUMERALS)}]" if stage == DIGIT else translated(stage, members) for stage in stages)
        if last is None or None in before:
            return None
        # What no match holds is a piece too, up to the next match.
        return cls([re.compile(f"({each})") for each in before], re.compile(rf"{last}|(?:(?!{last})[\s\S])+"))

    def pieces(self, text: str) -> list[str]:
        """All at once: the fastest way."""
        if not self._before:
            return self._last.findall(text)
        return list(chain.from_iterable(map(self._last.findall, self._parts(text))))

    def in_turn(self, text: str) -> Iterator[str]:
        """One by one: the same pieces."""
        return (match[0] for part in self._parts(text) for match in self._last.finditer(part))

    def _parts(self, text: str) -> Iterable[str]:
        parts: Iterable[str] = (text,)
        for pattern in self._before:
            parts = chain.from_iterable(map(pattern.split, parts))
        return parts
