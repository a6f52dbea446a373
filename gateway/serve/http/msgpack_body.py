"""A body in msgpack, decoded within bounds.

Turns bytes into values. A list or map may take one byte in the body and sixty in memory, so their number is bounded as
in JSON: the bound of the body alone would let a request take sixty times as much. It knows no message.
"""

from typing import Any, Final, cast

import msgpack

from gateway.serve.http.body import VALUES

_unpack: Final = cast("Any", msgpack).unpackb


def unpack(body: bytes) -> object:
    """The value that a body holds.

    Raises:
        ValueError, TypeError, RecursionError: it is not msgpack, or has too many lists, maps and members of maps.
            Includes msgpack's own errors.
    """
    seen = 0

    def take(more: int) -> None:
        nonlocal seen
        seen += more
        if seen > VALUES:
            raise ValueError(f"it holds more than {VALUES} lists, maps and members")

    def keep_list(found: list[object]) -> list[object]:
        take(1)
        return found

    def keep_map(found: dict[object, object]) -> dict[object, object]:
        take(1 + len(found))
        return found

    # No map can have more members than that, so that one which does is not built first.
    return cast("object", _unpack(body, list_hook=keep_list, object_hook=keep_map, max_map_len=VALUES))
