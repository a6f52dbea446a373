"""Who has connections open, from which address (trusted proxies say for whom they ask), and whether one more may."""

from collections.abc import Callable, Iterable
from ipaddress import IPv6Address, ip_address, ip_network
from time import monotonic
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.config.access import ConnectionsConfig
from gateway.deadlines import Deadlines
from gateway.observe.client_metrics import ConnectionMetrics, EndReason
from gateway.observe.logs import get_logger
from gateway.serve.http.error_answers import error_response
from gateway.serve.http.response_writes import NextTurn

# `X-Forwarded-For` is ignored if anybody but a trusted proxy sends it.

_FORWARDED: Final = b"x-forwarded-for"
FORWARDED: Final = frozenset({_FORWARDED, b"x-forwarded-proto", b"x-forwarded-host", b"forwarded"})
"""Headers by which a proxy says that it forwards a request."""


class TrustedProxies:
    """The addresses of `serve.trusted_proxies`."""

    def __init__(self, networks: Iterable[str]) -> None:
        """`networks`: as written in the configuration."""
        self._networks = tuple(ip_network(network) for network in networks)

    def __bool__(self) -> bool:
        return bool(self._networks)

    def __contains__(self, address: str) -> bool:
        return bool(self._networks) and self._has(address)

    def client(self, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """The client for which a trusted proxy asks: the last address that is not a trusted proxy's; None if none is.

        Addresses before it were written by somebody who is not trusted.
        """
        written = b",".join(value for name, value in headers if name == _FORWARDED).decode("latin-1")
        for part in reversed(written.split(",")):
            address = _address(part.strip())
            if address is None or not self._has(address):
                return address
        return None

    def _has(self, address: str) -> bool:
        try:
            parsed = ip_address(address)
        except ValueError:
            return False
        # A dual-stack socket shows IPv4 clients by their mapped IPv6 address.
        mapped = getattr(parsed, "ipv4_mapped", None)
        return any((mapped or parsed) in network for network in self._networks)


def _address(written: str) -> str | None:
    """`1.2.3.4`, `1.2.3.4:80`, `::1` or `[::1]:80` without the port; None if it is not an address."""
    host = written
    if written.startswith("["):
        host = written[1:].partition("]")[0]
    elif written.count(":") == 1:
        host = written.partition(":")[0]
    try:
        return str(ip_address(host))
    except ValueError:
        return None


def network_of(address: str) -> str:
    """The IPv4 address, or the /64 of an IPv6 address: one customer has all of it, and may choose the other half."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address[:64]
    if isinstance(parsed, IPv6Address):
        # An IPv4 client is the same client, whether or not it came through a dual-stack socket.
        return parsed.packed[:8].hex() if parsed.ipv4_mapped is None else str(parsed.ipv4_mapped)
    return address


_SAID_EVERY: Final = 60.0
_WORDS: Final[dict[EndReason, str]] = {
    "total": "serve.connections.total is reached",
    "address": "one address has reached serve.connections.per_address",
    "descriptors": "the limit of open files is reached; the rest is reserved for the admin port and for servers",
}

log = get_logger("serve")


class ClientConnections:
    """The connections of one listening socket."""

    def __init__(
        self,
        limits: ConnectionsConfig,
        metrics: ConnectionMetrics,
        *,
        proxies: TrustedProxies | None = None,
        files: int | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`files`: the file descriptor from which on none is for clients; None: all may be."""
        self.limits = limits
        self.deadlines = Deadlines()
        self.turn = NextTurn()
        self.proxies = TrustedProxies(()) if proxies is None else proxies
        self._metrics = metrics
        self._files = files
        self._clock = clock
        self._open = 0
        self._of_network: dict[str, int] = {}
        self._said: dict[EndReason, float] = {}

    def __len__(self) -> int:
        return self._open

    def admit(self, address: str, descriptor: int) -> EndReason | None:
        """Admit an opened connection (None), or say why it is refused. Every admitted one must `leave`."""
        if self._files is not None and descriptor >= self._files:
            return self._refused("descriptors")
        if self._open >= self.limits.total:
            return self._refused("total")
        if address not in self.proxies and not self.enter(address):
            return "address"
        self._open += 1
        return None

    def leave(self, address: str) -> None:
        """Record that an admitted connection is closed."""
        self._open -= 1
        if address not in self.proxies:
            self.exit(address)

    def enter(self, address: str) -> bool:
        """Count a connection of this address. Returns whether it may have one more; if so, `exit` must follow."""
        network = network_of(address)
        count = self._of_network.get(network, 0)
        if count >= self.limits.per_address:
            self._refused("address")
            return False
        self._of_network[network] = count + 1
        return True

    def exit(self, address: str) -> None:
        """Record that a connection counted for this address is over."""
        network = network_of(address)
        left = self._of_network[network] - 1
        if left:
            self._of_network[network] = left
        else:
            del self._of_network[network]

    def ended(self, reason: EndReason) -> None:
        """Record that the gateway ended a connection."""
        self._metrics.ended(reason)

    def _refused(self, reason: EndReason) -> EndReason:
        self._metrics.ended(reason)
        now = self._clock()
        if now - self._said.get(reason, -_SAID_EVERY) >= _SAID_EVERY:
            self._said[reason] = now
            log.warning("connections of clients are refused", reason=_WORDS[reason], open=self._open)
        return reason


# The address of a request that came through a trusted proxy becomes its client's, so that bad credentials count against
# their sender. Such a client may have as many requests running as others may have connections.


class ForwardedClients:
    """Replaces a trusted proxy's address by its client's."""

    def __init__(self, app: ASGIApp, connections: ClientConnections) -> None:
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
