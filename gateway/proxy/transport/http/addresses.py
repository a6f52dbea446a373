"""Which servers may be reached.

Judges addresses: a URL that the operator wrote may lead anywhere, one that somebody else named may not lead into our
own network (SSRF). The judgement is made on the very address that is connected to, so that no name can answer
differently in between. It opens nothing.
"""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

from gateway.http1.origin import Origin
from gateway.proxy.transport.interface import NoAnswer

_NAT64: Final = ip_network("64:ff9b::/96")
_UNICAST: Final = ip_network("2000::/3")
"""All of IPv6 that is given to the internet (IANA, "Internet Protocol Version 6 Address Space"). What lies elsewhere is
a machine's own, a link's, a site's, or another way to write an IPv4 address."""
_NOBODYS: Final = (ip_network("3fff::/20"), ip_network("192.0.0.0/24"), ip_network("192.88.99.0/24"))
"""For documents, for protocols, and for relays that are no more."""
_ISATAP: Final = frozenset({0x0000_5EFE, 0x0200_5EFE})
"""The upper half of the interface's part of an address that leads into an IPv4 net (RFC 5214, 6.1)."""


def check_public(origin: Origin, addresses: list[str], listed: frozenset[Origin]) -> None:
    """Refuse to connect into a private network for somebody else.

    Args:
        origin: what was asked for.
        addresses: what its host resolved to.
        listed: what the operator named in the configuration.

    Raises:
        NoAnswer: one of the addresses is not public, and the origin is not listed.
    """
    if origin in listed:
        return
    private = [address for address in addresses if not is_public(address)]
    if private:
        raise NoAnswer(
            f"{str(origin)!r} was named by a server and leads to the private address {private[0]}, which only a URL in "
            "the gateway's own configuration may: set it there if it is meant"
        )


def is_public(address: str) -> bool:
    """Whether an address belongs to the internet: not to this machine, a private net, a link or a group.

    One that leads on to an IPv4 address is judged by that one.
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
    """The IPv4 addresses that a translation or a tunnel reaches through this one."""
    lower = IPv4Address(int(ip) & 0xFFFF_FFFF)
    if ip in _NAT64 or (int(ip) >> 32) & 0xFFFF_FFFF in _ISATAP:
        return [lower]
    return [each for each in (ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())) if each is not None]
