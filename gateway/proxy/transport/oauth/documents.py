"""JSON documents of authorization servers, fetched where it is safe to.

Turns a URL and a form into the status and the JSON object of the answer. No redirect is followed, the answer is
bounded, and an address that somebody else named must be public and https. It knows no OAuth.
"""

from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import urlencode

from pydantic_core import from_json, to_json

from gateway.config.model import UpstreamConfig
from gateway.http1.lines import header_lines
from gateway.http1.origin import Address, Origin, read_url
from gateway.proxy.transport.http.client import HttpClient
from gateway.proxy.transport.http.headers import common_headers
from gateway.proxy.transport.oauth.metadata import check_confidential, read_named_url

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
