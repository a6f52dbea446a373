"""The HTTP headers of 2026-07-28, which repeat parts of the body so that a router need not read it.

Turns a request into the headers that must go with it, and headers with a body into the error to send where the two
disagree (Streamable HTTP, "Request Metadata"). Header names must be in lower case, and values without surrounding
blanks: the HTTP server sees to that. Pure; it knows no server and no tool. The rule for a tool's own parameters is in
`annotations.py`.
"""

import base64
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, cast

from gateway.protocol.client_bounds import excess_of_capabilities
from gateway.protocol.eras import CAPABILITIES_KEY, MODERN_VERSIONS, VERSION_KEY, meta_of
from gateway.protocol.messages import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
)

VERSION_HEADER: Final = "mcp-protocol-version"
METHOD_HEADER: Final = "mcp-method"
NAME_HEADER: Final = "mcp-name"
ROUTING_HEADERS: Final = (VERSION_HEADER, METHOD_HEADER, NAME_HEADER)
"""Each of these may come only once: of two copies, two readers could take different ones."""
NAMED_BY: Final[Mapping[str, str]] = MappingProxyType(
    {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
)
"""The param that `Mcp-Name` repeats, by method."""
ERROR_STATUS: Final[Mapping[int, int]] = MappingProxyType(
    {
        PARSE_ERROR: 400,
        INVALID_REQUEST: 400,
        INVALID_PARAMS: 400,
        HEADER_MISMATCH: 400,
        MISSING_CAPABILITY: 400,
        UNSUPPORTED_VERSION: 400,
        METHOD_NOT_FOUND: 404,
    }
)
"""HTTP status of an answer, by its error code; every other code is sent with 200."""

_PLAIN: Final = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)?")
_SENTINEL: Final = re.compile(r"=\?base64\?(.*)\?=")


def encode_value(value: str) -> str:
    """A text as the value of a header: as it is, or in base64 if a header can't carry it ("Value Encoding").

    Raises:
        UnicodeEncodeError: the text holds half a surrogate pair, which no JSON that we read does.
    """
    if _PLAIN.fullmatch(value) and not _SENTINEL.fullmatch(value):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def decode_value(value: str) -> str | None:
    """The text that the value of a header stands for; None if it is base64, but not canonical base64 of UTF-8."""
    if not value.startswith("=?") or (match := _SENTINEL.fullmatch(value)) is None:
        return value
    try:
        data = base64.b64decode(match[1], validate=True)
        text = data.decode()
    except ValueError:
        return None
    # Two spellings of one value would let a router and the server read different things.
    return text if base64.b64encode(data).decode() == match[1] else None


def routing_headers(method: str, params: Mapping[str, Any]) -> dict[str, str]:
    """The headers of a request besides that of the version: `Mcp-Method`, and `Mcp-Name` if the method has one."""
    headers = {METHOD_HEADER: method}
    key = NAMED_BY.get(method)
    if key is not None and isinstance(name := params.get(key), str):
        headers[NAME_HEADER] = encode_value(name)
    return headers


def mismatch(message: str) -> dict[str, Any]:
    """The error for headers that the body contradicts."""
    return {"code": HEADER_MISMATCH, "message": message}


def unsupported(requested: str) -> dict[str, Any]:
    """The error for a version that we don't speak. It lists the same versions as `server/discover`, newest first.

    Handshake-era versions are not among them: only `initialize` can ask for one, no other request.
    """
    data = {"supported": [*reversed(MODERN_VERSIONS)], "requested": requested}
    return {"code": UNSUPPORTED_VERSION, "message": "Unsupported protocol version", "data": data}


def check_envelope(
    method: str, params: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> dict[str, Any] | None:
    """The error for the envelope of a modern request; None: the envelope is valid.

    Missing keys are checked first, then the headers, then the version: a client whose headers and body disagree is told
    that, and not that its version is unknown.

    Args:
        headers: None if the request did not come over HTTP.
    """
    fields = meta_of(params)
    if VERSION_KEY not in fields or CAPABILITIES_KEY not in fields:
        missing = [key for key in (VERSION_KEY, CAPABILITIES_KEY) if key not in fields]
        return _invalid(f"params._meta lacks {' and '.join(map(repr, missing))}: every request must have both")
    version: object = fields[VERSION_KEY]
    if headers is not None and (error := _check_routing(method, params, version, headers)) is not None:
        return error
    if not isinstance(version, str):
        return _invalid(f"{VERSION_KEY!r} must be a string")
    if version not in MODERN_VERSIONS:
        return unsupported(version)
    capabilities: object = fields[CAPABILITIES_KEY]
    if not isinstance(capabilities, dict):
        return _invalid(f"{CAPABILITIES_KEY!r} must be an object")
    if not capabilities or (why := excess_of_capabilities(cast("dict[str, Any]", capabilities))) is None:
        return None
    return _invalid(f"{CAPABILITIES_KEY!r}: {why}: announce less")


def _check_routing(
    method: str, params: Mapping[str, Any], version: object, headers: Mapping[str, str]
) -> dict[str, Any] | None:
    given = headers.get(VERSION_HEADER)
    if given is None or given != version:
        return mismatch(
            f"the {VERSION_HEADER} header does not match {VERSION_KEY!r} of the body: send the same in both"
        )
    if headers.get(METHOD_HEADER) != method:
        return mismatch(f"the {METHOD_HEADER} header does not match the body's method: send the same in both")
    key = NAMED_BY.get(method)
    if key is None or (name := params.get(key)) is None:
        return None
    if (header := headers.get(NAME_HEADER)) is None or decode_value(header) != name:
        return mismatch(f"the {NAME_HEADER} header does not match params.{key} of the body: send the same in both")
    return None


def _invalid(message: str) -> dict[str, Any]:
    return {"code": INVALID_PARAMS, "message": message}
