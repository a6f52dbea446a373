"""Values of a record into bytes, and back. Strings come back as they were, lone surrogates included."""

from typing import Any, cast

import msgpack

_packb, _unpackb = cast("Any", msgpack.packb), cast("Any", msgpack.unpackb)


def packed(value: object) -> bytes:
    """Lists, strings, bytes and numbers, as bytes."""
    data: bytes = _packb(value, unicode_errors="surrogatepass")
    return data


def unpacked(data: bytes) -> Any:
    """The value that `packed` turned into bytes."""
    return _unpackb(data, unicode_errors="surrogatepass", strict_map_key=False)
