"""Finds the authorization server of an MCP server (MCP, "Authorization Server Discovery").

Turns a challenge, or its absence, into the server's metadata (RFC 9728) and that of one authorization server (RFC
8414), by the documents that the two publish. It sends nothing secret.
"""

from collections.abc import Mapping

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
    for place in [named] if named else resource_urls(url):
        if (document := await fetcher.get(place)) is not None:
            return read_resource(document, url)
    return None


async def find_server(fetcher: DocumentFetcher, *issuers: str) -> AuthorizationServer:
    """What an authorization server says about itself: the first of these that says something.

    Raises `NoAnswer`, `LinkLost`.
    """
    for issuer in issuers:
        for place in issuer_urls(issuer):
            if (document := await fetcher.get(place)) is not None:
                return read_server(document, issuer)
    raise NoAnswer(f"its authorization server {escape_text(issuers[0], 200)!r} publishes no metadata")
