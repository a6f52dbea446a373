"""One sign-in of a person: the authorization code grant with PKCE (OAuth 2.1, section 4.1; MCP, "Authorization").

Turns what is known about an authorization server into the address at which a person signs in, the address at which they
end into a code, and a code or a refresh token into the form that asks for tokens. `oauthlib` writes the requests and
reads the redirect; what it does not check is checked here: the issuer (RFC 9207), repeated fields, PKCE being there.
Pure: no clock, no network; only the state and the verifier are random.
"""

import secrets
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hmac import compare_digest
from typing import Any, Final, Literal, cast
from urllib.parse import parse_qsl, quote_plus, urlsplit

from oauthlib.oauth2 import OAuth2Error, WebApplicationClient

from gateway.config.address import is_loopback
from gateway.config.gateway_config import SignInConfig
from gateway.escape import escape_text
from gateway.proxy.transport.http.http_answers import status_words
from gateway.proxy.transport.oauth.discovery import AuthorizationServer
from gateway.proxy.transport.transport_interface import NoAnswer

AuthMethod = Literal["none", "client_secret_basic", "client_secret_post"]


@dataclass(frozen=True, slots=True)
class Client:
    """A client's id and how it authenticates."""

    id: str
    secret: str | None = field(default=None, repr=False)
    method: AuthMethod = "none"
    redirect_uri: str = ""
    """What it was registered with; empty: it was not registered by the gateway."""

    def forgotten(self) -> "Client":
        """The client after its authorization server forgot it: the next sign-in registers another."""
        return replace(self, redirect_uri="")

    def authentication(self) -> tuple[dict[str, str], dict[str, str]]:
        """The headers and the fields of a form that say who asks."""
        if self.secret is None or self.method == "none":
            return {}, {"client_id": self.id}
        if self.method == "client_secret_post":
            return {}, {"client_id": self.id, "client_secret": self.secret}
        pair = f"{quote_plus(self.id)}:{quote_plus(self.secret)}"
        return {"authorization": f"Basic {b64encode(pair.encode()).decode()}"}, {}


# As which client the gateway signs people in: MCP, "Client Registration Approaches", and RFC 7591.

_ID_BOUND: Final = 4096
_METHODS: Final[Mapping[str, AuthMethod]] = {
    "none": "none",
    "client_secret_basic": "client_secret_basic",
    "client_secret_post": "client_secret_post",
}


@dataclass(frozen=True, slots=True)
class Registration:
    """A request to register the gateway."""

    endpoint: str
    redirect_uri: str
    document: Mapping[str, Any]


def choose_client(
    config: SignInConfig, server: AuthorizationServer, redirect_uri: str, known: Client | None
) -> Client | Registration:
    """The client to use, or the registration that makes one. `known`: the client that the gateway registered at this
    very issuer before. Raises `NoAnswer`: there is none, and the authorization server registers none."""
    if config.client_id is not None:
        return Client(config.client_id, config.client_secret, "none" if config.client_secret is None else server.method)
    if config.client_metadata_url is not None and server.reads_documents:
        return Client(config.client_metadata_url)
    if known is not None and known.redirect_uri == redirect_uri:
        return known
    if server.registration_endpoint is None:
        raise NoAnswer(
            f"its authorization server {server.issuer!r} registers no clients: register one there with the redirect "
            f"address {redirect_uri!r}, and set `auth.issuer` and `auth.client_id`"
        )
    return Registration(server.registration_endpoint, redirect_uri, registration_document(redirect_uri))


def registration_document(redirect_uri: str) -> dict[str, Any]:
    """What the gateway says about itself when it registers: a public client that keeps signed-in people signed in."""
    native = is_loopback(urlsplit(redirect_uri).hostname or "")
    return {
        "client_name": "codec-gateway",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "native" if native else "web",
    }


def read_registration(status: int, document: Mapping[str, Any], redirect_uri: str) -> Client:
    """Read the answer to a registration. Raises `NoAnswer`: it was refused, or made a client that can't be used."""
    client_id: object = document.get("client_id")
    if status not in (200, 201) or not isinstance(client_id, str) or not 0 < len(client_id) <= _ID_BOUND:
        told = " ".join(each for key in ("error", "error_description") if isinstance(each := document.get(key), str))
        said = f" ({escape_text(told, 200)})" if told else ""
        raise NoAnswer(
            f"its authorization server refused to register the gateway: {status_words(status)}{said}; register a "
            f"client there with the redirect address {redirect_uri!r}, and set `auth.issuer` and `auth.client_id`"
        )
    allowed: object = document.get("redirect_uris")
    if isinstance(allowed, list) and redirect_uri not in cast("list[object]", allowed):
        raise NoAnswer("its authorization server registered the gateway with another redirect address")
    secret: object = document.get("client_secret")
    secret = secret if isinstance(secret, str) and 0 < len(secret) <= _ID_BOUND else None
    asked: object = document.get("token_endpoint_auth_method")
    if asked is None:
        asked = "none" if secret is None else "client_secret_basic"
    method = _METHODS.get(asked) if isinstance(asked, str) else None
    if method is None or (method != "none" and secret is None):
        shown = escape_text(repr(asked), 100)
        raise NoAnswer(f"its authorization server registered the gateway to authenticate by {shown}, which it can't")
    return Client(client_id, secret, method, redirect_uri)


_VERIFIER: Final = 64
_CODE_BOUND: Final = 4096
_OFFLINE: Final = "offline_access"
"""The scope for which OpenID providers issue refresh tokens, if the person is asked for consent."""
NOT_OURS: Final = "this address belongs to no sign-in that is under way here"


class NotOurs(NoAnswer):
    """The redirect belongs to no sign-in that is under way: it changes nothing."""


@dataclass(frozen=True, slots=True)
class CodeFlow:
    """What is remembered of a sign-in until its redirect comes. Used once."""

    server: AuthorizationServer
    client: Client
    redirect_uri: str
    resource: str
    """The MCP server's name in requests (RFC 8707); empty: none is sent."""
    scope: str | None
    state: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    verifier: str = field(default_factory=lambda: _library("").create_code_verifier(_VERIFIER), repr=False)

    def address(self) -> str:
        """Where the person signs in. Raises `NoAnswer`: the authorization server offers no sign-in, or does not check
        code challenges."""
        endpoint = self.server.authorization_endpoint
        if endpoint is None:
            raise NoAnswer(f"its authorization server {self.server.issuer!r} names no authorization endpoint")
        if not self.server.has_s256:
            raise NoAnswer(
                f"its authorization server {self.server.issuer!r} does not say that it checks code challenges "
                "(PKCE with S256), without which a stolen code could be used"
            )
        library = _library(self.client.id)
        # oauthlib refuses http, even on loopback; which addresses may be http is decided in `discovery.py`.
        secure = library.prepare_request_uri(
            "https:" + endpoint.partition(":")[2],
            redirect_uri=self.redirect_uri,
            scope=self.scope,
            state=self.state,
            code_challenge=library.create_code_challenge(self.verifier, "S256"),
            code_challenge_method="S256",
            resource=self.resource,
            prompt="consent" if _OFFLINE in (self.scope or "").split() else None,
        )
        return endpoint.partition(":")[0] + ":" + secure.partition(":")[2]

    def read_redirect(self, address: str) -> str:
        """The code in the address at which the person ended, or in its query.

        Raises:
            NotOurs: the state is not that of this sign-in: another page sent it.
            NoAnswer: the authorization server refused, or it is not the one that was asked.
        """
        try:
            query = urlsplit(address).query or address
            pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=64)
        except ValueError:
            raise NotOurs(NOT_OURS) from None
        given = dict(pairs)
        if not compare_digest(given.get("state", "").encode(), self.state.encode()):
            raise NotOurs(NOT_OURS)
        if len(given) != len(pairs):
            raise NoAnswer("the address repeats a field: expected the one at which your browser ended")
        self._check_issuer(given.get("iss"))
        try:
            found = _library(self.client.id).parse_request_uri_response(f"https://callback/?{query}", self.state)
        except OAuth2Error as error:
            words = " ".join(str(each) for each in (error.error, error.description) if each)
            raise NoAnswer(f"its authorization server refused the sign-in: {escape_text(words, 200)}") from None
        code: str = found["code"]
        if len(code) > _CODE_BOUND:
            raise NoAnswer("its authorization server sent no code that could be used")
        return code

    def code_form(self, code: str) -> dict[str, str]:
        """The form that exchanges the code for tokens."""
        library = _library(self.client.id)
        body = library.prepare_request_body(
            code=code, redirect_uri=self.redirect_uri, code_verifier=self.verifier, include_client_id=False
        )
        return _with_resource(body, self.resource)

    def _check_issuer(self, named: str | None) -> None:
        if named is not None and named != self.server.issuer:
            # What another server says is not shown, not even its error.
            raise NoAnswer("the redirect came from another authorization server than the one that was asked")
        if named is None and self.server.names_itself:
            raise NoAnswer("the redirect does not say which authorization server it comes from, although it should")


def refresh_form(refresh_token: str, resource: str, scope: str | None = None) -> dict[str, str]:
    """The form that asks for new tokens. `scope`: at most what was granted; a refresh can't widen it."""
    return _with_resource(_library("").prepare_refresh_body(refresh_token=refresh_token, scope=scope), resource)


def wanted_scope(
    configured: str | None, challenge: Mapping[str, str], supported: str | None, server: AuthorizationServer
) -> str | None:
    """The scopes to ask for; None: none are named (MCP, "Scope Selection Strategy"). `supported`: those that the MCP
    server supports."""
    scope = configured or readable_scope(challenge.get("scope", "")) or supported
    if scope is not None and configured is None and _OFFLINE in server.scopes and _OFFLINE not in scope.split():
        return f"{scope} {_OFFLINE}"
    return scope


def readable_scope(scope: str) -> str | None:
    """A scope that a server named; None: it is not one (RFC 6749, 3.3), or is too long."""
    words = scope.split()
    fits = all(each.isascii() and each.isprintable() and '"' not in each and "\\" not in each for each in words)
    return " ".join(words) if words and fits and len(scope) <= _CODE_BOUND else None


def joined_scope(*scopes: str | None) -> str | None:
    """All scopes of several lists, each once."""
    return " ".join(dict.fromkeys(word for scope in scopes for word in (scope or "").split())) or None


def _with_resource(body: str, resource: str) -> dict[str, str]:
    form = dict(parse_qsl(body))
    return {**form, "resource": resource} if resource else form


def _library(client_id: str) -> Any:
    return cast("Any", WebApplicationClient)(client_id)
