"""The headers that every request has, and the status and headers of HTTP answers, as text.

Turns an address into headers, a status into words of our own, and the parameters of a challenge into a dictionary.
Pure; it does not know what the headers of an answer mean.
"""

import re
from http import HTTPStatus
from importlib.metadata import version
from typing import Final

from gateway.http1.origin import Address

_CHALLENGE_BOUND: Final = 8192
_BEARER: Final = re.compile(r"(?i)(?:^|,)\s*bearer\s+")
_ESCAPED: Final = re.compile(r"\\(.)")
_PARAMETER: Final = re.compile(r'([A-Za-z][\w-]{0,63})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))')


def common_headers(address: Address) -> dict[str, str]:
    """The headers of every request to this address: the host, who we are, its credentials, and no compression."""
    headers = {
        "host": address.origin.authority,
        "user-agent": f"codec-gateway/{version('codec-gateway')}",
        "accept-encoding": "identity",
    }
    return headers if address.authorization is None else {**headers, "authorization": address.authorization}


def media_type(content_type: str) -> str:
    """The bare type in lower case, without `charset` and the like."""
    return content_type.partition(";")[0].strip().lower()


def status_words(status: int) -> str:
    """Words such as `HTTP 404 Not Found`; the server's own reason phrase is not used."""
    try:
        return f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"HTTP {status}"


def challenge_parameters(www_authenticate: str) -> dict[str, str]:
    """The parameters of a `Bearer` challenge (RFC 6750, 3), names in lower case; of repeated ones the first."""
    text = www_authenticate[:_CHALLENGE_BOUND]
    found: dict[str, str] = {}
    if (scheme := _BEARER.search(text)) is not None:
        for match in _PARAMETER.finditer(text, scheme.end()):
            value = match[3] if match[2] is None else _ESCAPED.sub(r"\1", match[2])
            found.setdefault(match[1].lower(), value)
    return found
