"""URLs of servers, parsed once.

Turns a URL into what a connection and a request line need. It opens nothing, and does not judge which URLs are allowed.
"""

from base64 import b64encode
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import quote, unquote, urljoin, urlsplit

from gateway.config.address import ascii_host

_PATH_SAFE: Final = "/%:@!$&'()*+,;=~?[]"


class Origin(NamedTuple):
    """The server that a connection goes to."""

    secure: bool
    host: str
    """A name in ASCII, an IP address without brackets, or the absolute path of a Unix socket."""
    port: int

    @property
    def is_socket(self) -> bool:
        """Whether it is a Unix socket on this machine."""
        return self.host.startswith("/")

    @property
    def authority(self) -> str:
        """The value of a `Host` header: without the scheme's default port."""
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
    """The value of an `Authorization` header, from a user and a password in the URL; None: the URL has none."""

    def __str__(self) -> str:
        return f"{self.origin}{self.path}"

    def joined(self, reference: str) -> "Address":
        """The address that a server at this one means by a reference; it has our credentials only at the same origin.
        Raises `ValueError`: see `read_url`."""
        target = read_url(urljoin(str(self), reference))
        kept = self.authorization if target.origin == self.origin else None
        return Address(target.origin, target.path, kept)


def read_url(url: str) -> Address:
    """Parse a URL. Raises `ValueError`: it is not an http(s) URL with a host that can be looked up."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"{url[:200]!r} is not the URL of a server: expected http://HOST/... or https://HOST/...")
    secure = parts.scheme == "https"
    try:
        host = ascii_host(parts.hostname)
    except ValueError:
        raise ValueError(f"{url[:200]!r} contains an invalid host name: check its spelling") from None
    path = quote(parts.path or "/", safe=_PATH_SAFE)
    query = f"?{quote(parts.query, safe=_PATH_SAFE)}" if parts.query else ""
    authorization = None
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = f"Basic {b64encode(pair.encode()).decode()}"
    return Address(Origin(secure, host, parts.port or (443 if secure else 80)), path + query, authorization)
