"""A request's body as bytes, decompressed, or decoded from msgpack, within one bound."""

import re
from typing import Any, Final, cast

import msgpack
from starlette.requests import Request

from gateway.errors import RequestInvalid
from leaf_sdk.errors import BodyInvalid, BodyTooLarge
from leaf_sdk.wire import Coding, Decoder, available_codings

# A request's body as bytes, decompressed, within one bound.
#
# Stops reading at the bound, which applies both to the bytes sent and to what they decompress to, so that a small body
# can't fill the memory. JSON is not parsed here, but what parsing it would cost is bounded: a list may take two bytes.

VALUES: Final = 200_000
"""Most lists, objects and members of objects in one body: each costs the event loop a microsecond, and more later."""
_AVAILABLE: Final = available_codings()
_TEXT: Final = re.compile(rb'"[^"]*+"?')


class BodyOverLimit(RequestInvalid):
    """The body is over the bound, either as it was sent or decompressed."""

    def __init__(self, bound: int) -> None:
        super().__init__(f"the body is longer than {bound} bytes (limits.body_bytes)")


class BodyUnread(RequestInvalid):
    """The body is in a form that this endpoint does not accept."""


def media_type(content_type: str) -> str:
    """The media type in a `Content-Type`, without parameters: they don't decide whether browsers ask before sending."""
    return content_type.partition(";")[0].strip().lower()


def must_be_json(request: Request) -> None:
    """Refuse a body that is not declared as JSON: pages of any origin can send some other types without a preflight.

    Raises:
        BodyUnread: another content type, or none.
    """
    content_type = request.headers.get("content-type", "")
    if media_type(content_type) != "application/json":
        raise BodyUnread(f"Content-Type {content_type!r:.80} is not accepted here: send application/json")


async def read_body(request: Request, bound: int, *, binary: bool = False) -> bytes:
    """Read a body of at most `bound` bytes. `binary`: it is not JSON, and its reader bounds its values itself.

    Raises:
        BodyOverLimit: it is longer, compressed or not.
        BodyUnread: its content coding is unknown.
        RequestInvalid: it is damaged, or JSON with too many values.
    """
    decoder = Decoder(_coding(request.headers.get("content-encoding", "identity")), bound)
    received, sent = bytearray(), 0
    try:
        async for part in request.stream():
            sent += len(part)
            if sent > bound:
                raise BodyOverLimit(bound)
            received += decoder.feed(part)
        decoder.close()
    except BodyTooLarge as error:
        raise BodyOverLimit(bound) from error
    except BodyInvalid as error:
        raise RequestInvalid(f"the body can't be decompressed: {error}") from error
    # Each takes a byte at least, so that most bodies need not be searched.
    if not binary and len(received) > VALUES and _values(received) > VALUES:
        raise RequestInvalid(
            f"the body holds more than {VALUES} lists, objects and members: send fewer or simpler ones"
        )
    return bytes(received)


def _values(body: bytes | bytearray) -> int:
    """How many lists, objects and members a JSON text holds; its strings are looked for only where it could be many."""
    found = sum(map(body.count, (b"[", b"{", b":")))
    return found if found <= VALUES else sum(map(without_texts(body).count, (b"[", b"{", b":")))


def without_texts(body: bytes | bytearray) -> bytes:
    """Return a JSON text without its strings, each of which leaves a space."""
    return _TEXT.sub(b" ", body.replace(b"\\\\", b"").replace(b'\\"', b""))


def _coding(named: str) -> Coding:
    name = named.strip().lower()
    for coding in _AVAILABLE:
        if name == coding:
            return coding
    raise BodyUnread(f"Content-Encoding {named!r:.60} is not accepted here: send one of {', '.join(_AVAILABLE)}")


# A body in msgpack, decoded within bounds.
#
# Turns bytes into values. A list or map may take one byte in the body and sixty in memory, so their number is bounded
# as in JSON: the bound of the body alone would let a request take sixty times as much. It knows no message.

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
