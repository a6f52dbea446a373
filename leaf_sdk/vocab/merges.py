"""The merges of a map, kept as its `left right` lines and read as pairs.

A vocabulary has as many merges as tokens. Kept as pairs, they would take a third of a map's memory and cause a third of
the garbage collector's work; kept as the lines that the map has, they do neither, and become pairs where they are used.
"""

from collections.abc import Iterator, Sequence
from typing import cast, overload

Pair = tuple[str, str]


class Merges(Sequence[Pair]):
    """Pairs of tokens, best first; equal to any sequence of the same pairs."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[Pair]:
        return iter(self.pairs())

    def pairs(self) -> list[Pair]:
        """Return all of them at once, which takes half the time of reading them one by one."""
        return cast("list[Pair]", [tuple(line.split(" ")) for line in self._lines])

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> "Merges": ...
    def __getitem__(self, index: int | slice) -> "Pair | Merges":
        return Merges(self._lines[index]) if isinstance(index, slice) else _pair(self._lines[index])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Merges):
            return self._lines == other._lines
        return list(self) == list(cast("Sequence[object]", other)) if isinstance(other, Sequence) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self._lines))


def _pair(line: str) -> Pair:
    left, _, right = line.partition(" ")
    return left, right
