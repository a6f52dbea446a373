"""The ways to a server: the environment's proxy, the addresses of a name, and keep-alive for silent connections.

Turns an origin into the proxy that leads to it, or into addresses; opens nothing.
"""

import asyncio
import socket
from ipaddress import ip_address
from urllib.request import getproxies, proxy_bypass

from gateway.config.address import is_loopback
from gateway.http1.origin import Address, Origin, read_url
from gateway.proxy.transport.interface import LinkLost


def proxy_for(origin: Origin) -> Address | None:
    """The environment's proxy for a server (`https_proxy`, `no_proxy` ...); None: there is none.

    A server on this machine never gets one: what a proxy calls loopback is its own machine, not ours.

    Raises:
        LinkLost: the variable names a proxy of a kind that is not supported.
    """
    if is_loopback(origin.host):
        return None
    found = getproxies()
    url = found.get("https" if origin.secure else "http") or found.get("all")
    if not url or proxy_bypass(origin.host):
        return None
    try:
        address = read_url(url if "://" in url else f"http://{url}")
    except ValueError:
        raise LinkLost(
            "the environment names a proxy that is not an http:// URL: correct or unset it", sent=False
        ) from None
    if address.origin.secure:
        raise LinkLost(
            "the environment names an https:// proxy, but only http:// ones are supported: use one of these", sent=False
        )
    return address


async def resolve(origin: Origin) -> list[str]:
    """All addresses of an origin's host, in the order in which the system returns them. Raises OSError."""
    if is_address(origin.host):
        return [origin.host]
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def is_address(host: str) -> bool:
    """Whether the host is an address and not a name."""
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def keep_alive(transport: asyncio.BaseTransport) -> None:
    """Have TCP notice within minutes that the other machine is gone, even if a stream is silent."""
    sock = transport.get_extra_info("socket")
    if sock is None:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if (number := getattr(socket, option, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, number, value)
