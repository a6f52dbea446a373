"""Signs a person in to an MCP server: from its URL to an address for their browser, and from there to a grant.

`begin_sign_in` asks the MCP server who protects it, the authorization server what it can do, and registers the gateway
if need be; `finish_sign_in` exchanges the code of the redirect for tokens. `code_flow.py` decides;
only this module sends. It keeps nothing, and listens to no redirect.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Final, TypeVar
from urllib.parse import parse_qs, urlsplit

import anyio
from pydantic_core import to_json

from gateway.config.address import is_loopback, read_url
from gateway.config.gateway_config import SignInConfig, UpstreamConfig
from gateway.http1.connection import header_lines
from gateway.proxy.transport.http.client import HttpClient
from gateway.proxy.transport.http.http_answers import EVENTS, JSON, challenge_parameters, common_headers
from gateway.proxy.transport.oauth.code_flow import (
    Client,
    CodeFlow,
    NotOurs,
    Registration,
    choose_client,
    joined_scope,
    read_registration,
    wanted_scope,
)
from gateway.proxy.transport.oauth.discovery import (
    FETCH_TIME,
    DocumentFetcher,
    check_confidential,
    fetcher_for,
    find_resource,
    find_server,
    has_same_origin,
    read_named_url,
)
from gateway.proxy.transport.oauth.grants import Grant
from gateway.proxy.transport.oauth.token_endpoint import read_tokens
from gateway.proxy.transport.transport_interface import LinkLost, NoAnswer

# RFC 8252, 7.3. Another path, another page's guess or a request that never ends is refused and changes nothing. The
# answer is plain text, without a word of what was sent.

DEFAULT: Final = "http://127.0.0.1/callback"
_HEAD_BOUND: Final = 16 * 1024
_HEAD_TIME: Final = 5.0
_HEADERS: Final = (
    "content-type: text/plain\r\ncache-control: no-store\r\nreferrer-policy: no-referrer\r\nconnection: close\r\n"
)


class Redirects:
    """One sign-in's way back."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        """The redirect address, with the port that is listened on."""
        self._reader: Callable[[str], str] | None = None
        self._outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def expect(self, reader: Callable[[str], str]) -> None:
        """A sign-in has begun. `reader` reads the code from an address, as `CodeFlow.read_redirect` does."""
        self._reader = reader

    def listen_on(self, host: str, port: int) -> None:
        """Put the port that is listened on into the redirect address."""
        authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.uri = urlsplit(self.uri)._replace(netloc=authority).geturl()

    async def code(self) -> str:
        """Wait for the code. Raises `NoAnswer`: the authorization server refused."""
        return await asyncio.shield(self._outcome)

    def take(self, address: str) -> bool:
        """Take an address at which a browser ended, or its query. Return whether it settles the sign-in."""
        if self._reader is None or self._outcome.done():
            return False
        try:
            self._outcome.set_result(self._reader(address))
        except NotOurs:
            return False
        except NoAnswer as error:
            self._outcome.set_exception(error)
            # Nobody may be waiting any more.
            self._outcome.exception()
        return True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection."""
        try:
            async with asyncio.timeout(_HEAD_TIME):
                method, target, _ = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)
                address = urlsplit(target.decode("ascii"))
                ours = method == b"GET" and address.path == urlsplit(self.uri).path and self.take(address.query)
                status, words = ("200 OK", _DONE) if ours else ("404 Not Found", "No sign-in waits for this address.")
                writer.write(f"HTTP/1.1 {status}\r\n{_HEADERS}content-length: {len(words)}\r\n\r\n{words}".encode())
                await writer.drain()
        except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return
        finally:
            writer.close()


_DONE: Final = "codec-gateway has taken note of your sign-in. You can close this page; the terminal says how it went."


@asynccontextmanager
async def open_redirects(configured: str | None, used: str | None) -> AsyncGenerator[Redirects]:
    """Listen where the browser will come back; at an address that is not loopback, nothing listens.

    Args:
        configured: the redirect address of the settings; without a port, one that is free is used.
        used: the redirect address of the last sign-in: its port is used again if it is free, for authorization servers
            that compare it.

    Raises:
        NoAnswer: the configured port is taken.
    """
    wanted = urlsplit(configured or DEFAULT)
    host = wanted.hostname or ""
    if wanted.scheme != "http" or not is_loopback(host):
        yield Redirects(wanted.geturl())
        return
    last = urlsplit(used or "")
    ports = [wanted.port] if wanted.port else [*([last.port] if last.port and last.hostname == host else []), 0]
    redirects = Redirects(wanted.geturl())
    server = await _listen(host, ports, redirects)
    port: int = server.sockets[0].getsockname()[1]
    redirects.listen_on(host, port)
    try:
        yield redirects
    finally:
        server.close()


async def _listen(host: str, ports: list[int], redirects: Redirects) -> asyncio.Server:
    for port in ports:
        try:
            return await asyncio.start_server(redirects.serve, host, port, limit=_HEAD_BOUND)
        except OSError as error:
            if port == ports[-1]:
                raise NoAnswer(
                    f"can't listen on port {port} of {host!r} ({error.strerror}): free it, or set another "
                    "`auth.redirect_url`"
                ) from None
    raise AssertionError


T = TypeVar("T")
_DEFAULTS: Final = SignInConfig()
_PING: Final = to_json({"jsonrpc": "2.0", "id": 1, "method": "ping"})
_START_TIME: Final = 2 * FETCH_TIME
_LOOK_TIME: Final = FETCH_TIME / 2
_UNKNOWN: Final = (400, 401, 404, 410, 422)
"""The statuses of pages that refuse a client. Others may be meant for whoever is no browser."""


async def begin_sign_in(
    config: UpstreamConfig, client: HttpClient, redirect_uri: str, known: Grant | None = None
) -> CodeFlow:
    """Prepare the sign-in to an MCP server; `CodeFlow.address` is where the person goes.

    Args:
        redirect_uri: where the authorization server sends the browser.
        known: the last sign-in there: its client is used again, and its scopes are asked for again.

    Raises:
        NoAnswer, LinkLost: a server is away, or says what can't be trusted; the message says what to do.
    """
    return await _in_time(_begin(config, client, redirect_uri, known), _START_TIME)


async def _begin(config: UpstreamConfig, client: HttpClient, redirect_uri: str, known: Grant | None) -> CodeFlow:
    auth, url, fetcher = config.auth or _DEFAULTS, config.url or "", fetcher_for(config, client)
    challenge = await _challenge(config, client)
    resource = await find_resource(fetcher, url, challenge)
    issuers = () if resource is None else resource.issuers
    # A server without metadata is its own authorization server (MCP of 2025-03-26). Of several at one host, each may be
    # one of its own (Salesforce's).
    address = read_url(url)
    own = [str(address.origin), f"{address.origin}{address.path.partition('?')[0]}".rstrip("/")]
    # Where the server names one, the operator's may publish its metadata there (Atlassian's): at its own origin.
    configured = [auth.issuer, *(each for each in issuers if has_same_origin(each, auth.issuer))] if auth.issuer else []
    issuer, *others = configured or ([issuers[0]] if issuers else dict.fromkeys(own))
    try:
        check_confidential(read_named_url(issuer), fetcher.listed)
        server = await find_server(fetcher, issuer, *others, named=auth.issuer)
        for endpoint in (server.authorization_endpoint, server.token_endpoint):
            check_confidential(read_named_url(endpoint or ""), fetcher.listed)
    except NoAnswer as error:
        raise NoAnswer(f"{error}: set `auth.issuer` if you know the right one") from None
    same = known if known is not None and known.issuer == server.issuer else None
    name = str(read_url(url)) if resource is None else resource.name
    scope = wanted_scope(auth.scope, challenge, None if resource is None else resource.scope, server)
    scope = joined_scope(scope, *(() if same is None else (same.scope, same.missing)))

    async def flow_of(known: Client | None) -> CodeFlow:
        chosen = choose_client(auth, server, redirect_uri, known)
        client = await _register(fetcher, chosen, scope) if isinstance(chosen, Registration) else chosen
        return CodeFlow(server, client, redirect_uri, name if auth.resource is None else auth.resource, scope)

    flow = await flow_of(None if same is None else same.client)
    address = flow.address()
    is_known = same is not None and flow.client is same.client
    return await flow_of(None) if is_known and await _is_forgotten(fetcher, address) else flow


async def finish_sign_in(flow: CodeFlow, fetcher: DocumentFetcher, code: str) -> Grant:
    """Exchange the code for tokens. Raises `NoAnswer`, `LinkLost`."""
    headers, proof = flow.client.authentication()
    asking = fetcher.post_form(flow.server.token_endpoint, {**flow.code_form(code), **proof}, headers)
    status, document = await _in_time(asking, FETCH_TIME)
    server = flow.server
    grant = Grant(
        *(server.issuer, server.token_endpoint, server.revocation_endpoint, flow.client, flow.resource, flow.scope),
        sign_in=secrets.token_urlsafe(16),
    )
    return grant.renewed(read_tokens(status, document), datetime.now(UTC).timestamp())


async def revoke(grant: Grant, fetcher: DocumentFetcher) -> bool:
    """Have the authorization server end the grant (RFC 7009). Return whether it said that it did.

    Raises:
        NoAnswer, LinkLost: it did not answer.
    """
    token = grant.refresh or grant.access
    if grant.revocation_endpoint is None or token is None:
        return False
    headers, proof = grant.client.authentication()
    hint = "refresh_token" if grant.refresh else "access_token"
    asking = fetcher.post_form(grant.revocation_endpoint, {"token": token, "token_type_hint": hint, **proof}, headers)
    status, _ = await _in_time(asking, FETCH_TIME)
    return status == 200


async def _challenge(config: UpstreamConfig, client: HttpClient) -> Mapping[str, str]:
    """The challenge with which the server refuses a request that carries no token; empty if it refuses none."""
    address = read_url(config.url or "")
    headers = {name.lower(): value for name, value in config.headers.items()}
    lines = {**common_headers(address), **headers, "accept": f"{JSON}, {EVENTS}", "content-type": JSON}
    connection = await client.take(address.origin)
    try:
        connection.send("POST", address.path, header_lines(lines), _PING)
        await connection.head()
        return challenge_parameters(connection.header("www-authenticate")) if connection.status in (401, 403) else {}
    finally:
        client.give(connection)


async def _register(fetcher: DocumentFetcher, registration: Registration, scope: str | None) -> Client:
    status, document = await fetcher.post_json(registration.endpoint, registration.document)
    if status == 400 and scope is not None:
        # Some register nobody who names no scopes (Fastmail). Named at first, they would bound later sign-ins.
        asked = {**registration.document, "scope": scope}
        status, document = await fetcher.post_json(registration.endpoint, asked)
    return read_registration(status, document, registration.redirect_uri)


async def _is_forgotten(fetcher: DocumentFetcher, address: str) -> bool:
    """Whether the authorization server no longer knows the client that it registered.

    It would say so on its page only (RFC 6749, 4.1.2.1), at each sign-in from then on.
    """
    with suppress(NoAnswer, LinkLost), anyio.move_on_after(_LOOK_TIME):
        status, target = await fetcher.look(address)
        errors = parse_qs(urlsplit(target).query).get("error", [])
        return status in _UNKNOWN or (300 <= status < 400 and errors == ["invalid_client"])
    return False


async def _in_time(asking: Awaitable[T], seconds: float) -> T:
    try:
        with anyio.fail_after(seconds):
            return await asking
    except TimeoutError:
        raise NoAnswer(f"it and its authorization server did not answer within {seconds:g} s") from None
