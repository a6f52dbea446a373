"""The client behind a proxy: an ASGI layer in front of all others, used if `serve.trusted_proxies` names any.

Replaces the address of a request that came through a trusted proxy by its client's, so that bad credentials count
against their sender. Such a client may have as many requests running as others may have connections. It knows no
credentials.
"""

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.serve.http.connections import Connections
from gateway.serve.http.errors import error_response


class ForwardedClients:
    """Replaces a trusted proxy's address by its client's."""

    def __init__(self, app: ASGIApp, connections: Connections) -> None:
        """`connections`: those over which the requests come."""
        self._app = app
        self._connections = connections

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        proxies, peer = self._connections.proxies, scope.get("client")
        address = proxies.client(scope["headers"]) if peer and peer[0] in proxies else None
        if address is None:
            await self._app(scope, receive, send)
            return
        if not self._connections.enter(address):
            limit = self._connections.limits.per_address
            words = f"{limit} requests from your address are running (serve.connections.per_address): try again later"
            await error_response(503, words, code="too_many_connections", headers={"Retry-After": "1"})(
                scope, receive, send
            )
            return
        try:
            await self._app({**scope, "client": (address, 0)}, receive, send)
        finally:
            self._connections.exit(address)
