"""What a principal's generations have left in an engine's cache, while there is no other: figures may tell of it.

Remembers the ids of recent generations, and gives the longest beginning of a prompt that one of them had. Once a second
principal has come it knows nothing any more: a longest common beginning is then an oracle. Whoever asks twice, with a
request of another in between that takes the slot, would be told how far the two agree. It knows no engine and no slot.
"""

from collections.abc import Sequence
from typing import Final

_IDS: Final = 1 << 20
"""Ids that are remembered in all, 8 MiB of references; what was used longest ago goes first."""
_ENTRIES: Final = 64
"""Generations that are remembered."""


class LeftBehind:
    """The generations of one engine, as long as all are of one principal."""

    def __init__(self, most: int = _IDS, entries: int = _ENTRIES) -> None:
        """Remember nothing yet. `most`: ids in all; `entries`: generations."""
        self._most = most
        self._entries = entries
        self._owner: str | None = None
        self.several = False
        """Whether more than one principal has come."""
        self._held: list[list[int]] = []
        """The latest generation at the end."""
        self.size = 0
        """Ids that are remembered now."""

    def enter(self, owner: str) -> None:
        """A principal wants to generate."""
        self._owner = self._owner or owner
        if owner != self._owner:
            self.several = True
            self._held, self.size = [], 0

    def own(self, prompt: Sequence[int]) -> int:
        """How many ids of a prompt's beginning one of the generations had."""
        best = 0
        for ids in reversed(self._held):
            # Most begin otherwise: one id tells, before slices are made.
            longer = best < min(len(ids), len(prompt)) and ids[best] == prompt[best]
            if longer and ids[:best] == prompt[:best]:
                best = shared_prefix(ids, prompt)
        return best

    def note(self, ids: list[int]) -> None:
        """Remember a generation, prompt and all; what it continues needs no place of its own."""
        if self.several:
            return
        for before in [each for each in self._held if ids[: len(each)] == each]:
            self._forget(before)
        self._held.append(ids)
        self.size += len(ids)
        while len(self._held) > self._entries or self.size > self._most:
            self._forget(self._held[0])

    def _forget(self, ids: list[int]) -> None:
        self._held.remove(ids)
        self.size -= len(ids)


def shared_prefix(held: Sequence[object], prompt: Sequence[object]) -> int:
    """Length of the common prefix, in ids or characters. Compares in halves, since slices compare at C speed."""
    low, high = 0, min(len(held), len(prompt))
    while low < high:
        middle = (low + high + 1) // 2
        if held[low:middle] == prompt[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
