"""Values of a record as bytes, and back. What strings may hold here, lone surrogates among it, comes back as it was."""

from typing import Any, cast

import msgpack

_packb, _unpackb = cast(Any, msgpack.packb), cast(Any, msgpack.unpackb)


def packed(value: object) -> bytes:
    """Lists, texts, bytes and numbers as bytes."""
    data: bytes = _packb(value, unicode_errors="surrogatepass")
    return data


def unpacked(data: bytes) -> Any:
    """The value of bytes that a replica has packed."""
    return _unpackb(data, unicode_errors="surrogatepass", strict_map_key=False)
