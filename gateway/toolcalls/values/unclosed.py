"""Finds where a string between markers ends if its closing marker is missing: at the next key, or at the call's end.

Turns the end of such a text into a place in it, or none. Knows nothing of what strings are converted to.
"""

import re

_MAX_KEY = 128
"""Most characters at the end of a string that are held because they may be the next key."""

_MAX_CLOSING = 128
"""Most brackets and blanks at the end of a string that are held because a marker may follow them."""

_BRACKET = re.compile(r"[}\])]")
_KEY = re.compile(r",[ \t\r\n]*+(?P<key>[\w-]++)[ \t\r\n]*+:[ \t\r\n]*+\Z")
_KEY_START = re.compile(r",[ \t\r\n]*+[\w-]*+[ \t\r\n]*+:?[ \t\r\n]*+\Z")


def key_behind(text: str, start: int, end: int, *, whole: bool) -> re.Match[str] | None:
    """Find a comma and a key with which `text[start:end]` ends; unless it is `whole`, what may become that."""
    return (_KEY if whole else _KEY_START).search(text, max(start, end - _MAX_KEY), end)


def brackets_behind(text: str, stops: tuple[str, ...], most: int, *, ended: bool) -> tuple[int, int] | None:
    """Return where the closing brackets at the end of a text begin, and where the marker after them does.

    One of `stops` or, unless the stream has `ended`, the beginning of one must follow the brackets, and nothing else.
    At most `most` brackets belong there once the stream has ended: those before them are the text's own.
    """
    if not stops or not any(bracket in text for bracket in "}])"):
        return None
    rest = text.rstrip()
    kept = max((n for stop in stops for n in range(len(stop) + 1) if rest.endswith(stop[:n])), default=0)
    place = len(rest) - kept
    brackets = len(rest[:place].rstrip("}]) \t\r\n"))
    if ended:
        own = len(_BRACKET.findall(rest, brackets, place)) - most
        brackets = next(
            (found.end() for n, found in enumerate(_BRACKET.finditer(rest, brackets, place), 1) if n == own), brackets
        )
    # Blanks before the first bracket were told as they arrived: they belong to the string.
    brackets += len(rest[brackets:place]) - len(rest[brackets:place].lstrip())
    if len(text) - brackets > _MAX_CLOSING:
        return None
    if not rest[brackets:place].strip() or (ended and rest[place:] not in stops):
        return None
    return brackets, place
