"""Characters beyond the basic plane, replaced by ones within it that every class of an expression treats alike.

Python's `re` finds a class's members in the basic plane with one look-up, and those beyond by trying range after range.
An emoji cuts a text as a currency sign does, so for cutting one may stand for the other. The library is asked, once,
to which classes a character belongs.
"""

import re
from collections.abc import Collection
from typing import Final

from .expressions import matches

_BEYOND: Final = re.compile("[\U00010000-\U0010ffff]")
# One of each general category: letters, marks, numbers, punctuation, symbols, and what is none of these.
_CANDIDATES: Final = "ÀàǅʰªÌ\u0301\u0903\u0488٣Ⅷ²‿‐⁅⁆«»¡±¢´¦\u200b\ue000"
_MOST_NEW: Final = 256
"""The most unknown characters that are looked up for one text: each costs as much as a hundred known ones."""
_MOST: Final = 4096


class StandIns:
    """Stand-ins for one set of classes."""

    def __init__(self, categories: Collection[str]) -> None:
        """`categories`: all classes that the expressions ask about."""
        self._categories = categories
        self._by_kind = {self._kind(each): each for each in _CANDIDATES}
        self._known: dict[str, str | None] = {}

    def shape(self, text: str) -> str | None:
        """Return a text of the basic plane that is cut at the same places; None if none is known."""
        strange = set(_BEYOND.findall(text))
        if len(self._known) > _MOST:
            # Replaced, not cleared: threads that are encoding meanwhile continue with the old one.
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
