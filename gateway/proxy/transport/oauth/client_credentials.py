"""Access tokens for an MCP server, from our own credentials (OAuth 2.1, 4.2: client credentials).

Turns a client id and a secret into the `Authorization` of every request. The token endpoint is configured, or found by
what the server says when it refuses us (MCP, "Authorization"); the token is kept until shortly before it expires, and
fetched again when it is refused. The secret goes to no server but its issuer, and neither it nor a token is ever shown.
`proxy/transport/http/channel.py` uses this through the `Authorizer` Protocol.
"""

import asyncio
from collections.abc import Callable, Mapping
from time import monotonic
from types import MappingProxyType
from typing import Final

import anyio
from structlog.typing import FilteringBoundLogger

from gateway.config.model import ClientCredentials
from gateway.http1.origin import read_url
from gateway.observe.escape import escape_text
from gateway.proxy.transport.http.client import HttpClient
from gateway.proxy.transport.http.headers import challenge_parameters
from gateway.proxy.transport.interface import LinkLost, NoAnswer
from gateway.proxy.transport.oauth.client import Client
from gateway.proxy.transport.oauth.discovery import find_resource, find_server
from gateway.proxy.transport.oauth.documents import FETCH_TIME, DocumentFetcher, origin_of
from gateway.proxy.transport.oauth.metadata import AuthorizationServer, check_confidential, read_named_url
from gateway.proxy.transport.oauth.tokens import MARGIN, Refused, read_tokens

_SCOPE_BOUND: Final = 4096
_LIFE: Final = 3600.0
"""Seconds that a token without a stated lifetime is used, unless it is refused sooner."""
AGAIN: Final = 5.0
"""Seconds before another token is requested, after the last one was useless or could not be obtained."""
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class ClientCredentialsGrant:
    """The tokens for one server, shared by all sessions with it."""

    def __init__(
        self,
        url: str,
        credentials: ClientCredentials,
        client: HttpClient,
        log: FilteringBoundLogger,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`url`: that of the MCP server. Asks for nothing before the first request."""
        self._url = url
        self._credentials = credentials
        self._log = log
        self._clock = clock
        self._fetcher = DocumentFetcher(client, url, credentials.token_url, credentials.issuer)
        self._scope = credentials.scope
        self._server = AuthorizationServer("", credentials.token_url) if credentials.token_url else None
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
        if self._server is None and self._credentials.issuer is None:
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
            hint = ": check `oauth` of this server" if isinstance(error, Refused) else ""
            self._failure = f"no access token: {error}{hint}"
            raise NoAnswer(self._failure) from None
        self._failure = ""
        self._log.info("access token for upstream obtained", endpoint=str(origin_of(self._server.token_endpoint)))

    async def _discover(self, challenge: Mapping[str, str]) -> AuthorizationServer:
        try:
            issuer = self._credentials.issuer or await self._find_issuer(challenge)
            server = await find_server(self._fetcher, issuer)
            check_confidential(read_named_url(server.token_endpoint), self._fetcher.listed)
        except NoAnswer as error:
            raise NoAnswer(f"{error}: set `token_url`") from None
        return server

    async def _find_issuer(self, challenge: Mapping[str, str]) -> str:
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

    async def _ask(self, server: AuthorizationServer) -> None:
        credentials = self._credentials
        form = {"grant_type": "client_credentials", "resource": self._resource}
        if self._scope:
            form["scope"] = self._scope
        headers, secrets = Client(credentials.client_id, credentials.client_secret, server.method).authentication()
        status, document = await self._fetcher.post_form(server.token_endpoint, {**form, **secrets}, headers)
        if status == 400 and document.get("error") in ("invalid_target", "invalid_request"):
            # Some servers don't know resource indicators (RFC 8707), and say so.
            del form["resource"]
            status, document = await self._fetcher.post_form(server.token_endpoint, {**form, **secrets}, headers)
        tokens = read_tokens(status, document)
        life = tokens.life or _LIFE
        self._headers = MappingProxyType({"authorization": f"Bearer {tokens.access}"})
        self._expires = self._clock() + max(life - MARGIN, life / 2)
