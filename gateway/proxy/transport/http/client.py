"""The gateway's connections to HTTP servers: opened, kept and reused.

Turns an origin into a connection that can take a request, and takes connections back. Servers that are not on this
machine are reached through the environment's proxy if there is one. A URL that somebody else named is reached only if
it leads to the internet. It knows no requests.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Hashable, Mapping
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Final, Protocol
from urllib.request import getproxies, proxy_bypass

import anyio

from gateway.config.address import Address, Origin, is_loopback, read_url
from gateway.http1.connection import CONNECT_TIME, KEPT_TIME, Connection, header_lines
from gateway.proxy.transport.transport_interface import LinkLost, NoAnswer
from leaf_sdk.fetch.public_address import is_public

# Credentials that never change are in the configuration's `headers` and don't need this.


class Authorizer(Protocol):
    """The credentials for one server."""

    async def headers(self) -> Mapping[str, str]:
        """Return the headers that carry the credentials; empty while there are none. Raises `NoAnswer`: they can't be
        obtained; the message says why."""
        ...

    async def refused(self, status: int, www_authenticate: str, sent: Mapping[str, str]) -> bool:
        """Return whether there are better ones than those `sent`, after the server answered 401 or 403. Raises as
        `headers` does."""
        ...


# A URL that the operator configured may lead anywhere, one that somebody else named may not lead into our own network
# (SSRF). The check is made on the very address that is connected to, so that a name can't resolve differently in
# between.


def check_public(origin: Origin, addresses: list[str], listed: frozenset[Origin]) -> None:
    """Refuse to connect to a private network on somebody else's behalf.

    Args:
        origin: the requested origin.
        addresses: the addresses that its host resolved to.
        listed: the origins that the operator named in the configuration.

    Raises:
        NoAnswer: one of the addresses is not public, and the origin is not listed.
    """
    if origin in listed:
        return
    private = [address for address in addresses if not is_public(address)]
    if private:
        raise NoAnswer(
            f"{str(origin)!r} was named by a server and leads to the private address {private[0]}; only a URL in the "
            "gateway's own configuration may do that: set it there if it is the right one"
        )


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


_KEPT: Final = 64
"""Idle connections to one origin, at most."""
_DRAIN_TIME: Final = 1.0


class HttpClient:
    """The HTTP client of the whole gateway; made by `open_http_client`."""

    def __init__(self) -> None:
        self.authorizers: dict[Hashable, Authorizer] = {}
        """The sources of credentials, shared by all connections to a server, by what they are made from."""
        self._idle: dict[Origin, list[Connection]] = {}
        self._draining: set[Connection] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self._tls: ssl.SSLContext | None = None

    async def take(self, origin: Origin, listed: frozenset[Origin] | None = None) -> Connection:
        """Return a connection on which a request can be sent; give it back afterwards.

        Args:
            listed: the origins that the operator named, if somebody else named `origin`; None: the operator named it.

        Raises:
            LinkLost: the server can't be reached; nothing was sent.
            NoAnswer: the origin leads to an address that is not allowed.
        """
        # An origin that somebody else named is checked each time: the operator lists origins for one server only.
        idle = self._idle.get(origin) if listed is None else None
        now = asyncio.get_running_loop().time()
        while idle:
            connection = idle.pop()
            if connection.usable and now - connection.idle_since < KEPT_TIME:
                return connection
            connection.close()
        try:
            with anyio.fail_after(CONNECT_TIME):
                return await self._connect(origin, listed)
        except TimeoutError:
            raise LinkLost(f"can't connect to {origin}: no answer within {CONNECT_TIME:g} s", sent=False) from None
        except ssl.SSLError as error:
            raise LinkLost(f"can't connect to {origin}: TLS failed: {error.reason or error}", sent=False) from None
        except OSError as error:
            raise LinkLost(f"can't connect to {origin}: {error.strerror or error}", sent=False) from None

    def give(self, connection: Connection, *, drain: bool = False) -> None:
        """Take a connection back. If it is within an answer, it is closed, or (`drain`) the rest is thrown away."""
        self._draining.discard(connection)
        kept = len(self._idle.get(connection.origin, ())) < _KEPT and not connection.guarded
        if connection.usable and kept:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.setdefault(connection.origin, []).append(connection)
            self._sweep_later(KEPT_TIME)
        elif drain and kept and not connection.complete and len(self._draining) < _KEPT:
            connection.idle_since = asyncio.get_running_loop().time()
            self._draining.add(connection)
            connection.drain(lambda: self.give(connection))
            self._sweep_later(_DRAIN_TIME)
        else:
            connection.close()

    def close(self) -> None:
        """Close all idle connections."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in (*self._draining, *(each for idle in self._idle.values() for each in idle)):
            connection.close()
        self._idle.clear()
        self._draining.clear()

    def _sweep_later(self, seconds: float) -> None:
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(seconds, self._sweep)

    def _sweep(self) -> None:
        """Close connections that were not used for a while, and sweep again later while any are left."""
        self._sweeper = None
        now = asyncio.get_running_loop().time()
        for connection in [each for each in self._draining if now - each.idle_since >= _DRAIN_TIME]:
            self._draining.discard(connection)
            connection.close()
        for origin, idle in list(self._idle.items()):
            fresh = [each for each in idle if each.usable and now - each.idle_since < KEPT_TIME]
            for connection in idle:
                if connection not in fresh:
                    connection.close()
            if fresh:
                self._idle[origin] = fresh
            else:
                del self._idle[origin]
        if self._idle or self._draining:
            self._sweep_later(_DRAIN_TIME)

    async def _connect(self, origin: Origin, listed: frozenset[Origin] | None) -> Connection:
        guarded = listed is not None
        if origin.is_socket:
            connection = Connection(origin, _soon())
            await asyncio.get_running_loop().create_unix_connection(lambda: connection, origin.host)
            return connection
        if (proxy := proxy_for(origin)) is not None:
            if listed is not None and is_address(origin.host):
                check_public(origin, [origin.host], listed)
            return await self._connect_through(proxy, origin, guarded=guarded)
        addresses = await resolve(origin)
        if listed is not None:
            check_public(origin, addresses, listed)
        connection = Connection(origin, _soon(), guarded=guarded)
        await self._reach(connection, origin, addresses)
        return connection

    async def _connect_through(self, proxy: Address, origin: Origin, *, guarded: bool) -> Connection:
        """Connect through an HTTP proxy, which is sent whole URLs, or asked for a tunnel for TLS (RFC 9110, 9.3.6)."""
        credentials = header_lines({"proxy-authorization": proxy.authorization}) if proxy.authorization else b""
        if not origin.secure:
            connection = Connection(
                origin, _soon(), guarded=guarded, via=str(origin).encode(), with_headers=credentials
            )
            await self._reach(connection, proxy.origin, await resolve(proxy.origin))
            return connection
        tunnel = Connection(proxy.origin, _soon())
        await self._reach(tunnel, proxy.origin, await resolve(proxy.origin))
        host = f"[{origin.host}]" if ":" in origin.host else origin.host
        target = f"{host}:{origin.port}"
        tunnel.send("CONNECT", target, header_lines({"host": target}) + credentials, b"")
        try:
            await tunnel.head()
            if tunnel.status != 200:
                raise LinkLost(
                    f"the proxy {proxy.origin} refuses to connect to {target!r}: HTTP {tunnel.status}", sent=False
                )
            connection = Connection(origin, _soon(), guarded=guarded)
            transport = await asyncio.get_running_loop().start_tls(
                tunnel.transport, connection, self._context(), server_hostname=origin.host
            )
        except (LinkLost, NoAnswer) as error:
            tunnel.close()
            raise LinkLost(str(error), sent=False) from None
        if transport is None:
            raise LinkLost(f"the proxy {proxy.origin} closed the tunnel", sent=False)
        connection.connection_made(transport)
        return connection

    async def _reach(self, connection: Connection, origin: Origin, addresses: list[str]) -> None:
        """Connect to the first of the origin's addresses that answers."""
        loop = asyncio.get_running_loop()
        context, name = (self._context(), origin.host) if origin.secure else (None, None)
        for left, address in zip(range(len(addresses) - 1, -1, -1), addresses, strict=True):
            try:
                with anyio.move_on_after(None if not left else CONNECT_TIME / (left + 1)):
                    transport, _ = await loop.create_connection(
                        lambda: connection, address, origin.port, ssl=context, server_hostname=name
                    )
                    keep_alive(transport)
                    return
            except OSError:
                if not left:
                    raise

    def _context(self) -> ssl.SSLContext:
        """The TLS context, made on first use: this reads hundreds of certificates."""
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls


def _soon() -> Callable[..., object]:
    return asyncio.get_running_loop().call_soon


@asynccontextmanager
async def open_http_client() -> AsyncGenerator[HttpClient]:
    """Open the client that all connections to HTTP servers share; leaving the context closes idle connections."""
    client = HttpClient()
    try:
        yield client
    finally:
        client.close()
