"""Finds the authorization server of an MCP server (MCP, "Authorization Server Discovery").

Turns a challenge, or its absence, into the server's metadata (RFC 9728) and that of one authorization server (RFC
8414), by the documents that the two publish. It sends nothing secret.
"""

from collections.abc import Mapping
from urllib.parse import urljoin

from gateway.observe.escape import escape_text
from gateway.proxy.transport.interface import NoAnswer
from gateway.proxy.transport.oauth.documents import DocumentFetcher
from gateway.proxy.transport.oauth.metadata import (
    AuthorizationServer,
    Resource,
    issuer_urls,
    read_resource,
    read_server,
    resource_urls,
)


async def find_resource(fetcher: DocumentFetcher, url: str, challenge: Mapping[str, str]) -> Resource | None:
    """What the MCP server at `url` says about itself; None: nothing. Raises `NoAnswer`, `LinkLost`.

    Args:
        challenge: the parameters of the challenge with which it refused a request.
    """
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
