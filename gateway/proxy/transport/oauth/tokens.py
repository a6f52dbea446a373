"""Answers of a token endpoint.

Turns a status and a document into tokens, or into the reason why there are none (RFC 6749, 5). Pure. A token is used
only if a header can carry it and if it is a bearer token.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.observe.escape import escape_text
from gateway.proxy.transport.http.headers import status_words
from gateway.proxy.transport.interface import NoAnswer

MARGIN: Final = 30.0
"""Seconds before its end at which a token is renewed."""
_TOKEN_BOUND: Final = 16 * 1024
_LONGEST_LIFE: Final = 365 * 86_400
_ISSUED: Final = (200, 201)
"""RFC 6749 says 200; some say 201, which the official SDK takes, too."""
_ENDED: Final = frozenset({"invalid_grant", "invalid_client", "unauthorized_client", "bad_refresh_token"})
"""The last is GitHub's, which refuses with status 200."""
_DIGITS: Final = re.compile(r"\d{1,12}", re.ASCII)


class NotIssued(NoAnswer):
    """The authorization server answered, and issued no token. `code`: its `error`, "" if it gave none."""

    def __init__(self, words: str, code: str) -> None:
        super().__init__(words)
        self.code = code


class Refused(NotIssued):
    """The authorization server says that the grant or the client is not valid (any more): asking again is no use."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a token endpoint issued."""

    access: str = field(repr=False)
    life: float | None
    """Seconds; None: it does not say."""
    refresh: str | None = field(default=None, repr=False)
    scope: str | None = None
    """What was granted; None: what was asked for."""


def read_tokens(status: int, document: Mapping[str, Any]) -> Tokens:
    """Read an answer of a token endpoint.

    Raises:
        Refused: the grant or the client is not valid.
        NoAnswer: there is no token for another reason, which may pass.
    """
    token: object = document.get("access_token")
    if status not in _ISSUED or not isinstance(token, str) or not 0 < len(token) <= _TOKEN_BOUND:
        told = (document.get(key) for key in ("error", "error_description"))
        words = " ".join(each for each in told if isinstance(each, str))
        said = f" ({escape_text(words, 200)})" if words else ""
        words = f"its authorization server answered {status_words(status)}{said}"
        if status in _ISSUED and not said:
            words += f", without a token of at most {_TOKEN_BOUND // 1024} KiB"
        code = next((each for each in (document.get("error"),) if isinstance(each, str)), "")
        raise (Refused if status < 500 and code in _ENDED else NotIssued)(words, code)
    if not token.isascii() or not token.isprintable() or " " in token:
        raise NoAnswer("its authorization server issued one that is not visible ASCII, which no header can carry")
    kind: object = document.get("token_type", "bearer")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise NoAnswer(f"its authorization server issued one of type {escape_text(repr(kind), 50)}, not a bearer token")
    seconds: object = document.get("expires_in")
    if isinstance(seconds, str) and _DIGITS.fullmatch(seconds):
        # As Entra and SAP write it.
        seconds = int(seconds)
    refresh, scope = (document.get(key) for key in ("refresh_token", "scope"))
    return Tokens(
        token,
        float(min(seconds, _LONGEST_LIFE)) if isinstance(seconds, int | float) and seconds >= 1 else None,
        refresh if isinstance(refresh, str) and 0 < len(refresh) <= _TOKEN_BOUND else None,
        scope if isinstance(scope, str) and len(scope) <= _TOKEN_BOUND else None,
    )
