"""Host names and URLs: judged, and parsed into what a connection and a request line need, without asking any network.

No name is ever resolved here: what a name points to can change between the check and the use.
"""

import re
from base64 import b64encode
from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import quote, unquote, urljoin, urlsplit

_LONGEST_NAME: Final = 253
_PATH_SAFE: Final = "/%:@!$&'()*+,;=~?[]"
_BRACKETS: Final = re.compile(r"\[[0-9A-Fa-f:.]+\](?::\d*)?")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address of that name: `localhost`, 127.0.0.0/8, `::1` (or `[::1]`)."""
    name = host.strip("[]").lower()
    try:
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


def is_secure(url: str) -> bool:
    """Whether nobody on the way can read or change what is sent there: it goes over TLS, or stays on this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or is_loopback(parts.hostname or "")


def host_name(netloc: str) -> str | None:
    """The name in `name:port`; None if there is anything else (a path, a user) or nothing."""
    # `urlsplit` takes `[::1].evil` for ::1.
    if netloc.startswith("[") and _BRACKETS.fullmatch(netloc) is None:
        return None
    try:
        parts = urlsplit(f"//{netloc}")
        exact = parts.netloc == netloc and "@" not in netloc and (parts.port is None or parts.port > 0)
        return parts.hostname if exact else None
    except ValueError:
        return None


def is_http_url(url: str) -> bool:
    """Whether the text is `http://HOST...` or `https://HOST...` with a usable port, if it names one."""
    return is_url(url, ("http", "https"))


def is_url(url: str, schemes: Collection[str]) -> bool:
    """Whether the text has one of these schemes, a host, and a usable port, if it names one."""
    try:
        parts = urlsplit(url)
        usable = parts.port is None or parts.port > 0
        return parts.scheme in schemes and usable and bool(ascii_host(parts.hostname or ""))
    except ValueError:
        return False


def ascii_host(host: str) -> str:
    """A host as it is looked up: its name in ASCII, or its address. Raises `ValueError`: no host can have this name."""
    # An empty or too long part of a name is a UnicodeError.
    name = host.encode("idna").decode()
    if len(name) > _LONGEST_NAME or " " in name or not name.isprintable():
        raise ValueError("not a valid host name")
    return name


def origin_of(url: str) -> str | None:
    """The origin that `http(s)://HOST[:PORT]` names, as browsers write it; None if the text is anything else."""
    try:
        parts = urlsplit(url)
        exact = not (parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc)
        if not exact or not is_http_url(url):
            return None
        name = ascii_host(parts.hostname or "")
    except ValueError:
        return None
    host = f"[{name}]" if ":" in name else name
    usual = {"http": 80, "https": 443}[parts.scheme]
    return f"{parts.scheme}://{host}" + ("" if parts.port in (None, usual) else f":{parts.port}")


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
