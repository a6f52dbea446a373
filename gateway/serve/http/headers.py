"""The headers of a request by name, read once for all layers that look at them.

Turns a scope's list of headers into texts: names in lower case, values without surrounding blanks, which llhttp leaves
at the end of a value though they are not part of it (RFC 9110, 5.5). It knows no header but `accept`.
"""

from dataclasses import dataclass
from typing import Final

from starlette.types import Scope

_USUAL: Final = {
    name.encode(): name
    for name in (
        *("host", "accept", "accept-encoding", "accept-language", "authorization", "connection", "content-length"),
        *("content-type", "mcp-method", "mcp-name", "mcp-protocol-version", "mcp-session-id", "origin", "user-agent"),
    )
}
"""Names of headers, which need not be decoded for every request."""
_READ: Final = "codec.headers"
"""Key in a request's scope: its `Headers`, once they were read."""


@dataclass(slots=True, eq=False)
class Headers:
    """The headers of one request."""

    raw: list[tuple[bytes, bytes]]
    """The scope's list; if the scope gets another list, that one is read."""
    values: dict[str, str]
    """By name. Of a header that came more than once, the first value; of `accept`, all, joined."""
    repeated: set[str]
    """The names that came more than once."""


def headers_of(scope: Scope) -> Headers:
    """The headers of a request."""
    read: Headers | None = scope.get(_READ)
    raw: list[tuple[bytes, bytes]] = scope["headers"]
    if read is None or read.raw is not raw:
        # The scope was made for this one request, so we may add to it.
        read = scope[_READ] = _read(raw)
    return read


def _read(raw: list[tuple[bytes, bytes]]) -> Headers:
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
    return Headers(raw, values, repeated)
