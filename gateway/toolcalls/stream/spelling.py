"""How a format's markers appear in the text of one vocabulary, and the search for them.

A marker that is one special token appears as its stand-in character (`tokens.py`), any other as its own characters.
Text is searched only once: a finder says either where a marker begins, or from where one may still come, and only the
text after that is ever held back. Knows nothing of buffers or streams.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

_NOTHING = "(?!)"


class Delimiters:
    """Finds the first of several texts, or the place from which one of them may still come."""

    def __init__(self, texts: tuple[str, ...]) -> None:
        self._texts = frozenset(texts)
        starts = {text[:length] for text in texts for length in range(1, len(text))} - self._texts
        wholes = [re.escape(text) for text in _longest_first(self._texts)]
        partial = [re.escape(start) + r"\Z" for start in _longest_first(starts)]
        self._whole = re.compile("|".join(wholes) or _NOTHING)
        self._either = re.compile("|".join([*wholes, *partial]) or _NOTHING)

    def find(self, text: str, start: int, *, ended: bool) -> tuple[int, bool]:
        """Return where the text before the first delimiter ends, and whether a whole delimiter stands there.

        Unless the stream has `ended`, a proper prefix of a delimiter at the end of `text` ends it too. The leftmost
        place wins, so that the result does not depend on how the stream was cut.
        """
        found = (self._whole if ended else self._either).search(text, start)
        if found is None:
            return len(text), False
        return found.start(), found.group() in self._texts


@lru_cache(maxsize=256)
def delimiters(texts: tuple[str, ...]) -> Delimiters:
    """Return the finder for these texts, built once. No text may be the start of another."""
    return Delimiters(texts)


class Spelling:
    """Translates between the characters of a format's definition and those of one stream."""

    def __init__(self, guards: Mapping[str, str]) -> None:
        self._guards = {marker: guards[marker] for marker in _longest_first(guards)}
        self._plain = {ord(stand_in): marker for marker, stand_in in guards.items()}

    def spell(self, text: str) -> str:
        """Return a text of the format's definition as it appears in the stream."""
        for marker, stand_in in self._guards.items():
            text = text.replace(marker, stand_in)
        return text

    def plain(self, text: str) -> str:
        """Return a text of the stream as an event shows it: no stand-in leaves this package."""
        return text.translate(self._plain) if self._plain and not text.isascii() else text

    def finder(self, texts: tuple[str, ...]) -> Delimiters:
        """Return the finder for texts of the definition."""
        return delimiters(tuple(map(self.spell, texts)))

    def guarded(self, marker: str) -> bool:
        """Whether the marker is one special token, so that no other token can spell it."""
        return marker in self._guards


def _longest_first(texts: "frozenset[str] | set[str] | Mapping[str, str]") -> list[str]:
    return sorted(texts, key=lambda text: (-len(text), text))
