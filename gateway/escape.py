"""Makes text from elsewhere fit for one line of a terminal or a log.

Turns any text into one without control characters: a newline can't start a second log line, an escape sequence can't
colour or move anything, a direction mark can't reorder what is read. Long text is cut, and says so. It does not judge
what the text means.
"""

import sys
from typing import Final

CUT: Final = 2000
INVISIBLE: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0").union(
    map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)))
)
"""What Python counts as printable and nobody sees: fillers, blank braille, joiners and variation selectors."""
WHOLE: Final = sys.maxsize
"""A limit with which nothing is left out."""


def escape_text(text: str, limit: int = CUT, also: frozenset[str] = frozenset()) -> str:
    """The text on one line: unprintable characters, and those in `also`, as `\\n`, `\\x1b`, `\\u202e`.

    At most `limit` characters are returned, and how many of the text are left out. Backslashes stay as they are, so
    that paths read well; the result is for people, not for parsing back.
    """
    if text.isprintable() and also.isdisjoint(text[:limit]):
        return cut_text(text, limit)
    shown: list[str] = []
    room = limit
    for character in text[:limit]:
        plain = character.isprintable() and character not in also
        spelled = character if plain else character.encode("unicode_escape").decode("ascii")
        room -= len(spelled)
        if room < 0:
            break
        shown.append(spelled)
    return "".join(shown) + _left_out(len(text) - len(shown))


def cut_text(text: str, limit: int = CUT) -> str:
    """At most `limit` characters of the text, and how many are left out."""
    return text[:limit] + _left_out(len(text) - limit)


def _left_out(count: int) -> str:
    return f"… ({count} more characters)" if count > 0 else ""
