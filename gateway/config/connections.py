"""Bounds on what any client may hold (connections, heads of requests, silence), and which proxies speak for others.

The settings in their internal form; times are seconds, sizes are bytes. It opens no socket.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_network

from gateway.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ConnectionsConfig:
    """Bounds on clients' connections, whoever the clients are."""

    total: int = 4096
    """Connections that may be open at a time."""
    per_address: int = 512
    """The same for one address (of IPv6: for one /64)."""
    head_bytes: int = 64 * 1024
    """Largest head of a request: its line and its headers."""
    head_fields: int = 100
    """Headers that a request may have."""
    head_timeout: float = 10.0
    """Time for a head to be complete, from its first byte; for the first one, from when the connection was opened."""
    body_timeout: float = 60.0
    """Longest silence in the middle of a body."""
    idle_timeout: float = 75.0
    """Longest silence between two requests."""
    write_timeout: float = 60.0
    """Longest time for which a client may read nothing of what is written to it."""


def read_networks(written: Iterable[str], key: str) -> tuple[str, ...]:
    """Read addresses and networks (`10.0.0.0/8`), each as a network.

    Raises:
        ConfigError: one is neither; `key` names the setting.
    """
    found: list[str] = []
    for each in written:
        try:
            found.append(str(ip_network(each.strip(), strict=False)))
        except ValueError:
            raise ConfigError(f"{key}: expected an address or a network such as 10.0.0.0/8, got {each!r}") from None
    return tuple(found)
