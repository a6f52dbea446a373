"""A body in msgpack, decoded within bounds.

Turns bytes into values. A list or map may take one byte in the body and sixty in memory, so their number is bounded:
the bound of the body alone would let a request take sixty times as much. It knows no message.
"""

from itertools import count
from typing import Any, Final, TypeVar, cast

import msgpack

CONTAINERS: Final = 250_000
"""The most lists and maps of one body."""
_unpack: Final = cast("Any", msgpack).unpackb

T = TypeVar("T")


def unpack(body: bytes) -> object:
    """The value that a body holds.

    Raises:
        ValueError, TypeError, RecursionError: it is not msgpack, or has too many lists and maps. Includes msgpack's own
            errors.
    """
    seen = count(1)

    def keep(container: T) -> T:
        if next(seen) > CONTAINERS:
            raise ValueError(f"it holds more than {CONTAINERS} lists and maps")
        return container

    return cast("object", _unpack(body, list_hook=keep, object_hook=keep))
