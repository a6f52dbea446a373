"""A request's body as bytes, decompressed, within one bound.

Reads what comes and stops at the bound, both of what is sent and of what it decompresses to, so that a small body can't
fill the memory. It reads no JSON.
"""

from typing import Final

from starlette.requests import Request

from gateway.errors import RequestInvalid
from leaf_sdk.errors import BodyInvalid, BodyTooLarge
from leaf_sdk.wire import Coding, Decoder, available_codings

_AVAILABLE: Final = available_codings()


class BodyOverLimit(RequestInvalid):
    """The body is over the bound, as it was sent or decompressed."""

    def __init__(self, bound: int) -> None:
        super().__init__(f"the body is longer than {bound} bytes (limits.body_bytes)")


class BodyUnread(RequestInvalid):
    """The body is in a form that this endpoint does not read."""


def media_type(content_type: str) -> str:
    """What a `Content-Type` names, without its parameters, which say nothing about who may send it unasked."""
    return content_type.partition(";")[0].strip().lower()


def must_be_json(request: Request) -> None:
    """Refuse a body that does not say it is JSON: what it may say else, a page of any origin sends without asking.

    Raises:
        BodyUnread: another content type, or none.
    """
    content_type = request.headers.get("content-type", "")
    if media_type(content_type) != "application/json":
        raise BodyUnread(f"Content-Type {content_type!r:.80} is not read here, expected application/json")


async def read_body(request: Request, bound: int) -> bytes:
    """Read a body of at most `bound` bytes.

    Raises:
        BodyOverLimit: longer, compressed or not.
        BodyUnread: a content coding that we don't know.
        RequestInvalid: damaged.
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
    return bytes(received)


def _coding(named: str) -> Coding:
    name = named.strip().lower()
    for coding in _AVAILABLE:
        if name == coding:
            return coding
    raise BodyUnread(f"Content-Encoding {named!r:.60} is not read here, expected one of {', '.join(_AVAILABLE)}")
