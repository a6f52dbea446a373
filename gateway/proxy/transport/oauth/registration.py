"""The gateway as a client of one authorization server: its id, how it proves it, and how it got it."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, cast
from urllib.parse import quote_plus, urlsplit

from gateway.config.address import is_loopback
from gateway.config.model import SignInConfig
from gateway.escape import escape_text
from gateway.proxy.transport.http.http_answers import status_words
from gateway.proxy.transport.oauth.discovery import AuthorizationServer
from gateway.proxy.transport.server_link import NoAnswer

# The gateway as a client of one authorization server: its id, its secret if it has one, and how it proves it.
#
# Turns them into the header or the fields of a form (RFC 6749, 2.3.1). Pure.

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


# As which client the gateway signs people in (MCP, "Client Registration Approaches").
#
# Turns the settings and what an authorization server can do into a client, or into the request that registers one (RFC
# 7591), and the answer to that into a client. Pure.

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
    """The client to use, or the registration that makes one.

    Args:
        known: the client that the gateway registered at this very issuer before.

    Raises:
        NoAnswer: there is none, and the authorization server registers none.
    """
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
    """Read the answer to a registration.

    Raises:
        NoAnswer: it was refused, or made a client that can't be used.
    """
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
