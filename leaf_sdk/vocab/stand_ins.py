"""Characters beyond the basic plane, by ones within it that every class of an expression treats alike.

Python's engine finds a class's members in the basic plane by one look, and those beyond by trying range after range. An
emoji cuts a text as a currency sign does, so for cutting one may stand for the other. Which classes a character is of
is asked of the library, once.
"""

import re
from collections.abc import Collection
from typing import Final

from .expressions import matches

_BEYOND: Final = re.compile("[\U00010000-\U0010ffff]")
# Of every general category one: letters, marks, numbers, punctuation, symbols, and what is none of these.
_CANDIDATES: Final = "ÀàǅʰªÌ\u0301\u0903\u0488٣Ⅷ²‿‐⁅⁆«»¡±¢´¦\u200b\ue000"
_MOST_NEW: Final = 256
"""Characters that are looked up for one text: each costs as much as a hundred known ones."""
_MOST: Final = 4096


class StandIns:
    """Stand-ins for one set of classes."""

    def __init__(self, categories: Collection[str]) -> None:
        """`categories`: all that the expressions ask about a character, but whether it is a certain one."""
        self._categories = categories
        self._by_kind = {self._kind(each): each for each in _CANDIDATES}
        self._known: dict[str, str | None] = {}

    def shape(self, text: str) -> str | None:
        """Give a text of the basic plane that is cut at the same places; None where that is not known."""
        strange = set(_BEYOND.findall(text))
        if len(self._known) > _MOST:
            # Another one: threads that encode meanwhile go on with theirs.
            self._known = {}
        known = self._known
        new = strange.difference(known)
        if len(new) > _MOST_NEW:
            return None
        for each in new:
            known[each] = self._by_kind.get(self._kind(each))
        if any(known[each] is None for each in strange):
            return None
        return _BEYOND.sub(lambda found: known[found[0]] or "", text)

    def _kind(self, character: str) -> frozenset[str]:
        return frozenset(category for category in self._categories if matches(character, category))
