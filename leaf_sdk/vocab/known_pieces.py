"""A text to ids by its pieces, most of which were seen before: cut here, looked up, and only new ones are merged.

`tokenizers` keeps offsets, alignments and copies of every piece, although only the ids are read, and lets no other
thread run meanwhile: 0.8 s for a text of a megabyte. Cutting with Python's `re` and looking pieces up takes a third to
a fifth of that time (`bench.maps`), and other threads get their turn within 15 ms. A text that can't be cut here is
encoded by the library as a whole.
"""

import re
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Final

from .byte_level import ALPHABET
from .piece_cut import PieceCut

if TYPE_CHECKING:
    from tokenizers import Tokenizer

LONGEST_PIECE: Final = 32
"""Characters; longer pieces hardly ever occur twice, and are merged each time."""
MOST: Final = 16 * 1024
"""How many pieces are kept, some 4 MB; then all are forgotten, and those in use are soon known again."""
_SPELLED: Final = dict(enumerate(ALPHABET))


class KnownPieces:
    """Encodes text in front of a byte-level tokenizer."""

    def __init__(self, tokenizer: "Tokenizer", stages: Sequence[str], added: Collection[str]) -> None:
        """Take the tokenizer; nothing is built before the first text.

        Args:
            tokenizer: encodes what can't be encoded here.
            stages: the expressions by which it cuts, in turn.
            added: tokens that it matches in ordinary text before it cuts; a text with one is left to it.
        """
        self._tokenizer = tokenizer
        self._cut = PieceCut(stages)
        self._added = re.compile("|".join(map(re.escape, added))) if added else None
        self._ids = PieceIds(tokenizer)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text. Raises `TypeError` or `UnicodeEncodeError`: a lone surrogate."""
        pieces = None
        if self._added is None or self._added.search(text) is None:
            same = text if self._normalize is None or text.isascii() else self._normalize(text)
            pieces = self._cut.pieces(same)
        if pieces is None:
            return self._tokenizer.encode(text, add_special_tokens=False).ids
        return list(chain.from_iterable(map(self._ids.__getitem__, pieces)))

    @cached_property
    def _normalize(self) -> Callable[[str], str] | None:
        normalizer = self._tokenizer.normalizer
        return None if normalizer is None else normalizer.normalize_str


class PieceIds(dict[str, tuple[int, ...]]):
    """Ids by piece; an unknown piece is merged."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        """`tokenizer`: the one whose model merges."""
        super().__init__()
        self._model = tokenizer.model

    def __missing__(self, piece: str) -> tuple[int, ...]:
        """Ask the model, which takes bytes spelled in GPT-2's alphabet."""
        spelled = piece.encode().decode("latin-1").translate(_SPELLED)
        ids = tuple([token.id for token in self._model.tokenize(spelled)])
        if len(piece) <= LONGEST_PIECE:
            if len(self) >= MOST:
                self.clear()
            self[piece] = ids
        return ids
