"""What models write between the tokens of JSON, and JSON does not allow: comments, escaped line ends, odd blanks.

It means nothing, as whitespace does. Knows nothing of tokens or strings.
"""

import re

MAX_GAP = 512
"""Most characters of a comment that are held until its end comes."""

_PIECE = re.compile(r"[\s\ufeff]++|\\[nrt]|(?://|#)[^\n]*+\n|/\*(?:[^*]|\*(?!/))*\*/")
_UNFINISHED = re.compile(r"\\\Z|/\Z|(?://|#)[^\n]*+\Z|/\*(?:[^*]|\*(?!/))*\Z")


def skip_gap(text: str, at: int, *, ended: bool) -> int | None:
    """Return the place behind what means nothing at `at`; None while more text is needed to tell.

    `ended` says that no more text will come. A comment that is too long, or has no end, is not one.
    """
    limit = at + MAX_GAP
    while found := _PIECE.match(text, at, limit):
        at = found.end()
    return None if not ended and len(text) < limit and _UNFINISHED.match(text, at) else at
