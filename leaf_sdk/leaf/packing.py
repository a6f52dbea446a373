"""Ids to a short text and back, for readers that announce that they take packed ids.

Each id becomes one to five bytes, seven bits at a time, low bits first (LEB128), and the bytes become base64: about two
thirds of the JSON list. A reader announces it in a request's `_meta`; any other reader would see no payload in packed
ids and tokenize the text again. Knows nothing of maps and results.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

PACKED_KEY: Final = "x_ids_leb128"
"""Replaces `ids` in a payload."""
PACKING_META_KEY: Final = "ai.codec/leaf-packing"
"""The key in a request's `_meta` under which a reader announces that it takes packed ids."""
PACKING: Final = "leb128"
MAX_PACKED_CHARACTERS: Final = 16 * 2**20
_MAX_SHIFT: Final = 28


def announce_packing(meta: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a request's `_meta` with an added announcement that its sender takes packed ids."""
    return {**(meta or {}), PACKING_META_KEY: PACKING}


def takes_packed(meta: object) -> bool:
    """Return whether a request's `_meta` announces that its sender takes packed ids."""
    return isinstance(meta, Mapping) and cast("Mapping[str, object]", meta).get(PACKING_META_KEY) == PACKING


def pack(ids: Iterable[int]) -> str:
    """Return the packed text of ids, each from 0 to 2^32 - 1."""
    data = bytearray()
    for each in ids:
        rest = each
        while rest > 0x7F:
            data.append(rest & 0x7F | 0x80)
            rest >>= 7
        data.append(rest)
    return base64.b64encode(data).decode("ascii")


def unpack(text: str) -> list[int] | None:
    """Return the ids of a packed text; None if it is not base64, ends inside an id, or is too long, or an id is."""
    if len(text) > MAX_PACKED_CHARACTERS:
        return None
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    ids: list[int] = []
    token_id = shift = 0
    for byte in data:
        token_id |= (byte & 0x7F) << shift
        if byte < 0x80:
            ids.append(token_id)
            token_id = shift = 0
        elif shift == _MAX_SHIFT:
            return None
        else:
            shift += 7
    return ids if shift == 0 and max(ids, default=0) < 2**32 else None
