"""Closing brackets that a model wrote once too often, or forgot, at the end of its calls.

Small models miscount brackets. What follows decides: before a marker that belongs there they mean nothing.
"""

import re
from collections.abc import Generator

from gateway.toolcalls.nodes.combinators import pick
from gateway.toolcalls.nodes.readers import Lit
from gateway.toolcalls.stream.cursor import Cursor

_MAX_SPARE = 64
"""Most characters of spare brackets and whitespace that are held until it is clear what follows."""

_BRACES = re.compile(r"\}[ \t\r\n}]*+")
_BRACKETS = re.compile(r"[}\])][ \t\r\n}\])]*+")


def skip_spare(at: Cursor, followers: tuple[str, ...], *, braces: bool = False) -> Generator[None, None, None]:
    """Skip brackets here if one of `followers` (as they stand in the stream), or the end of the stream, follows.

    `braces`: only those, because a bracket may belong here.
    """
    spare = _BRACES if braces or any(text.startswith("]") for text in followers) else _BRACKETS
    while found := spare.match(at.buffer, at.position, at.position + _MAX_SPARE):
        at.scanned += found.end() - at.position
        rest = at.buffer[found.end() : found.end() + _MAX_SPARE]
        if rest.startswith(followers) or (not rest and at.ended):
            at.calls.repair(f"it has brackets too many at character {at.offset}")
            at.take(found.end())
            return
        unsure = found.end() - at.position < _MAX_SPARE and any(text.startswith(rest) for text in followers)
        if at.ended or not (unsure or not rest):
            return
        yield


def lacks_rest(at: Cursor, what: str) -> bool:
    """Whether the model ended its message here; then it left out `what` of the current call, which is repaired."""
    if not at.whole or at.unread:
        return False
    at.calls.repair(f"{what} is missing at character {at.offset}")
    return True


def lacks_closer(at: Cursor, *others: str) -> Generator[None, None, bool]:
    """Whether a marker of the region, or the end of the message, stands where a closing bracket is missing.

    `others` are texts that show it too.
    """
    followers = tuple(map(Lit, (*others, *map(at.spelling.plain, at.stops))))
    if (yield from pick(at, followers)) is None:
        return lacks_rest(at, "a closing bracket")
    at.calls.repair(f"a closing bracket is missing at character {at.offset}")
    return True
