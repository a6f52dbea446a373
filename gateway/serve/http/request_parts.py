"""The parts of a request: its headers by name, who sent it, its bounded body."""

import secrets
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final, cast

import msgpack
from starlette.requests import Request
from starlette.types import Scope

from gateway.errors import RequestInvalid
from gateway.protocol.messages import without_escapes, without_strings
from gateway.proxy.caller import ANYBODY, Principal
from leaf_sdk.errors import BodyInvalid, BodyTooLarge
from leaf_sdk.wire import Coding, Decoder, available_codings

# llhttp leaves blanks at the end of a value though they are not part of it (RFC 9110, 5.5).

_USUAL: Final = {
    name.encode(): name
    for name in (
        *("host", "accept", "accept-encoding", "accept-language", "authorization", "connection", "content-length"),
        *("content-type", "mcp-method", "mcp-name", "mcp-protocol-version", "mcp-session-id", "origin", "user-agent"),
    )
}
"""Names of headers, which need not be decoded for every request."""
_READ: Final = "codec.headers"
"""Key in a request's scope: its `RequestHeaders`, once they were read."""


@dataclass(slots=True, eq=False)
class RequestHeaders:
    """The headers of one request."""

    raw: list[tuple[bytes, bytes]]
    """The scope's list; if the scope gets another list, that one is read."""
    values: dict[str, str]
    """By name. Of a header that came more than once, the first value; of `accept`, all, joined."""
    repeated: set[str]
    """The names that came more than once."""


def headers_of(scope: Scope) -> RequestHeaders:
    """The headers of a request."""
    read: RequestHeaders | None = scope.get(_READ)
    raw: list[tuple[bytes, bytes]] = scope["headers"]
    if read is None or read.raw is not raw:
        # The scope was made for this one request, so we may add to it.
        read = scope[_READ] = _read(raw)
    return read


def _read(raw: list[tuple[bytes, bytes]]) -> RequestHeaders:
    # From the last to the first: of a header that came more than once, the first value stays.
    values = {
        _USUAL.get(name) or name.decode("latin-1"): value.strip(b" \t").decode("latin-1")
        for name, value in reversed(raw)
    }
    if len(values) == len(raw):
        return RequestHeaders(raw, values, set())
    times = Counter(name.decode("latin-1") for name, _ in raw)
    if times["accept"] > 1:
        values["accept"] = ", ".join(value.strip(b" \t").decode("latin-1") for name, value in raw if name == b"accept")
    return RequestHeaders(raw, values, {name for name, count in times.items() if count > 1})


# On whose behalf a request comes, and the id by which its client and the operator can refer to it.

PRINCIPAL: Final = "principal"
"""Key in a request's ASGI state: the `Principal` on whose behalf it comes."""


def principal_of(scope: Scope) -> Principal:
    """On whose behalf a request comes, as recorded by `serve/auth/bearer.py`."""
    state: dict[str, object] = scope.get("state") or {}
    principal = state.get(PRINCIPAL)
    return principal if isinstance(principal, Principal) else ANYBODY


def name_principal(scope: Scope, principal: Principal) -> None:
    """Record on whose behalf a request comes: the scope is this request's, its state may be shared."""
    scope["state"] = {**(scope.get("state") or {}), PRINCIPAL: principal}


def new_request_id() -> str:
    """A new id for one request. It is the same in the answer's header and in its error."""
    return f"req_{secrets.token_hex(12)}"


# The bound applies both to the bytes sent and to what they decompress to, so that a small body can't fill the memory.
# JSON is not parsed here, but what parsing it would cost is bounded: a list may take two bytes.

VALUES: Final = 200_000
"""Most lists, objects and members of objects in one body: each costs the event loop a microsecond, and more later."""
_ITEMS: Final = 500_000
"""Most strings in such a body, and most commas outside of them."""
MOST_VALUES: Final = VALUES + _ITEMS + 1
"""All values of a JSON text that passes `check_values`, whatever they are."""
_AVAILABLE: Final = available_codings()


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
    Raises `BodyUnread`: another content type, or none."""
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
    named = request.headers.get("content-encoding", "identity")
    name = named.strip().lower()
    coding: Coding | None = next((each for each in _AVAILABLE if name == each), None)
    if coding is None:
        raise BodyUnread(f"Content-Encoding {named!r:.60} is not accepted here: send one of {', '.join(_AVAILABLE)}")
    decoder = Decoder(coding, bound)
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
    if not binary:
        check_values(received)
    return bytes(received)


def check_values(body: bytes | bytearray) -> None:
    """Refuse a JSON text of too many values. Raises `RequestInvalid`."""
    # Each takes a byte at least, so that most bodies need not be searched.
    if len(body) <= VALUES or not _seems_too_much(body):
        return
    bare = without_escapes(body)
    # Strings are counted first: to cut millions of them out would take as long as to read them.
    if bare.count(b'"') > 2 * _ITEMS or _seems_too_much(without_strings(bare)):
        raise RequestInvalid(
            f"the body holds more than {VALUES} lists, objects and members, or {_ITEMS} items: send fewer"
        )


def _seems_too_much(body: bytes | bytearray) -> bool:
    """Whether a JSON text has too many marks of values; those in its strings count too."""
    return sum(map(body.count, (b"[", b"{", b":"))) > VALUES or body.count(b",") > _ITEMS


# A list or map may take one byte in the body and sixty in memory, so their number is bounded as in JSON. So is that of
# the items, most of which are ids of a prompt.

ITEMS: Final = 2**20
"""Most items of all lists in a body."""
_unpack: Final = cast("Any", msgpack).unpackb


def unpack(body: bytes) -> object:
    """The value that a body holds.

    Raises:
        ValueError, TypeError, RecursionError: it is not msgpack, has too many lists, maps, members of maps or items, or
            a value of an extension type. Includes msgpack's own errors.
    """
    seen = items = 0

    def take(more: int) -> None:
        nonlocal seen
        seen += more
        if seen > VALUES:
            raise ValueError(f"it holds more than {VALUES} lists, maps and members")

    def keep_list(found: list[object]) -> list[object]:
        nonlocal items
        take(1)
        items += len(found)
        if items > ITEMS:
            raise ValueError(f"it holds more than {ITEMS} items")
        return found

    def keep_map(found: dict[object, object]) -> dict[object, object]:
        take(1 + len(found))
        return found

    # No map or list can have more than that, so that one which does is not built first. No field has an extension type.
    most = {"max_map_len": VALUES, "max_array_len": ITEMS, "max_ext_len": 0}
    return cast("object", _unpack(body, list_hook=keep_list, object_hook=keep_map, **most))
