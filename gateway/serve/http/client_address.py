"""Proxies in front of the gateway that are believed when they say for whom they ask.

Turns an address and the `X-Forwarded-For` headers of a request into the address of the client. From anybody else the
header is not looked at. It counts nothing.
"""

from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

_FORWARDED: Final = b"x-forwarded-for"


class TrustedProxies:
    """The addresses of `serve.trusted_proxies`."""

    def __init__(self, networks: Iterable[str]) -> None:
        """`networks`: as the configuration has them."""
        self._networks = tuple(ip_network(network) for network in networks)

    def __bool__(self) -> bool:
        return bool(self._networks)

    def __contains__(self, address: str) -> bool:
        return bool(self._networks) and self._has(address)

    def client(self, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """For whom a proxy of ours asks: the last address that is no proxy of ours; None where none is named.

        What stands before it was written by somebody who is not trusted.
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
        # A socket for both families shows IPv4 clients by their mapped address.
        mapped = getattr(parsed, "ipv4_mapped", None)
        return any((mapped or parsed) in network for network in self._networks)


def _address(written: str) -> str | None:
    """`1.2.3.4`, `1.2.3.4:80`, `::1` or `[::1]:80` without the port; None where it is not an address."""
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
    """The address, or of IPv6 the /64 that one customer has: its other half is theirs to choose."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address[:64]
    if isinstance(parsed, IPv6Address):
        # An IPv4 client is one client, whether or not it came by a socket for both families.
        return parsed.packed[:8].hex() if parsed.ipv4_mapped is None else str(parsed.ipv4_mapped)
    return address
