"""Access tokens for an MCP server, each in exchange for a caller's own (RFC 8693: token exchange).

Turns the access token with which a caller came into one that is for the server, in that caller's name. The caller's
token goes to the configured authorization server alone: never to the MCP server, and never to an address that somebody
else named. What comes back is refused if it is the caller's own, or if the gateway itself would accept it.
"""

import json
from base64 import urlsafe_b64decode
from collections.abc import Callable
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Final, cast

from structlog.typing import FilteringBoundLogger

from gateway.config.access import ExchangeConfig
from gateway.escape import escape_text
from gateway.proxy.caller import CallerToken
from gateway.proxy.transport.http.client import HttpClient
from gateway.proxy.transport.oauth.discovery import AuthorizationServer
from gateway.proxy.transport.oauth.tokens import EndpointTokens, NotIssued, Refused, Tokens
from gateway.proxy.transport.server_link import NoAnswer

_GRANT: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_TYPES: Final = "urn:ietf:params:oauth:token-type:"
_ACCESS_TOKEN: Final = f"{_TYPES}access_token"
_USABLE: Final = frozenset({_ACCESS_TOKEN, f"{_TYPES}jwt"})
"""Kinds of token that may be what a server wants. Others are for other places, like refresh tokens."""
_FRESH: Final = ": your access token may have been revoked; get a fresh one (sign in again in your client)"
_SETTINGS: Final = ": check `exchange` of this server"


class TokenExchange(EndpointTokens):
    """The tokens for one server that are issued for one caller's token, or for those that renew it."""

    def __init__(
        self,
        url: str,
        config: ExchangeConfig,
        client: HttpClient,
        log: FilteringBoundLogger,
        clock: Callable[[], float] = monotonic,
        now: Callable[[], float] = lambda: datetime.now(UTC).timestamp(),
    ) -> None:
        """`url`: that of the MCP server. `now`: returns seconds since 1970. Has nothing to exchange before `offer`."""
        super().__init__(url, config, client, log, clock)
        self._config = config
        self._now = now
        self._subject: CallerToken | None = None
        self._sent: CallerToken | None = None
        """The one that was sent last: a newer one may be offered before the answer."""
        self._generation = 0

    def offer(self, token: CallerToken) -> None:
        """Take note of a caller's token, to be exchanged when one is needed next. An older one changes nothing, unless
        the newer one could not be exchanged."""
        known = self._subject
        if known is not None and (token.text == known.text or (token.expires < known.expires and not self._failure)):
            return
        self._subject = token
        if self._failure:
            # It may fare better than the one before: nobody has to wait for that one's pause.
            self._failure = ""
            self._generation += 1

    async def refresh(self) -> None:
        """Callers bring their tokens to each replica."""

    def current(self) -> str | None:
        """Differs after a token was offered in place of one that could not be exchanged; None: there is none, or the
        only one has expired when it was needed."""
        if self._subject is None or (self._has_expired(self._subject) and (self._failure or not self._headers)):
            return None
        return str(self._generation)

    def _has_expired(self, token: CallerToken) -> bool:
        return token.expires <= self._now()

    def _form(self) -> dict[str, str]:
        subject = self._subject
        if subject is None or self._has_expired(subject):
            raise NoAnswer("the caller's own has expired: call again with a fresh one")
        self._sent = subject
        resource = self._resource if self._config.resource is None else self._config.resource
        wanted = {"resource": resource, "audience": self._config.audience}
        return {
            "grant_type": _GRANT,
            "subject_token": subject.text,
            # No `requested_token_type`: some refuse it (Auth0), and what is issued is looked at.
            "subject_token_type": self._config.subject_token_type or _ACCESS_TOKEN,
            **{key: value for key, value in wanted.items() if value},
        }

    async def _post(self, server: AuthorizationServer, form: Any) -> tuple[int, dict[str, Any]]:
        status, document = await super()._post(server, form)
        kind: object = document.get("issued_token_type", _ACCESS_TOKEN)
        if status == 200 and not (isinstance(kind, str) and kind in _USABLE):
            raise NoAnswer(f"its authorization server issued a {escape_text(repr(kind), 100)}, not an access token")
        return status, document

    def _take(self, tokens: Tokens) -> float:
        subject = cast("CallerToken", self._sent)
        if tokens.access == subject.text:
            raise NoAnswer("its authorization server returned the caller's own, which no other server may get")
        if _is_for(tokens.access, *subject.audience):
            raise NoAnswer(
                "its authorization server issued one that this gateway would accept, too, so that the server could use "
                "it here: set `exchange.audience` or `exchange.resource` to a name that it knows the server by"
            )
        # What was derived from a permission does not outlive it.
        return min(super()._take(tokens), max(0.0, subject.expires - self._now()))

    def _way_out(self, error: Exception) -> str:
        if not isinstance(error, NotIssued):
            return ""
        if error.code in ("invalid_grant", "invalid_token", "invalid_request"):
            return _FRESH if error.code != "invalid_request" else f"{_FRESH}, or{_SETTINGS[1:]}"
        return _SETTINGS if isinstance(error, Refused) or error.code else ""


def _is_for(token: str, issuer: str, audience: str) -> bool:
    """Whether a token says that this issuer issued it for this audience; False for one that can't be read."""
    try:
        body = token.split(".")[1]
        claims: object = json.loads(urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (ValueError, IndexError, RecursionError):
        return False
    if not isinstance(claims, dict):
        return False
    said = cast("dict[str, object]", claims)
    given: object = said.get("aud")
    named = cast("list[object]", given) if isinstance(given, list) else [given]
    return said.get("iss") == issuer and audience in named
