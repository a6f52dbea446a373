"""Headers of HTTP requests and answers, as text.

Turns names and values into the lines of a request, the status of an answer into words of ours, and the parameters of a
challenge into a dictionary. A value from outside can't begin a second line. Pure; it knows no header by its meaning.
`http.py`, `http_client.py` and `oauth.py` stand above.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from gateway.proxy.wires.wire import NoAnswer

_CHALLENGE_BOUND: Final = 8192
_BEARER: Final = re.compile(r"(?i)(?:^|,)\s*bearer\s+")
_ESCAPED: Final = re.compile(r"\\(.)")
_PARAMETER: Final = re.compile(r'([A-Za-z][\w-]{0,63})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))')


def header_lines(headers: Mapping[str, str]) -> bytes:
    """Headers as they stand in a request.

    Raises:
        NoAnswer: a name or a value can't stand in one, so nothing was sent.
    """
    text = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    if text.count("\r") != len(headers) or text.count("\n") != len(headers) or "\0" in text:
        bad = next((name for name, value in headers.items() if any(c in name + value for c in "\r\n\0")), "")
        raise NoAnswer(f"header {bad[:100]!r} holds a line end or a NUL, so nothing was sent: correct its value")
    # A variable of the environment may hold bytes that are no text; they go out as they are.
    return text.encode("utf-8", "surrogateescape")


def media_type(content_type: str) -> str:
    """The type alone, in lower case: without `charset` and the like."""
    return content_type.partition(";")[0].strip().lower()


def status_words(status: int) -> str:
    """`HTTP 404 Not Found`; the server's own words are not asked for."""
    try:
        return f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"HTTP {status}"


def challenge_parameters(www_authenticate: str) -> dict[str, str]:
    """The parameters of a `Bearer` challenge (RFC 6750, 3), names in lower case; of a repeated one the first."""
    text = www_authenticate[:_CHALLENGE_BOUND]
    found: dict[str, str] = {}
    if (scheme := _BEARER.search(text)) is not None:
        for match in _PARAMETER.finditer(text, scheme.end()):
            value = match[3] if match[2] is None else _ESCAPED.sub(r"\1", match[2])
            found.setdefault(match[1].lower(), value)
    return found
