"""What a principal's generations have left in an engine's cache, while it is the only one: then it may be told.

Remembers the ids of recent generations, and finds the longest beginning of a prompt that one of them had. When a second
principal appears, everything is forgotten, since the longest common beginning is then an oracle: whoever asks twice,
with a request of another principal in between that takes the slot, would learn how far the two agree. It knows no
engine and no slot.
"""

from collections.abc import Sequence
from typing import Final

_IDS: Final = 1 << 20
"""Ids that are remembered in all, 8 MiB of references; the oldest are forgotten first."""
_ENTRIES: Final = 64
"""Generations that are remembered."""


class LeftBehind:
    """The generations of one engine, as long as all of them belong to one principal."""

    def __init__(self, max_ids: int = _IDS, max_entries: int = _ENTRIES) -> None:
        """Remember nothing yet. `max_ids`: ids in all; `max_entries`: generations."""
        self._max_ids = max_ids
        self._max_entries = max_entries
        self._owner: str | None = None
        self.several = False
        """Whether more than one principal has used the engine."""
        self._held: list[list[int]] = []
        """The ids of each generation, the latest last."""
        self.size = 0
        """Ids that are remembered now."""

    def enter(self, owner: str) -> None:
        """Note that a principal is about to generate."""
        self._owner = self._owner or owner
        if owner != self._owner:
            self.several = True
            self._held, self.size = [], 0

    def own(self, prompt: Sequence[int]) -> int:
        """How many ids of a prompt's beginning one of the generations had."""
        best = 0
        for ids in reversed(self._held):
            # Most begin differently, so one id is compared before any slices are made.
            longer = best < min(len(ids), len(prompt)) and ids[best] == prompt[best]
            if longer and ids[:best] == prompt[:best]:
                best = shared_prefix(ids, prompt)
        return best

    def note(self, ids: list[int]) -> None:
        """Remember a generation, including its prompt. Generations that it continues are forgotten."""
        if self.several:
            return
        for before in [each for each in self._held if ids[: len(each)] == each]:
            self._forget(before)
        self._held.append(ids)
        self.size += len(ids)
        while len(self._held) > self._max_entries or self.size > self._max_ids:
            self._forget(self._held[0])

    def _forget(self, ids: list[int]) -> None:
        self._held.remove(ids)
        self.size -= len(ids)


def shared_prefix(held: Sequence[object], prompt: Sequence[object]) -> int:
    """Length of the common prefix, in ids or characters. A binary search, since slices compare at C speed."""
    low, high = 0, min(len(held), len(prompt))
    while low < high:
        middle = (low + high + 1) // 2
        if held[low:middle] == prompt[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
