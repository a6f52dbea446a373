"""Host names and URLs, judged without asking any network.

Turns a written address into a yes or no. No name is ever resolved here: what a name points to can change between the
question and its use.
"""

from ipaddress import ip_address
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address of that name: `localhost`, 127.0.0.0/8, `::1` (or `[::1]`)."""
    name = host.strip("[]").lower()
    try:
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


def is_http_url(url: str) -> bool:
    """Whether the text is `http://HOST...` or `https://HOST...` with a usable port, if it names one."""
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
