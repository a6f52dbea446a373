"""Who has connections open, and whether one more is allowed.

Counts clients' connections, in all and by address, within the bounds of the settings and of the process's open files.
Says in the log that some are refused, at most once a minute for each reason. It knows no HTTP.
"""

from collections.abc import Callable
from time import monotonic
from typing import Final

from gateway.config.connections import ConnectionsConfig
from gateway.deadlines import Deadlines
from gateway.observe.connection_metrics import ConnectionMetrics, EndReason
from gateway.observe.logs import get_logger
from gateway.serve.http.client_address import TrustedProxies, network_of
from gateway.serve.http.transport import NextTurn

_SAID_EVERY: Final = 60.0
_WORDS: Final[dict[EndReason, str]] = {
    "total": "serve.connections.total is reached",
    "address": "one address has reached serve.connections.per_address",
    "descriptors": "the limit of open files is reached; the rest is reserved for the admin port and for servers",
}

log = get_logger("serve")


class Connections:
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
