"""For whom a proxy asks: an ASGI layer before all others, where `serve.trusted_proxies` names one.

Turns the address of a request that came through a proxy of ours into its client's, so that bad credentials count
against who sent them, and holds such a client to as many requests at a time as others may have connections. It knows no
credential.
"""

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.serve.http.connections import Connections
from gateway.serve.http.errors import error_response


class ForwardedClients:
    """Puts the client's address in the place of the proxy's."""

    def __init__(self, app: ASGIApp, connections: Connections) -> None:
        """`connections`: those that the requests come by."""
        self._app = app
        self._connections = connections

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        proxies, peer = self._connections.proxies, scope.get("client")
        address = proxies.client(scope["headers"]) if peer and peer[0] in proxies else None
        if address is None:
            await self._app(scope, receive, send)
            return
        if not self._connections.enter(address):
            limit = self._connections.limits.per_address
            words = f"{limit} requests of your address are running (serve.connections.per_address): ask again later"
            await error_response(503, words, code="too_many_connections", headers={"Retry-After": "1"})(
                scope, receive, send
            )
            return
        try:
            await self._app({**scope, "client": (address, 0)}, receive, send)
        finally:
            self._connections.exit(address)
