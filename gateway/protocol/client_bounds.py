"""How much a client may say about itself: its capabilities are kept for its session, its roots are sent to servers.

Turns what a client announced, or answered, into the reason why it is too much. Pure.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

_ENTRIES: Final = 256
"""Keys and items of a client's capabilities, nested ones too."""
_TEXT: Final = 16_384
"""Characters of all their keys and strings."""
_ROOTS: Final = 1000


def excess_of_capabilities(capabilities: Mapping[str, Any]) -> str | None:
    """Why these capabilities are more than a client may announce; None: they are within the bounds."""
    entries, text = 0, 0
    waiting: list[object] = [capabilities]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            text += len(value)
        elif isinstance(value, Mapping):
            inner = cast("Mapping[str, object]", value)
            waiting += inner.values()
            entries += len(inner)
            text += sum(map(len, inner))
        elif isinstance(value, list):
            waiting += cast("list[object]", value)
            entries += len(cast("list[object]", value))
        if entries > _ENTRIES:
            return f"they have more than {_ENTRIES} entries"
        if text > _TEXT:
            return f"their text has more than {_TEXT} characters"
    return None


def excess_of_answer(method: str, result: Mapping[str, Any]) -> str | None:
    """Why a client's answer to a server's request is too large to be passed on; None: it is not."""
    roots: object = result.get("roots")
    if method != "roots/list" or not isinstance(roots, list):
        return None
    number = len(cast("list[object]", roots))
    return f"the client has {number} roots: at most {_ROOTS} are passed on" if number > _ROOTS else None
