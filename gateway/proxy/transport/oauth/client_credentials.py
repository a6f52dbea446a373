"""Access tokens for an MCP server, from our own credentials (OAuth 2.1, 4.2: client credentials).

Turns a client id and a secret into the `Authorization` of every request. The token endpoint is configured, or found by
what the server says when it refuses us (MCP, "Authorization"); the token is kept until shortly before it expires, and
fetched again when it is refused. The secret goes to no server but its issuer, and neither it nor a token is ever shown.
`proxy/transport/http/channel.py` uses this through the `Authorizer` Protocol.
"""

import asyncio
from base64 import b64encode
from collections.abc import Callable, Mapping
from time import monotonic
from types import MappingProxyType
from typing import Any, Final, cast
from urllib.parse import quote_plus, urlencode

import anyio
from pydantic_core import from_json
from structlog.typing import FilteringBoundLogger

from gateway.config.model import ClientCredentials, UpstreamConfig
from gateway.http1.lines import header_lines
from gateway.http1.origin import Address, read_url
from gateway.observe.escape import escape_text
from gateway.proxy.transport.http.authorizer import Authorizer
from gateway.proxy.transport.http.client import HttpClient
from gateway.proxy.transport.http.headers import challenge_parameters, status_words
from gateway.proxy.transport.interface import LinkLost, NoAnswer
from gateway.proxy.transport.oauth.metadata import (
    Endpoint,
    check_confidential,
    issuer_urls,
    read_issuer,
    read_named_url,
    read_resource,
    resource_urls,
)

_FETCH_TIME: Final = 10.0
_DOCUMENT_BOUND: Final = 64 * 1024
_TOKEN_BOUND: Final = 16 * 1024
_SCOPE_BOUND: Final = 4096
_LIFE: Final = 3600.0
"""Seconds that a token without a stated lifetime is used, unless it is refused sooner."""
_LONGEST_LIFE: Final = 365 * 86_400
_MARGIN: Final = 30.0
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
        self._client = client
        self._log = log
        self._clock = clock
        listed = [url, *(each for each in (credentials.token_url, credentials.issuer) if each)]
        self._listed = frozenset(read_url(each).origin for each in listed)
        self._scope = credentials.scope
        self._endpoint = Endpoint(read_url(credentials.token_url)) if credentials.token_url else None
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
        if self._endpoint is None and self._credentials.issuer is None:
            return _NOTHING
        async with self._lock:
            if self._clock() >= self._expires:
                await self._renew({})
        return self._headers

    async def refused(self, status: int, www_authenticate: str) -> bool:
        """See `Authorizer.refused`."""
        before = self._asked
        challenge = challenge_parameters(www_authenticate)
        async with self._lock:
            if self._asked != before:
                return not self._failure
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
            with anyio.fail_after(_FETCH_TIME):
                self._endpoint = self._endpoint or await self._discover(challenge)
                await self._ask(self._endpoint)
        except TimeoutError:
            self._failure = f"no access token: its authorization server did not answer within {_FETCH_TIME:g} s"
            raise NoAnswer(self._failure) from None
        except (NoAnswer, LinkLost) as error:
            self._failure = f"no access token: {error}"
            raise NoAnswer(self._failure) from None
        self._failure = ""
        self._log.info("access token for upstream obtained", endpoint=str(self._endpoint.address.origin))

    async def _discover(self, challenge: Mapping[str, str]) -> Endpoint:
        issuer = self._credentials.issuer
        if issuer is None:
            issuer = await self._find_issuer(challenge)
            check_confidential(read_named_url(issuer), self._listed)
            self._log.warning(
                "upstream chose the issuer that gets our client secret: set `oauth.issuer` if it is the right one",
                issuer=escape_text(issuer, 200),
            )
        for url in issuer_urls(issuer):
            if (document := await self._document(url)) is not None:
                endpoint = read_issuer(document, issuer)
                check_confidential(endpoint.address, self._listed)
                return endpoint
        raise NoAnswer(f"its authorization server {escape_text(issuer, 200)!r} publishes no metadata: set `token_url`")

    async def _find_issuer(self, challenge: Mapping[str, str]) -> str:
        named = challenge.get("resource_metadata")
        for url in [named] if named else resource_urls(self._url):
            if (document := await self._document(url)) is not None:
                resource = read_resource(document, self._url)
                self._resource = resource.name
                self._scope = self._scope or resource.scope
                if resource.issuers:
                    return resource.issuers[0]
        raise NoAnswer("it does not say which authorization server it trusts: set `token_url`")

    async def _ask(self, endpoint: Endpoint) -> None:
        credentials = self._credentials
        form = {"grant_type": "client_credentials", "resource": self._resource}
        if self._scope:
            form["scope"] = self._scope
        headers = {"content-type": "application/x-www-form-urlencoded"}
        if endpoint.method == "client_secret_basic":
            pair = f"{quote_plus(credentials.client_id)}:{quote_plus(credentials.client_secret)}"
            headers["authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        else:
            form |= {"client_id": credentials.client_id, "client_secret": credentials.client_secret}
        status, document = await self._fetch("POST", endpoint.address, headers, form)
        if status == 400 and document.get("error") in ("invalid_target", "invalid_request"):
            # Some servers don't know resource indicators (RFC 8707), and say so.
            del form["resource"]
            status, document = await self._fetch("POST", endpoint.address, headers, form)
        self._keep(status, document)

    def _keep(self, status: int, document: Mapping[str, Any]) -> None:
        token: object = document.get("access_token")
        if status != 200 or not isinstance(token, str) or not 0 < len(token) <= _TOKEN_BOUND:
            told = (document.get(key) for key in ("error", "error_description"))
            words = " ".join(each for each in told if isinstance(each, str))
            said = f" ({escape_text(words, 200)})" if words else ""
            raise NoAnswer(
                f"its authorization server answered {status_words(status)}{said}: check `oauth` of this server"
            )
        if not token.isascii() or not token.isprintable() or " " in token:
            raise NoAnswer("its authorization server issued one that is not visible ASCII, which no header can carry")
        seconds: object = document.get("expires_in")
        life = float(min(seconds, _LONGEST_LIFE)) if isinstance(seconds, int | float) and seconds > 0 else _LIFE
        self._headers = MappingProxyType({"authorization": f"Bearer {token}"})
        self._expires = self._clock() + max(life - _MARGIN, life / 2)

    async def _document(self, url: str) -> dict[str, Any] | None:
        status, document = await self._fetch("GET", read_named_url(url), {}, None)
        return document if status == 200 and document else None

    async def _fetch(
        self, method: str, address: Address, headers: Mapping[str, str], form: Mapping[str, str] | None
    ) -> tuple[int, dict[str, Any]]:
        """Return the status and the JSON object of an answer, empty if it is not an object. Follows no redirects."""
        common = {"host": address.origin.authority, "accept": "application/json", "accept-encoding": "identity"}
        connection = await self._client.take(address.origin, self._listed)
        try:
            body = urlencode(form).encode() if form is not None else b""
            connection.send(method, address.path, header_lines({**common, **headers}), body)
            await connection.head()
            data = await connection.read(_DOCUMENT_BOUND)
        finally:
            self._client.give(connection)
        try:
            document: object = from_json(data or b"")
        except ValueError:
            document = None
        return connection.status, cast("dict[str, Any]", document) if isinstance(document, dict) else {}


def authorizer_for(config: UpstreamConfig, client: HttpClient, log: FilteringBoundLogger) -> Authorizer | None:
    """Return what gets the upstream's tokens, the same for all connections; None if it needs none."""
    if config.oauth is None or config.url is None:
        return None
    key = (config.url, config.oauth)
    if key not in client.authorizers:
        client.authorizers[key] = ClientCredentialsGrant(config.url, config.oauth, client, log)
    return client.authorizers[key]
