"""One tool's definition, cut out of a prompt that a chat template wrote with it and another without it. Pure."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gateway.engine.left_behind import shared_prefix

_BETWEEN: Final = " ,\n"
"""What templates write between two definitions."""
_ELEMENT: Final = re.compile(r"<([\w|]+)[ >]")
_NAMES: Final = ("aardvark", "zyzzyva")
"""Of the tools before and behind it: their definitions have as little in common with others as possible."""


def around(definition: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """Return the tools to render: two others, and this one between them."""
    first, last = (
        {"type": "function", "function": {"name": name, "description": name, "parameters": {"type": "object"}}}
        for name in _NAMES
    )
    return [first, last] if definition is None else [first, definition, last]


def definition_in(text: str, without: str) -> str | None:
    """Return the definition that `text` has and `without` lacks; None where its ends can't be told.

    Both texts agree around it, and the end of the definition before it may equal its own end: then it could begin
    earlier. The place nearest to what differs counts where a whole JSON object or element begins, or else a line.
    """
    size = len(text) - len(without)
    start = shared_prefix(text, without)
    if size <= 0 or text[start + size :] != without[start:]:
        return None
    line: str | None = None
    for place in _places(text, start, size):
        found = text[place : place + size]
        if _is_whole(found):
            return found.strip(_BETWEEN)
        if line is None and text[place - 1 : place] == "\n":
            line = found
    return None if line is None else line.strip(_BETWEEN)


def _places(text: str, start: int, size: int) -> Iterator[int]:
    """Where it could begin, the last place first."""
    yield start
    while start and text[start - 1] == text[start + size - 1]:
        start -= 1
        yield start


def _is_whole(text: str) -> bool:
    text = text.strip(_BETWEEN)
    if text.startswith("{"):
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return False
        return True
    opening = _ELEMENT.match(text)
    return opening is not None and text.endswith(f"</{opening[1]}>")


def as_json(definition: Mapping[str, Any]) -> str:
    """Return a definition as JSON text, in the shape that most templates write."""
    return json.dumps(definition, ensure_ascii=False, default=dict).encode("utf-8", "replace").decode()
