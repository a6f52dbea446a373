"""Text to pieces by the best-scored path, added up in single precision as `sentencepiece` does.

`tokenizers` adds the same scores in double precision, and takes other paths where two are nearly equal: a run of one
letter is enough. Here every sum is rounded to a float, so ties are decided as in the reference. Knows nothing of spaces
or of special tokens.

Source: sentencepiece's unigram_model.cc, the optimized encoder; a text of n characters costs n times the longest piece
that fits.
"""

from array import array
from collections.abc import Mapping, Sequence

_UNKNOWN_PENALTY = 10.0


class FloatUnigram:
    """A vocabulary of scored pieces. Characters that are not a piece become bytes, through `byte_ids`."""

    def __init__(self, pieces: Mapping[str, tuple[int, float]], byte_ids: Sequence[int]) -> None:
        self._pieces = pieces
        self._byte_ids = byte_ids
        floats = array("f", [score for _, score in pieces.values()])
        unknown = array("f", [min(floats, default=0.0) - _UNKNOWN_PENALTY])
        self._unknown = unknown[0]
        self._beginnings = frozenset(piece[:end] for piece in pieces for end in range(1, len(piece) + 1))

    def encode(self, text: str) -> list[int]:
        """Return the ids of the best path; of two equal ones, the one whose last piece is longer."""
        starts = self._best_starts(text)
        ids: list[int] = []
        end = len(text)
        while end > 0:
            start = starts[end]
            piece = self._pieces.get(text[start:end])
            ids += [piece[0]] if piece else [self._byte_ids[byte] for byte in reversed(text[start:end].encode())]
            end = start
        ids.reverse()
        return ids

    def _best_starts(self, text: str) -> list[int]:
        """Give, for every end, where the last piece of the best path to it starts."""
        pieces, beginnings = self._pieces, self._beginnings
        starts = [-1] * (len(text) + 1)
        best = array("f", bytes(4 * (len(text) + 1)))
        rounded = array("f", [0.0])
        for start in range(len(text)):
            so_far, end, has_single = best[start], start + 1, False
            while end <= len(text) and (part := text[start:end]) in beginnings:
                found = pieces.get(part)
                if found is not None:
                    rounded[0] = found[1] + so_far
                    if starts[end] < 0 or rounded[0] > best[end]:
                        starts[end], best[end] = start, rounded[0]
                    has_single = has_single or end == start + 1
                end += 1
            rounded[0] = self._unknown + so_far
            if not has_single and (starts[start + 1] < 0 or rounded[0] > best[start + 1]):
                starts[start + 1], best[start + 1] = start, rounded[0]
        return starts
