"""The headers of a request by name, and which web pages they let call the gateway."""

import re
from collections.abc import Awaitable, Collection
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# The headers of a request by name, read once for all layers that look at them.
#
# Turns a scope's list of headers into texts: names in lower case, values without surrounding blanks, which llhttp
# leaves at the end of a value though they are not part of it (RFC 9110, 5.5). It knows no header but `accept`.

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
    values: dict[str, str] = {}
    repeated: set[str] = set()
    for raw_name, raw_value in raw:
        name, value = _USUAL.get(raw_name) or raw_name.decode("latin-1"), raw_value.strip(b" \t").decode("latin-1")
        if name not in values:
            values[name] = value
            continue
        repeated.add(name)
        if name == "accept":
            values[name] += ", " + value
    return RequestHeaders(raw, values, repeated)


# Lets web pages of origins that the operator names call `/mcp`, `/sse` and `/v1` (Fetch, "CORS protocol").
#
# Answers their preflights, which carry no credential, and adds to every answer the headers without which a browser
# hides it from the page, refusals included. Nothing changes for other origins: `HostGuard` refuses them. Cookies are
# never allowed: a page must have a credential of its own to send.

_ROOTS: Final = ("/mcp", "/sse", "/v1", "/.well-known")
"""The last for clients that look there how to sign in to this gateway (RFC 9728)."""
_METHODS: Final = "GET, POST, DELETE, OPTIONS"
_NAMES: Final = re.compile(r"[\w!#$%&'*+.^`|~-]+(?:[ \t]*,[ \t]*[\w!#$%&'*+.^`|~-]+)*", re.ASCII)
"""A list of header names (RFC 9110, section 5.6.2)."""
_EXPOSED: Final = (
    "Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Retry-After, X-Request-Id, X-Codec-Map, Content-Encoding"
)
_KEPT: Final = "600"
"""Seconds for which a browser may keep the answer to a preflight."""


class Cors:
    """Wraps the guarded endpoints for browsers."""

    def __init__(self, app: ASGIApp, origins: Collection[str]) -> None:
        """`origins`: as browsers write them, `scheme://host` or `scheme://host:port`."""
        self._app = app
        self._origins = frozenset(origins)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one ASGI connection."""
        if scope["type"] != "http" or not _is_served(scope["path"]):
            return self._app(scope, receive, send)
        read = headers_of(scope)
        origin = read.values.get("origin")
        if origin not in self._origins or "origin" in read.repeated:
            return self._app(scope, receive, send)
        if scope["method"] == "OPTIONS" and "access-control-request-method" in read.values:
            return _preflight_answer(origin, read.values)(scope, receive, send)
        added = [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-expose-headers", _EXPOSED.encode()),
            (b"vary", b"Origin"),
        ]

        async def send_allowed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *added]}
            await send(message)

        return self._app(scope, receive, send_allowed)


def _is_served(path: str) -> bool:
    return any(path == root or path.startswith(f"{root}/") for root in _ROOTS)


def _preflight_answer(origin: str, headers: dict[str, str]) -> Response:
    """What a browser may send: any header that it asks for, since tools may name their own (`Mcp-Param-...`)."""
    asked = headers.get("access-control-request-headers", "")
    allowed = {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Allow-Methods": _METHODS,
        "Access-Control-Max-Age": _KEPT,
        "Vary": "Origin, Access-Control-Request-Headers",
    }
    if _NAMES.fullmatch(asked):
        allowed["Access-Control-Allow-Headers"] = asked
    if headers.get("access-control-request-private-network") == "true":
        allowed["Access-Control-Allow-Private-Network"] = "true"
    return Response(status_code=204, headers=allowed)
