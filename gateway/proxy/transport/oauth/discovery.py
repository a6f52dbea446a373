"""What an MCP server and its authorization server say about themselves: found, fetched where it is safe, and read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast
from urllib.parse import urlencode, urljoin

from pydantic_core import from_json, to_json

from gateway.config.address import Address, Origin, read_url
from gateway.config.gateway_config import UpstreamConfig
from gateway.escape import escape_text
from gateway.http1.connection import header_lines
from gateway.proxy.transport.http.client import HttpClient
from gateway.proxy.transport.http.http_answers import common_headers
from gateway.proxy.transport.transport_interface import NoAnswer

# RFC 9728 for the MCP server, RFC 8414 and OpenID Connect Discovery for the authorization server.

Method = Literal["client_secret_basic", "client_secret_post"]
_RESOURCE: Final = "/.well-known/oauth-protected-resource"
_SERVER: Final = "/.well-known/oauth-authorization-server"
_OPENID: Final = "/.well-known/openid-configuration"


@dataclass(frozen=True, slots=True)
class AuthorizationServer:
    """What an authorization server says about itself. All URLs are http(s)."""

    issuer: str
    token_endpoint: str
    method: Method = "client_secret_basic"
    """How a client with a secret authenticates."""
    authorization_endpoint: str | None = None
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    scopes: tuple[str, ...] = ()
    has_s256: bool = False
    """Whether it says that it checks code challenges (PKCE)."""
    names_itself: bool = False
    """Whether its answers say who it is (`iss`, RFC 9207)."""
    reads_documents: bool = False
    """Whether a client's id may be the URL of a metadata document."""


@dataclass(frozen=True, slots=True)
class Resource:
    """What an MCP server's metadata says about its authorization servers."""

    name: str
    """Its name for itself; tokens are requested for this name (RFC 8707)."""
    issuers: tuple[str, ...]
    scope: str | None
    """The scopes that it supports, separated by blanks; None: it names none."""


def read_named_url(url: str) -> Address:
    """Parse a URL that a server named. Raises `NoAnswer`: it is not the URL of a server."""
    try:
        return read_url(url)
    except ValueError:
        raise NoAnswer(f"it names {_shown(url)}, which is not an http(s) URL") from None


def resource_urls(url: str) -> list[str]:
    """Where an MCP server's metadata may be, in the order in which to look (RFC 9728, 3.1)."""
    address = read_url(url)
    path = address.path.partition("?")[0].rstrip("/")
    places = [f"{_RESOURCE}{path}", _RESOURCE] if path else [_RESOURCE]
    return [f"{address.origin}{place}" for place in places]


def issuer_urls(issuer: str) -> list[str]:
    """Where an authorization server's metadata may be, in that order (RFC 8414, 3.1; OpenID Connect Discovery, 4; MCP).
    Raises `NoAnswer`: the issuer is not the URL of a server."""
    address = read_named_url(issuer)
    path = address.path.partition("?")[0].rstrip("/")
    places = [f"{_SERVER}{path}", f"{_OPENID}{path}", *([f"{path}{_OPENID}"] if path else [])]
    return [f"{address.origin}{place}" for place in places]


def read_resource(document: Mapping[str, Any], url: str) -> Resource:
    """Read which authorization servers the MCP server at `url` has. Raises `NoAnswer`: the document is about something
    else (RFC 9728, 3.3)."""
    named: object = document.get("resource")
    if not isinstance(named, str) or not _covers(named, url):
        raise NoAnswer(f"its metadata describes {_shown(named)}, not its own URL")
    scopes = _texts(document.get("scopes_supported"))
    return Resource(named, _texts(document.get("authorization_servers")), " ".join(scopes) or None)


def read_server(document: Mapping[str, Any], issuer: str) -> AuthorizationServer:
    """Read what the authorization server `issuer` says about itself. Raises `NoAnswer`: the document is another
    server's (RFC 8414, 3.3), or names no usable token endpoint."""
    named: object = document.get("issuer")
    if not isinstance(named, str) or not is_same_issuer(named, issuer):
        raise NoAnswer(
            f"the metadata of its authorization server {_shown(issuer)} names another issuer, {_shown(named)}"
        )
    token_endpoint = _url(document, "token_endpoint")
    if token_endpoint is None:
        raise NoAnswer(f"its authorization server {_shown(issuer)} names no token endpoint")
    methods = _texts(document.get("token_endpoint_auth_methods_supported"))
    by_body = bool(methods) and "client_secret_basic" not in methods and "client_secret_post" in methods
    return AuthorizationServer(
        named,
        token_endpoint,
        "client_secret_post" if by_body else "client_secret_basic",
        _url(document, "authorization_endpoint"),
        _url(document, "registration_endpoint"),
        _url(document, "revocation_endpoint"),
        _texts(document.get("scopes_supported")),
        "S256" in _texts(document.get("code_challenge_methods_supported")),
        document.get("authorization_response_iss_parameter_supported") is True,
        document.get("client_id_metadata_document_supported") is True,
    )


def is_same_issuer(named: str, issuer: str) -> bool:
    """Whether two issuers are the same: character for character, but for the slash of an empty path, which URL
    libraries add."""
    return named == issuer or (named.rstrip("/") == issuer.rstrip("/") and issuer.rstrip("/").count("/") == 2)


def has_same_origin(one: str, other: str) -> bool:
    """Whether two addresses are of one server; False: one of them is not an address."""
    try:
        return read_url(one).origin == read_url(other).origin
    except ValueError:
        return False


def check_confidential(address: Address, listed: frozenset[Origin]) -> None:
    """Refuse to send a secret, or to ask where to send it, unencrypted, unless the configuration names the origin.
    Raises `NoAnswer`: the origin is neither https nor listed."""
    if not address.origin.secure and address.origin not in listed:
        raise NoAnswer(f"{str(address.origin)!r} would receive our secret unencrypted: expected https")


def _covers(named: str, url: str) -> bool:
    """Whether the resource that a server names as itself contains the URL that we use."""
    try:
        resource, wanted = read_url(named), read_url(url)
    except ValueError:
        return False
    above = resource.path.rstrip("/")
    return resource.origin == wanted.origin and (wanted.path.rstrip("/") + "/").startswith(above + "/")


def _url(document: Mapping[str, Any], key: str) -> str | None:
    value: object = document.get(key)
    try:
        return str(read_url(value)) if isinstance(value, str) else None
    except ValueError:
        return None


def _texts(value: object) -> tuple[str, ...]:
    listed = cast("list[object]", value) if isinstance(value, list) else []
    return tuple(each for each in listed[:64] if isinstance(each, str) and len(each) <= 2048)


def _shown(value: object) -> str:
    return escape_text(repr(value), 200)


# No redirect is followed, the answer is bounded, and an address that somebody else named must be public and https.

FETCH_TIME: Final = 10.0
"""Seconds that one exchange with an authorization server may take, all its requests included."""
_DOCUMENT_BOUND: Final = 64 * 1024
_FORM: Final = "application/x-www-form-urlencoded"


class DocumentFetcher:
    """Fetches documents on behalf of one MCP server."""

    def __init__(self, client: HttpClient, *listed: str | None) -> None:
        """`listed`: URLs that the operator wrote; their origins may be private, and may speak http."""
        self._client = client
        self.listed = frozenset(read_url(url).origin for url in listed if url)

    async def get(self, url: str) -> dict[str, Any] | None:
        """The document at a URL; None: there is none. Raises `NoAnswer`, `LinkLost`."""
        status, document = await self._fetch("GET", read_named_url(url), {}, b"")
        return document if status == 200 and document else None

    async def look(self, url: str) -> tuple[int, str]:
        """The status of a page and the address to which it redirects. Raises `NoAnswer`, `LinkLost`."""
        address = read_named_url(url)
        connection = await self._client.take(address.origin, self.listed)
        try:
            connection.send("GET", address.path, header_lines(common_headers(address)), b"")
            await connection.head()
            return connection.status, connection.header("location")
        finally:
            self._client.give(connection)

    async def post_form(
        self, url: str, form: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Send a form that may hold secrets. Return the status and the object, empty if the answer is not one.

        Raises:
            NoAnswer, LinkLost: the address is not allowed, or does not answer.
        """
        return await self._post(url, {"content-type": _FORM, **(headers or {})}, urlencode(form).encode())

    async def post_json(self, url: str, value: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        """Like `post_form`, for a JSON object."""
        return await self._post(url, {"content-type": "application/json"}, to_json(value))

    async def _post(self, url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, dict[str, Any]]:
        address = read_named_url(url)
        check_confidential(address, self.listed)
        return await self._fetch("POST", address, headers, body)

    async def _fetch(
        self, method: str, address: Address, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, Any]]:
        connection = await self._client.take(address.origin, self.listed)
        try:
            lines = header_lines({**common_headers(address), "accept": "application/json", **headers})
            connection.send(method, address.path, lines, body)
            await connection.head()
            connection.decode()
            data = await connection.read(_DOCUMENT_BOUND)
        finally:
            self._client.give(connection)
        try:
            document: object = from_json(data or b"")
        except ValueError:
            document = None
        return connection.status, cast("dict[str, Any]", document) if isinstance(document, dict) else {}


def fetcher_for(config: UpstreamConfig, client: HttpClient) -> DocumentFetcher:
    """What fetches documents for people's sign-ins to this server."""
    return DocumentFetcher(client, config.url, None if config.auth is None else config.auth.issuer)


def origin_of(url: str) -> Origin:
    """The origin of a URL that was checked before."""
    return read_url(url).origin


# MCP, "Authorization Server Discovery". Nothing secret is sent.


async def find_resource(fetcher: DocumentFetcher, url: str, challenge: Mapping[str, str]) -> Resource | None:
    """What the MCP server at `url` says about itself; None: nothing. Raises `NoAnswer`, `LinkLost`. `challenge`: the
    parameters of the challenge with which it refused a request."""
    named = challenge.get("resource_metadata")
    # Some servers name a path, and some gateways in front of servers an address that is not there.
    places = [urljoin(url, named), *resource_urls(url)] if named else resource_urls(url)
    for place in dict.fromkeys(places):
        if (document := await fetcher.get(place)) is not None:
            return read_resource(document, url)
    return None


async def find_server(fetcher: DocumentFetcher, *issuers: str, named: str | None = None) -> AuthorizationServer:
    """What an authorization server says about itself: the first of these that says something.

    Args:
        named: the issuer that it must be, wherever it says so; None: the one whose metadata it is.

    Raises:
        NoAnswer, LinkLost: it does not answer, or what it says can't be trusted.
    """
    for issuer in issuers:
        for place in issuer_urls(issuer):
            if (document := await fetcher.get(place)) is not None:
                return read_server(document, named or issuer)
    raise NoAnswer(f"its authorization server {escape_text(issuers[0], 200)!r} publishes no metadata")
