"""Host names and URLs, judged without asking any network.

Turns a written address into a yes or no. No name is ever resolved here: what a name points to can change between the
check and the use.
"""

import re
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

_LONGEST_NAME: Final = 253
_BRACKETS: Final = re.compile(r"\[[0-9A-Fa-f:.]+\](?::\d*)?")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address of that name: `localhost`, 127.0.0.0/8, `::1` (or `[::1]`)."""
    name = host.strip("[]").lower()
    try:
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


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
    try:
        parts = urlsplit(url)
        usable = parts.port is None or parts.port > 0
        return parts.scheme in {"http", "https"} and usable and bool(ascii_host(parts.hostname or ""))
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
