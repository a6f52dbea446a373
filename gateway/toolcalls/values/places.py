"""Where a value stands in JSON that is read from its beginning: the keys and the lists around it.

Turns the text before a value into its path, by which a schema says what the value may be. An item of a list is `ITEM`,
whichever it is.
"""

import json
import re
from collections.abc import Sequence
from typing import Final

Place = str | int
"""A step of a path: the key of an object's member, or `ITEM`."""
ITEM: Final = 0

KEPT: Final = 512
"""Characters before a value in which its key is looked for."""
_BLANK: Final = " \t\r\n"
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[{}\[\]]', re.DOTALL)


def last_key(text: str) -> str | None:
    """Return the key of the member whose value follows this JSON; None where no key is before it."""
    before = text[-KEPT:].rstrip(_BLANK)
    word = before[:-1].rstrip(_BLANK)
    if not before.endswith(":") or not word.endswith('"'):
        return None
    start = len(word) - 1
    while (start := word.rfind('"', 0, start)) >= 0:
        ahead = word[:start]
        if (len(ahead) - len(ahead.rstrip("\\"))) % 2 == 0:
            return json.loads(word[start:], strict=False)
    return None


def recent(pieces: Sequence[str], before: str) -> str:
    """Return the last characters of a text in pieces, which continues the text `before`."""
    kept = ""
    for piece in reversed(pieces):
        kept = piece + kept
        if len(kept) >= KEPT:
            return kept[-KEPT:]
    return (before + kept)[-KEPT:]


def open_places(text: str) -> list[Place | None]:
    """Return where each bracket stands that a beginning of JSON leaves open; None for the outermost."""
    places: list[Place | None] = []
    brackets: list[str] = []
    word = '""'
    for found in _TOKEN.finditer(text):
        part = found.group()
        if part[0] == '"':
            word = part
        elif part in "{[":
            inner = brackets[-1] if brackets else ""
            places.append(ITEM if inner == "[" else json.loads(word, strict=False) if inner else None)
            brackets.append(part)
        elif brackets:
            places.pop()
            brackets.pop()
    return places
