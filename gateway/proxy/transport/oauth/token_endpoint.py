"""Access tokens for one MCP server, from a token endpoint: for the gateway as its client, or for a caller of it."""

import asyncio
import json
import re
from abc import ABC, abstractmethod
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic
from types import MappingProxyType
from typing import Any, Final, Protocol, cast

import anyio
from structlog.typing import FilteringBoundLogger

from gateway.config.access import ExchangeConfig
from gateway.config.address import read_url
from gateway.escape import escape_text
from gateway.proxy.caller import CallerToken
from gateway.proxy.transport.http.client import HttpClient
from gateway.proxy.transport.http.http_answers import challenge_parameters, status_words
from gateway.proxy.transport.oauth.code_flow import Client
from gateway.proxy.transport.oauth.discovery import (
    FETCH_TIME,
    AuthorizationServer,
    DocumentFetcher,
    check_confidential,
    find_resource,
    find_server,
    origin_of,
    read_named_url,
)
from gateway.proxy.transport.transport_interface import LinkLost, NoAnswer

# RFC 6749, 5. A token is used only if a header can carry it and if it is a bearer token.

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


# A token is kept until shortly before it expires, and fetched again, by one request for all, when it is refused. Our
# own credentials, and exchanged ones, are the grants.

_SCOPE_BOUND: Final = 4096
_LIFE: Final = 3600.0
"""Seconds that a token without a stated lifetime is used, unless it is refused sooner."""
AGAIN: Final = 5.0
"""Seconds before another token is requested, after the last one was useless or could not be obtained."""
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class Registered(Protocol):
    """What a configuration says about the gateway as a client of an authorization server."""

    @property
    def client_id(self) -> str:
        """Its id there."""
        ...

    @property
    def client_secret(self) -> str | None:
        """The secret that belongs to it."""
        ...

    @property
    def token_url(self) -> str | None:
        """The token endpoint; None: it is in the issuer's metadata."""
        ...

    @property
    def issuer(self) -> str | None:
        """The authorization server."""
        ...

    @property
    def scope(self) -> str | None:
        """The scopes to ask for."""
        ...


class EndpointTokens(ABC):
    """The tokens for one server, shared by the sessions that use one grant."""

    def __init__(
        self,
        url: str,
        registered: Registered,
        client: HttpClient,
        log: FilteringBoundLogger,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`url`: that of the MCP server. Asks for nothing before the first request."""
        self._url = url
        self._registered = registered
        self._log = log
        self._clock = clock
        self._fetcher = DocumentFetcher(client, url, registered.token_url, registered.issuer)
        self._scope = registered.scope
        self._server = AuthorizationServer("", registered.token_url) if registered.token_url else None
        self._lock = asyncio.Lock()
        self._headers = _NOTHING
        self._expires = 0.0
        self._asked = -AGAIN
        self._failure = ""
        self._resource = str(read_url(url))

    async def headers(self) -> Mapping[str, str]:
        """See `Authorizer.headers`. Empty while only a refusal by the server can say where tokens are issued."""
        if self._clock() < self._expires:
            return self._headers
        if self._server is None and self._registered.issuer is None:
            return _NOTHING
        async with self._lock:
            if self._clock() >= self._expires:
                await self._renew({})
        return self._headers

    async def refused(self, status: int, www_authenticate: str, sent: Mapping[str, str]) -> bool:
        """See `Authorizer.refused`."""
        challenge = challenge_parameters(www_authenticate)
        async with self._lock:
            if sent != self._headers and not self._failure:
                return True
            helpless = self._clock() - self._asked < AGAIN and not self._failure
            if not self._widen(status, challenge) and (status == 403 or helpless):
                return False
            await self._renew(challenge)
        return True

    @abstractmethod
    def _form(self) -> dict[str, str]:
        """What is asked for. Raises `NoAnswer`: there is nothing to ask with."""

    @abstractmethod
    def _way_out(self, error: Exception) -> str:
        """What to do about a failure, to be added to its words."""

    async def _issuer(self, challenge: Mapping[str, str]) -> str:
        """The authorization server. `challenge`: of the server's refusal. Raises `NoAnswer`: it is not known."""
        del challenge
        if self._registered.issuer is None:
            raise NoAnswer("no authorization server is configured")
        return self._registered.issuer

    def _take(self, tokens: Tokens) -> float:
        """Check newly issued tokens, and return for how many seconds they are used. Raises `NoAnswer`."""
        life = tokens.life or _LIFE
        return max(life - MARGIN, life / 2)

    def _widen(self, status: int, challenge: Mapping[str, str]) -> bool:
        """Add scopes that the server misses (MCP, "Scope Challenge Handling"). Return whether a 403 added any."""
        asked = challenge.get("scope", "")
        if status == 401 and self._scope is None and 0 < len(asked) <= _SCOPE_BOUND:
            self._scope = asked
        if status != 403 or challenge.get("error") != "insufficient_scope":
            return False
        had = (self._scope or "").split()
        more = [scope for scope in asked.split() if scope not in had]
        scope = " ".join(had + more)
        if not more or len(scope) > _SCOPE_BOUND:
            # So that a server that asks for other scopes each time is not followed for ever.
            return False
        self._scope = scope
        return True

    async def _renew(self, challenge: Mapping[str, str]) -> None:
        if self._failure and self._clock() - self._asked < AGAIN:
            raise NoAnswer(self._failure)
        self._asked = self._clock()
        self._expires = 0.0
        try:
            with anyio.fail_after(FETCH_TIME):
                self._server = self._server or await self._discover(challenge)
                await self._ask(self._server)
        except TimeoutError:
            self._failure = f"no access token: its authorization server did not answer within {FETCH_TIME:g} s"
            raise NoAnswer(self._failure) from None
        except (NoAnswer, LinkLost) as error:
            self._failure = f"no access token: {error}{self._way_out(error)}"
            raise NoAnswer(self._failure) from None
        self._failure = ""
        self._log.info("access token for upstream obtained", endpoint=str(origin_of(self._server.token_endpoint)))

    async def _discover(self, challenge: Mapping[str, str]) -> AuthorizationServer:
        try:
            server = await find_server(self._fetcher, await self._issuer(challenge))
            check_confidential(read_named_url(server.token_endpoint), self._fetcher.listed)
        except NoAnswer as error:
            raise NoAnswer(f"{error}: set `token_url`") from None
        return server

    async def _ask(self, server: AuthorizationServer) -> None:
        tokens = read_tokens(*await self._post(server, self._form()))
        self._expires = self._clock() + self._take(tokens)
        self._headers = MappingProxyType({"authorization": f"Bearer {tokens.access}"})

    async def _post(self, server: AuthorizationServer, form: Mapping[str, str]) -> tuple[int, dict[str, object]]:
        registered, scope = self._registered, {"scope": self._scope} if self._scope else {}
        headers, secrets = Client(registered.client_id, registered.client_secret, server.method).authentication()
        return await self._fetcher.post_form(server.token_endpoint, {**form, **scope, **secrets}, headers)


# The secret goes to no server but its issuer, and neither it nor a token is ever shown.


class ClientCredentialsGrant(EndpointTokens):
    """The tokens for one server, shared by all sessions with it."""

    def _form(self) -> dict[str, str]:
        return {"grant_type": "client_credentials", "resource": self._resource}

    def _way_out(self, error: Exception) -> str:
        return ": check `oauth` of this server" if isinstance(error, Refused) else ""

    async def _issuer(self, challenge: Mapping[str, str]) -> str:
        if self._registered.issuer is not None:
            return self._registered.issuer
        resource = await find_resource(self._fetcher, self._url, challenge)
        if resource is None or not resource.issuers:
            raise NoAnswer("it does not say which authorization server it trusts")
        self._resource = resource.name
        self._scope = self._scope or resource.scope
        issuer = resource.issuers[0]
        check_confidential(read_named_url(issuer), self._fetcher.listed)
        self._log.warning(
            "upstream chose the issuer that gets our client secret: set `oauth.issuer` if it is the right one",
            issuer=escape_text(issuer, 200),
        )
        return issuer

    async def _post(self, server: AuthorizationServer, form: Mapping[str, str]) -> tuple[int, dict[str, object]]:
        status, document = await super()._post(server, form)
        if status == 400 and document.get("error") in ("invalid_target", "invalid_request"):
            # Some servers don't know resource indicators (RFC 8707), and say so.
            rest = {key: value for key, value in form.items() if key != "resource"}
            status, document = await super()._post(server, rest)
        return status, document


# The caller's token goes to the configured authorization server alone: never to the MCP server, and never to an address
# that somebody else named. What comes back is refused if it is the caller's own, or if the gateway itself would accept
# it.

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
