"""The trusted proxies in front of the gateway, which may say for which client they ask.

Turns a peer's address and the `X-Forwarded-For` headers of a request into the client's address. The header is ignored
if anybody else sends it. It counts nothing.
"""

from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

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
            if address is None:
                return None
            if not self._has(address):
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
