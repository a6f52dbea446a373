"""Text from elsewhere, made fit for one line of a terminal or a log.

Turns any text into one without control characters: a newline can't start a second log line, an escape sequence can't
colour or move anything, a direction mark can't reorder what is read. What is long is cut, and says so. It judges no
meaning.
"""

from typing import Final

CUT: Final = 2000


def escape_text(text: str, limit: int = CUT) -> str:
    """The text on one line: unprintable characters as `\\n`, `\\x1b`, `\\u202e`; at most `limit` characters of it.

    Backslashes stay as they are, so that paths read well; the result is for people, not for parsing back.
    """
    cut = cut_text(text, limit)
    return cut if cut.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in cut)


def cut_text(text: str, limit: int = CUT) -> str:
    """At most `limit` characters of the text, and how many are left out."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit} more characters)"


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
