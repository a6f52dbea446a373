"""URLs of servers, taken apart once, and which of them may be reached.

Turns a URL into what a connection and a request line need. Judges addresses: a URL that the operator wrote may lead
anywhere, one that somebody else named may not lead into our own network (SSRF). The judgement is made on the very
address that is connected to, so that no name can answer differently in between. It opens nothing. `http_client.py` and
`oauth.py` stand above.
"""

from base64 import b64encode
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from gateway.proxy.wires.wire import NoAnswer

_PATH_SAFE: Final = "/%:@!$&'()*+,;=~?[]"
_NAT64: Final = ip_network("64:ff9b::/96")


class Origin(NamedTuple):
    """What a connection is to."""

    secure: bool
    host: str
    """A name in ASCII, an address without brackets, or the absolute path of a unix socket."""
    port: int

    @property
    def is_socket(self) -> bool:
        """Whether it is a unix socket on this machine."""
        return self.host.startswith("/")

    @property
    def authority(self) -> str:
        """As it stands in a `Host` header: without the scheme's own port."""
        if self.is_socket:
            return "localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"

    def __str__(self) -> str:
        if self.is_socket:
            return f"unix:{self.host}"
        return f"{'https' if self.secure else 'http'}://{self.authority}"


@dataclass(frozen=True, slots=True)
class Address:
    """One URL."""

    origin: Origin
    path: str
    """The request's target: path and query, never empty."""
    authorization: str | None = None
    """What a user and a password in the URL stand for."""

    def __str__(self) -> str:
        return f"{self.origin}{self.path}"


def read_url(url: str) -> Address:
    """Take a URL apart.

    Raises:
        ValueError: it is no http(s) URL with a host.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"{url[:200]!r} is no URL of a server: expected http://HOST/... or https://HOST/...")
    secure = parts.scheme == "https"
    host = parts.hostname if parts.hostname.isascii() else parts.hostname.encode("idna").decode()
    path = quote(parts.path or "/", safe=_PATH_SAFE)
    query = f"?{quote(parts.query, safe=_PATH_SAFE)}" if parts.query else ""
    authorization = None
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = f"Basic {b64encode(pair.encode()).decode()}"
    return Address(Origin(secure, host, parts.port or (443 if secure else 80)), path + query, authorization)


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
    """Whether an address belongs to the internet: not to this machine, a private net, a link or a group."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    inner = _embedded(ip) if isinstance(ip, IPv6Address) else None
    found = ip if inner is None else inner
    return found.is_global and not found.is_multicast


def _embedded(ip: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that a translation reaches through this one."""
    if ip in _NAT64:
        return IPv4Address(int(ip) & 0xFFFFFFFF)
    teredo = ip.teredo
    return ip.ipv4_mapped or ip.sixtofour or (teredo[1] if teredo else None)
