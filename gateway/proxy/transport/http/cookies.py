"""The cookies of one session with a server: balancers in front of servers keep a session at one replica by them.

Turns the `Set-Cookie` headers of answers into the `Cookie` header of later requests to the same address. Path, domain
and age are not looked at: a jar belongs to one address and one session, and ends with it (RFC 6265 asks for no more
than what its user needs). It knows no connection.
"""

from typing import Final

from gateway.http1.connection import SEPARATOR
from gateway.http1.lines import header_lines

_MOST: Final = 16
_LONGEST: Final = 4096
"""Characters of a name and its value together, as browsers have it."""


class CookieJar:
    """The cookies that a server has set."""

    def __init__(self) -> None:
        self._cookies: dict[str, str] = {}
        self.lines = b""
        """The header line that sends them; empty: there are none."""

    def take(self, set_cookie: str) -> None:
        """Keep the cookies that an answer sets, except those that it ends."""
        for each in set_cookie.split(SEPARATOR.decode()):
            pair, *attributes = each.split(";")
            name, is_pair, value = (part.strip() for part in pair.partition("="))
            if not is_pair or not name or len(pair) > _LONGEST or not pair.isprintable() or not pair.isascii():
                continue
            self._cookies.pop(name, None)
            if not any(attribute.strip().lower() == "max-age=0" for attribute in attributes):
                self._cookies[name] = value
            if len(self._cookies) > _MOST:
                del self._cookies[next(iter(self._cookies))]
        told = "; ".join(f"{name}={value}" for name, value in self._cookies.items())
        self.lines = header_lines({"cookie": told}) if told else b""
