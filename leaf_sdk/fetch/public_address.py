"""Whether an address belongs to the internet, and not to this machine, a private network, a link or a group.

Judges numeric addresses, including those that lead to another one (NAT64, 6to4, Teredo, ISATAP). Resolves no names and
opens nothing.
"""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

_NAT64: Final = ip_network("64:ff9b::/96")
_UNICAST: Final = ip_network("2000::/3")
"""All of IPv6 that is assigned to the internet (IANA, "Internet Protocol Version 6 Address Space"). Other addresses
belong to a machine, a link or a site, or are another way to write an IPv4 address."""
_NOBODYS: Final = (ip_network("3fff::/20"), ip_network("192.0.0.0/24"), ip_network("192.88.99.0/24"))
"""Networks for documentation, for protocols, and for relays that no longer exist."""
_ISATAP: Final = frozenset({0x0000_5EFE, 0x0200_5EFE})
"""The upper half of the interface identifier of an address that leads into an IPv4 network (RFC 5214, 6.1)."""


def is_public(address: str) -> bool:
    """Whether an address belongs to the internet: not to this machine, a private network, a link or a group.

    An address that leads to an IPv4 address is judged by that one.
    """
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(ip, IPv4Address):
        return _is_public(ip)
    inner = _embedded(ip)
    own = ip in _NAT64 or ip.ipv4_mapped is not None or (ip in _UNICAST and (_is_public(ip) or bool(inner)))
    return own and all(map(_is_public, inner))


def _is_public(ip: IPv4Address | IPv6Address) -> bool:
    known = not any(ip in network for network in _NOBODYS if network.version == ip.version)
    return known and ip.is_global and not ip.is_multicast


def _embedded(ip: IPv6Address) -> list[IPv4Address]:
    """Return the IPv4 addresses that a translation or a tunnel reaches through this one."""
    lower = IPv4Address(int(ip) & 0xFFFF_FFFF)
    if ip in _NAT64 or (int(ip) >> 32) & 0xFFFF_FFFF in _ISATAP:
        return [lower]
    return [each for each in (ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())) if each is not None]
