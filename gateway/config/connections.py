"""What clients may hold, known or not: connections, heads of requests, silence. And which proxies speak for others.

These settings in their one internal form; times are seconds, sizes are bytes. It opens no socket.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_network

from gateway.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ConnectionsConfig:
    """Bounds of the connections of clients, whoever they are."""

    total: int = 4096
    """Connections that may be open at a time."""
    per_address: int = 512
    """The same for one address (of IPv6: for one /64)."""
    head_bytes: int = 64 * 1024
    """Largest head of a request: its line and its headers."""
    head_fields: int = 100
    """Headers of a request."""
    head_timeout: float = 10.0
    """A head must be complete so long after it began, the first one after the connection was opened."""
    body_timeout: float = 60.0
    """Longest silence in the middle of a body."""
    idle_timeout: float = 75.0
    """Longest silence between two requests."""
    write_timeout: float = 60.0
    """Time for which a client may take nothing of what is written to it."""


def read_networks(written: Iterable[str], key: str) -> tuple[str, ...]:
    """Addresses and networks (`10.0.0.0/8`), each as a network.

    Raises:
        ConfigError: one is neither; `key` is where it stands.
    """
    found: list[str] = []
    for each in written:
        try:
            found.append(str(ip_network(each.strip(), strict=False)))
        except ValueError:
            raise ConfigError(f"{key}: expected an address or a network such as 10.0.0.0/8, got {each!r}") from None
    return tuple(found)
