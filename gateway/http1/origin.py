"""URLs of servers, taken apart once.

Turns a URL into what a connection and a request line need. It judges nothing and opens nothing.
"""

from base64 import b64encode
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from gateway.config.address import ascii_host

_PATH_SAFE: Final = "/%:@!$&'()*+,;=~?[]"


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
        ValueError: it is not an http(s) URL with a host that can be looked up.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"{url[:200]!r} is not the URL of a server: expected http://HOST/... or https://HOST/...")
    secure = parts.scheme == "https"
    try:
        host = ascii_host(parts.hostname)
    except ValueError:
        raise ValueError(f"{url[:200]!r} names a host that nothing can be called: check its spelling") from None
    path = quote(parts.path or "/", safe=_PATH_SAFE)
    query = f"?{quote(parts.query, safe=_PATH_SAFE)}" if parts.query else ""
    authorization = None
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = f"Basic {b64encode(pair.encode()).decode()}"
    return Address(Origin(secure, host, parts.port or (443 if secure else 80)), path + query, authorization)
