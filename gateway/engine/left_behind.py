"""What each principal's own requests have left in an engine's cache, as far as anybody may be told.

Remembers the ids of recent generations by principal, and gives the longest beginning of a prompt that one of the
principal's own generations had. Figures about the cache never count more: what they said beyond that would tell one
principal that another has asked the same. It knows no engine and no slot.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

_IDS: Final = 1 << 20
"""Ids that are remembered in all, 8 MiB of references; what was used longest ago goes first."""
_ENTRIES: Final = 64
"""Generations that are remembered of one principal."""


class LeftBehind:
    """The generations of one engine, by principal."""

    def __init__(self, most: int = _IDS, entries: int = _ENTRIES) -> None:
        """Remember nothing yet. `most`: ids in all; `entries`: generations of one principal."""
        self._most = most
        self._entries = entries
        self._held: OrderedDict[str, list[list[int]]] = OrderedDict()
        """By principal, the one that was heard last at the end; of each the latest generation at the end."""
        self.size = 0
        """Ids that are remembered now."""

    def own(self, owner: str, prompt: Sequence[int]) -> int:
        """How many ids of a prompt's beginning one of the principal's own generations had."""
        best = 0
        for ids in reversed(self._held.get(owner, [])):
            # Most begin otherwise: one id tells, before slices are made.
            longer = best < min(len(ids), len(prompt)) and ids[best] == prompt[best]
            if longer and ids[:best] == prompt[:best]:
                best = shared_prefix(ids, prompt)
        return best

    def note(self, owner: str, ids: list[int]) -> None:
        """Remember a generation, prompt and all; what it continues needs no place of its own."""
        held = self._held.setdefault(owner, [])
        self._held.move_to_end(owner)
        for before in [each for each in held if ids[: len(each)] == each]:
            self._forget(held, before)
        held.append(ids)
        self.size += len(ids)
        while len(held) > self._entries:
            self._forget(held, held[0])
        while self.size > self._most:
            oldest, theirs = next(iter(self._held.items()))
            self._forget(theirs, theirs[0])
            if not theirs:
                del self._held[oldest]

    def _forget(self, held: list[list[int]], ids: list[int]) -> None:
        held.remove(ids)
        self.size -= len(ids)


def shared_prefix(held: Sequence[int], prompt: Sequence[int]) -> int:
    """Length of the common prefix, in ids. Compares in halves, since slices compare at C speed."""
    low, high = 0, min(len(held), len(prompt))
    while low < high:
        middle = (low + high + 1) // 2
        if held[low:middle] == prompt[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
