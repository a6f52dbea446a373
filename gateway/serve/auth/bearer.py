"""Who may call: checks the credential of every request, applies its limits, and refuses requests without one.

Turns an ASGI application into one that sees only requests of known callers (`scope["state"]["principal"]` says whose)
within their limits. Refusals follow RFC 6750 and, where an authorization server is configured, RFC 9728: they say where
to get a token. If no credential is configured, everybody is `anonymous`. It knows no route but the metadata's.
"""

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from functools import partial
from hashlib import sha256
from hmac import compare_digest
from math import ceil
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.config.access import OAuthConfig
from gateway.observe.client_metrics import AccessMetrics
from gateway.protocol.eras import HANDSHAKE_VERSIONS, NEWEST_HANDSHAKE
from gateway.proxy.caller import ANYBODY
from gateway.proxy.proxy import Proxy
from gateway.replicas.replica_interface import FORWARDED
from gateway.serve.auth.api_keys import KeyRing, digest_of
from gateway.serve.auth.identity import (
    FULL,
    LIMITED,
    OPERATOR,
    CannotTell,
    CredentialRefused,
    Identity,
    MustWait,
    ScopeMissing,
)
from gateway.serve.auth.rate_limiter import FailedTries, Limiter, RateLimits, RateRefused, RequestKind
from gateway.serve.http.error_answers import Refusal, error_response
from gateway.serve.http.request_parts import headers_of, name_principal, principal_of
from gateway.shared import Shared

# Credentials that can't be guessed (256 random bits, or a signature that was checked before) are looked up first, by
# their SHA-256: the timing of a lookup among hashes helps nobody to find a key, and a key does not contain its name. A
# new signature can't be guessed either. Anything else may be a guess and is checked separately, so that guessing can be
# slowed down without locking out holders of keys and access tokens.

UNGUESSABLE: Final = 32
"""Characters from which on a random token can't be found by trying; the generated one has 43."""


_UNKNOWN: Final = (
    "unknown credential: see `codec-gateway token` for the gateway's token, `codec-gateway keys list` for keys"
)


class AccessTokens(Protocol):
    """The interface of `oauth.py`, separate so that a gateway without an issuer loads no cryptography."""

    def reads(self, credential: str) -> bool:
        """Whether it has the form of an access token, and so can't be a guess at another credential."""
        ...

    def remembered(self, digest: bytes) -> Identity | None:
        """Whose token has this SHA-256, if it was checked before and is still good."""
        ...

    async def verify(self, token: str, digest: bytes) -> Identity:
        """Whose token it is. Raises `CredentialRefused`."""
        ...


class Credentials:
    """Every credential that this gateway accepts."""

    def __init__(
        self, token: str | None = None, keys: KeyRing | None = None, oauth: AccessTokens | None = None
    ) -> None:
        """`token`: the operator's; None: there is none."""
        self._token = None if token is None else digest_of(token)
        self._strong = token is not None and len(token) >= UNGUESSABLE
        self._keys = keys
        self._oauth = oauth

    def follow(self) -> bool:
        """Pick up changes of the key file. Returns whether callers need a credential."""
        if self._keys is not None:
            self._keys.follow()
        return self._token is not None or self._oauth is not None or (self._keys is not None and self._keys.in_use)

    def recognise(self, digest: bytes) -> Identity | None:
        """Whose credential has this SHA-256; None if it is unknown or could be guessed. Raises `CredentialRefused`: it
        is a key that has expired."""
        if self._strong and self._is_ours(digest):
            return OPERATOR
        if self._keys is not None and (identity := self._keys.find(digest)) is not None:
            return identity
        return None if self._oauth is None else self._oauth.remembered(digest)

    async def verify(self, credential: str, digest: bytes) -> Identity | None:
        """Whose access token it is, where `recognise` did not know it; None if it does not look like an access token.
        Raises `CredentialRefused`: the token is refused; see `TokenVerifier.verify` in `oauth.py`."""
        if self._oauth is None or not self._oauth.reads(credential):
            return None
        return await self._oauth.verify(credential, digest)

    def check_guess(self, digest: bytes) -> Identity:
        """Whose credential it is, where `recognise` did not know it and it is not an access token. Raises
        `CredentialRefused`: it is nobody's."""
        if not self._strong and self._is_ours(digest):
            return OPERATOR
        raise CredentialRefused("unknown", _UNKNOWN)

    def _is_ours(self, digest: bytes) -> bool:
        return self._token is not None and compare_digest(digest, self._token)


# RFC 9728: the document at `/.well-known/oauth-protected-resource`, also with the resource's path appended (§3.1), and
# the parts of a challenge that point there (§5.1).

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"


class ProtectedResource:
    """The gateway as a protected resource of the configured authorization server."""

    def __init__(self, config: OAuthConfig) -> None:
        self._config = config
        parts = urlsplit(config.resource)
        self._path = parts.path.rstrip("/")
        self._metadata_url = f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{self._path}"
        self._scope = " ".join(config.scopes)

    def document(self, scope: Scope) -> JSONResponse | None:
        """The answer to a request for the metadata; None for any other request."""
        path: str = scope.get("path", "")
        if not path.startswith(WELL_KNOWN) or scope.get("method") not in {"GET", "HEAD"}:
            return None
        place = path.removeprefix(WELL_KNOWN).rstrip("/")
        endpoints = {"/mcp", self._path} - {""}
        # A server or view of its own (`/mcp/NAME`) is a part of the one resource, for which its tokens are.
        if place and place not in endpoints and place.rpartition("/")[0] not in endpoints:
            return None
        # Public, and read by clients in browsers too.
        headers = {"Access-Control-Allow-Origin": "*", "Cache-Control": "max-age=3600"}
        return JSONResponse(self.metadata(), headers=headers)

    def metadata(self) -> dict[str, Any]:
        """The document (RFC 9728 §2)."""
        return {
            "resource": self._config.resource,
            "authorization_servers": [self._config.issuer],
            "scopes_supported": list(self._config.scopes),
            "bearer_methods_supported": ["header"],
            "resource_name": "codec-gateway",
        }

    def challenge(self) -> list[str]:
        """Parts of `WWW-Authenticate`: where the metadata is, and which scopes to ask for."""
        return [f'resource_metadata="{self._metadata_url}"', f'scope="{self._scope}"']


_ASK: Final = "this gateway requires a token: send 'Authorization: Bearer TOKEN'; `codec-gateway token` shows it"
_ONE: Final = "send one credential: 'Authorization' and 'x-api-key' hold different ones, or one was sent twice"
_TOO_MUCH: Final = {
    "rate": "too many requests a minute: try again later",
    "concurrency": "too many requests at a time: wait until one of yours has finished",
    "tries": "too many bad credentials from this address: try again later",
    "signatures": "too many access tokens are being checked: try again later",
}


class BearerAuth:
    """Lets known callers within their limits through; answers all others with 401, 403, 429 or 503."""

    def __init__(
        self,
        app: ASGIApp,
        credentials: Credentials,
        metrics: AccessMetrics,
        *,
        resource: ProtectedResource | None = None,
        limiter: Limiter | None = None,
        tries: FailedTries | None = None,
        shared: Shared | None = None,
    ) -> None:
        """`resource`: what refusals say about OAuth; None: nothing. `shared`: counts for all replicas."""
        self._app = app
        self._credentials = credentials
        self._metrics = metrics
        self._resource = resource
        self._limits = RateLimits(
            Limiter() if limiter is None else limiter, FailedTries() if tries is None else tries, shared
        )
        self._followed = False
        """Whether the key file was checked for changes in this turn of the loop."""
        self._asks = True
        """Whether callers need a credential, according to the last check."""

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one ASGI connection; `lifespan` passes through."""
        if scope["type"] == "lifespan":
            return self._app(scope, receive, send)
        if self._resource is not None and (document := self._resource.document(scope)) is not None:
            return document(scope, receive, send)
        if not self._followed:
            self._follow()
        if self._asks:
            return self._check(scope, receive, send)
        name_principal(scope, ANYBODY)
        return self._app(scope, receive, send)

    async def _check(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            identity = await self._whose(credential_of(scope), _address_of(scope))
        except MustWait as error:
            await self._limited(RateRefused("signatures", error.wait))(scope, receive, send)
            return
        except CredentialRefused as error:
            self._metrics.auth_failed(error.kind)
            await self._refuse(error)(scope, receive, send)
            return
        if isinstance(identity, RateRefused):
            await self._limited(identity)(scope, receive, send)
            return
        name_principal(scope, identity.principal)
        if identity.allowance.is_free:
            await self._app(scope, receive, send)
        else:
            await self._admit(identity, scope, receive, send)

    async def identify(self, credential: str, address: str) -> Identity | RateRefused | None:
        """Whose credential it is that came from this address by another way than a header; None: nobody needs one here.
        It counts as a request of theirs. `RateRefused`: one over their limits, or too many bad ones came from there.

        Raises:
            CredentialRefused: it is not good.
        """
        if not self._credentials.follow():
            return None
        identity = await self._whose(credential.encode("utf-8", "replace"), address)
        if isinstance(identity, Identity):
            if (refused := await self._limits.enter(identity, "call", counted=False)) is not None:
                self._metrics.limited(refused.limit)
                return refused
            self._limits.leave(identity, "call")
        return identity

    async def _whose(self, given: bytes, address: str) -> Identity | RateRefused:
        digest = sha256(given).digest()
        known = self._credentials.recognise(digest)
        if known is not None:
            return known
        # A signature can't be found by trying, so bad ones don't count: they lock out nobody who shares the address.
        if (signed := await self._credentials.verify(given.decode("latin-1"), digest)) is not None:
            return signed
        if (refused := await self._limits.refused(address)) is not None:
            return refused
        try:
            return self._credentials.check_guess(digest)
        except CredentialRefused:
            await self._limits.failed(address)
            raise

    def _follow(self) -> None:
        """Pick up changes of the key file.

        Asking the file system takes as long as everything else here, so it is done once for all requests of one turn.
        """
        self._followed = True
        asyncio.get_running_loop().call_soon(self._follow_again)
        self._asks = self._credentials.follow()

    def _follow_again(self) -> None:
        self._followed = False

    async def _admit(self, identity: Identity, scope: Scope, receive: Receive, send: Send) -> None:
        kind = _kind_of(scope)
        refused = await self._limits.enter(identity, kind, counted=FORWARDED in scope)
        if refused is not None and refused.limit == "concurrency" and _may_be_control(scope):
            # The endpoint that reads the body refuses the request if it starts something after all.
            scope["state"][FULL] = partial(self._limited, refused)
            kind = "control"
            refused = await self._limits.enter(identity, kind, counted=FORWARDED in scope)
        if refused is not None:
            await self._limited(refused)(scope, receive, send)
            return
        scope["state"][LIMITED] = True
        try:
            await self._app(scope, receive, send)
        finally:
            self._limits.leave(identity, kind)

    def _limited(self, refused: RateRefused) -> Refusal:
        self._metrics.limited(refused.limit)
        headers = {"Retry-After": str(max(1, ceil(refused.wait)))}
        return error_response(429, _TOO_MUCH[refused.limit], code="rate_limit_exceeded", headers=headers)

    def _refuse(self, error: CredentialRefused) -> Refusal:
        if isinstance(error, CannotTell):
            return error_response(503, error.detail, code="issuer_unavailable", headers={"Retry-After": "5"})
        challenge = ['realm="codec-gateway"']
        if self._resource is not None:
            challenge += self._resource.challenge()
        status, code = 401, "invalid_api_key"
        if isinstance(error, ScopeMissing):
            status, code = 403, "insufficient_scope"
            challenge += ['error="insufficient_scope"', f'error_description="{error.detail}"']
        elif error.kind != "missing":
            # RFC 6750 §3.1: a request without credentials gets no error code, only how to authenticate.
            challenge += ['error="invalid_token"', f'error_description="{error.detail}"']
        return error_response(
            status, error.detail, code=code, headers={"WWW-Authenticate": "Bearer " + ", ".join(challenge)}
        )


def credential_of(scope: Scope) -> bytes:
    """What follows `Bearer`, or the value of `x-api-key`, which clients of Anthropic's API send.

    Others use that header for other things, so it is read under `/v1` only.

    Raises:
        CredentialRefused: there is none, or more than one: a proxy in front of us may have checked the other one.
    """
    bearers = [value for name, value in scope["headers"] if name == b"authorization"]
    keys = [value for name, value in scope["headers"] if name == b"x-api-key"] if _is_api(scope) else []
    if not bearers and not keys:
        raise CredentialRefused("missing", _ASK)
    if len(bearers) > 1 or len(keys) > 1:
        raise CredentialRefused("malformed", _ONE if keys else _ASK)
    given = {_bearer_of(value) for value in bearers} | {value.strip() for value in keys}
    if len(given) > 1:
        raise CredentialRefused("malformed", _ONE)
    credential = given.pop()
    if not credential:
        raise CredentialRefused("malformed", _ASK)
    return credential


def _bearer_of(value: bytes) -> bytes:
    scheme, _, given = value.partition(b" ")
    if scheme.lower() != b"bearer":
        raise CredentialRefused("malformed", _ASK)
    return given.strip()


def _is_api(scope: Scope) -> bool:
    return scope["path"].startswith("/v1/")


def _address_of(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _kind_of(scope: Scope) -> RequestKind:
    """Which kind of request it is. A stream is a GET, or `subscriptions/listen` of a 2026 client.

    The era matters, because in the handshake era nobody compares the `Mcp-Method` header with the body.
    """
    if scope["method"] == "GET":
        return "stream"
    listens = headers_of(scope).values.get("mcp-method") == "subscriptions/listen"
    return "stream" if listens and not _is_handshake(scope) else "call"


def _may_be_control(scope: Scope) -> bool:
    """Whether the request possibly starts nothing: it ends a session, or is a message of the handshake era, where only
    the body tells whether it is a request.
    """
    if scope["path"].rstrip("/") not in ("/mcp", "/sse"):
        return False
    return scope["method"] == "DELETE" or (scope["method"] == "POST" and _is_handshake(scope))


def _is_handshake(scope: Scope) -> bool:
    return headers_of(scope).values.get("mcp-protocol-version", NEWEST_HANDSHAKE) in HANDSHAKE_VERSIONS


# What a client's request brings along is added to its principal, and with the principal it reaches every request that
# is made on the client's behalf. `proxy/upstream/dispatcher.py` decides which server gets which header. No server gets
# the access token: it is exchanged for one of the server's (`proxy/transport/oauth/token_endpoint.py`).


class ClientHeaders:
    """Wraps an app."""

    def __init__(self, app: ASGIApp, proxy: Proxy) -> None:
        self._app = app
        self._proxy = proxy

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Pass a request on. Without such a server it costs one look."""
        if self._proxy.exchanges_tokens and scope["type"] == "http":
            _add_token(scope)
        if self._proxy.client_headers and scope["type"] == "http":
            headers, is_api = headers_of(scope).values, scope["path"].startswith("/v1/")
            brought = {
                # So that the server gets the same bytes (`http1/connection.py`).
                name: headers[name].encode("latin-1").decode("utf-8", "surrogateescape")
                for name in self._proxy.client_headers
                # Under /v1 this one is a credential for the gateway.
                if name in headers and not (is_api and name == "x-api-key")
            }
            name_principal(scope, replace(principal_of(scope), headers=brought))
        return self._app(scope, receive, send)


def _add_token(scope: Scope) -> None:
    principal = principal_of(scope)
    if principal.token is not None:
        token = replace(principal.token, text=credential_of(scope).decode("latin-1"))
        name_principal(scope, replace(principal, token=token))
