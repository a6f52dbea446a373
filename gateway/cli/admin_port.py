"""One question to the admin port of a running gateway, for the commands that show its state.

Turns an address into the answer that it gives. Another service may listen there: its answer is bounded in bytes and in
time, however slowly it comes. It reads no report.
"""

import json
from time import monotonic
from typing import Final, NamedTuple

from gateway.errors import UpstreamUnavailable

_TIMEOUT: Final = 10.0
"""Seconds for the whole answer."""
_MOST: Final = 64 << 20
"""Bytes of an answer: a report with 10,000 tools has 4 MB."""
_REASON: Final = 400
"""Characters of a refusal that are shown."""


class AdminAnswer(NamedTuple):
    """What answered."""

    status: int
    body: bytes


def ask_admin(admin: str, path: str) -> AdminAnswer:
    """GET a path. Raises `UpstreamUnavailable` where nothing answers, or without end."""
    # An HTTP client takes 0.2 s to import, and few commands need it.
    import httpx2

    body, ends = bytearray(), monotonic() + _TIMEOUT
    url = f"{admin.rstrip('/')}{path}"
    try:
        with httpx2.Client(timeout=_TIMEOUT, trust_env=False) as client, client.stream("GET", url) as answer:
            for part in answer.iter_bytes():
                body += part
                if len(body) > _MOST or monotonic() > ends:
                    raise UpstreamUnavailable(
                        f"the answer of {admin!r} is too large or too slow for the admin port of a gateway: name that "
                        "with --admin",
                        server="",
                    )
            return AdminAnswer(answer.status_code, bytes(body))
    except httpx2.HTTPError as error:
        raise UpstreamUnavailable(
            f"no gateway answers at {admin!r} ({error}): start it with codec-gateway serve, or name its admin port "
            "with --admin",
            server="",
        ) from None


def not_a_gateway(admin: str, status: int) -> UpstreamUnavailable:
    """The error for an answer that no admin port gives. What another service says is not shown: it may be markup."""
    return UpstreamUnavailable(
        f"what answers at {admin!r} (HTTP status {status}) is not the admin port of a gateway: name that with --admin; "
        "it is 8601 unless serve.admin_port says otherwise",
        server="",
    )


def refusal_of(status: int, body: bytes) -> str | None:
    """The gateway's own words, if the admin port refuses; None for a report, a page, or a path that is not there."""
    try:
        words: object = None if status == 404 else json.loads(body)["error"]["message"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return words[:_REASON] if isinstance(words, str) else None
