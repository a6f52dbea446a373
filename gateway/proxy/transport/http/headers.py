"""Headers of HTTP answers, as text.

Turns the status of an answer into words of ours, and the parameters of a challenge into a dictionary. Pure; it knows no
header by its meaning.
"""

import re
from http import HTTPStatus
from typing import Final

_CHALLENGE_BOUND: Final = 8192
_BEARER: Final = re.compile(r"(?i)(?:^|,)\s*bearer\s+")
_ESCAPED: Final = re.compile(r"\\(.)")
_PARAMETER: Final = re.compile(r'([A-Za-z][\w-]{0,63})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))')


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
