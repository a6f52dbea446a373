"""Public URIs: how clients see the URI of a server's resource, and the way back (docs/adr/0033).

With one server, URIs stay as they are. With several, a URI carries its server if another server lists it too, if nobody
lists it, or if it is a page for a tool (`ui://`): `ui://<mark>/<rest>`, or `<mark>+<URI>` for other schemes. The mark
depends on the server's name alone, so such a URI means the same whatever is listed, and in whatever order. Pure.
"""

import re
from collections.abc import Collection
from functools import lru_cache
from hashlib import sha256
from typing import Final, NamedTuple

from gateway.proxy.caller import Principal
from gateway.proxy.uris import UriClaims, scheme_of

_PAGE: Final = "ui://"
"""The scheme of pages that a host shows for a tool (MCP Apps): they must always be those of the tool's own server."""
_GLOBAL: Final = ("http:", "https:")
"""Schemes of URIs that clients may fetch themselves (MCP resources, "Common URI Schemes"), so that they mean the same
whichever server names them."""
_MARK: Final = re.compile(r"[a-z][a-z0-9-]*")
_MARKED_PAGE: Final = re.compile(r"ui://([^/]+)/(.*)", re.DOTALL | re.IGNORECASE)
_MARKED: Final = re.compile(r"([A-Za-z][A-Za-z0-9-]*)\+(.+)", re.DOTALL)


class Located(NamedTuple):
    """A resource of one server."""

    server: str
    uri: str
    """The server's own URI."""


class PublicUris:
    """The public URIs of one configuration."""

    def __init__(self, servers: Collection[str], claims: UriClaims) -> None:
        """`claims` may change; `version` of them says when."""
        self._servers = servers
        self._claims = claims
        self._marked = {mark_of(server): server for server in servers}

    def several(self, principal: Principal) -> bool:
        """Whether URIs can carry their server for this principal: it sees more than one."""
        seen = self._servers if principal.servers is None else principal.servers.intersection(self._servers)
        return len(seen) > 1

    def public(self, server: str, uri: str, principal: Principal, *, is_template: bool = False) -> str:
        """The URI, or template, that clients see for a server's own one."""
        if not self.several(principal):
            return uri
        if uri[: len(_PAGE)].lower() == _PAGE:
            return f"{_PAGE}{mark_of(server)}/{uri[len(_PAGE) :]}"
        plain = self._template_is_plain if is_template else self._uri_is_plain
        is_plain = not self.needs_mark(uri, principal) and plain(server, uri, principal)
        return uri if is_plain else f"{mark_of(server)}+{uri}"

    def located(self, uri: str, principal: Principal) -> Located | None:
        """The resource whose public URI carries its server; None: this one carries none that the principal sees."""
        if not self.several(principal):
            return None
        found = _MARKED_PAGE.fullmatch(uri)
        own = None if found is None else _PAGE + found[2]
        if found is None:
            found = _MARKED.fullmatch(uri)
            own = None if found is None else found[2]
        server = None if found is None else self._marked.get(found[1].lower())
        return Located(server, own) if server is not None and own is not None and principal.sees(server) else None

    def needs_mark(self, uri: str, principal: Principal) -> bool:
        """Whether a URI that carries no server belongs to nobody, whoever lists it."""
        return self.several(principal) and (scheme_of(uri) == "ui:" or self._is_marked(uri))

    def spellings(self, uri: str, servers: Collection[str]) -> list[str]:
        """The URIs by which a resource that several servers have can be told apart."""
        return [f"{mark_of(server)}+{uri}" for server in self._servers if server in servers]

    def _is_marked(self, uri: str) -> bool:
        """Whether a server's own URI looks like one that carries a server, seen by this principal or not."""
        found = _MARKED.fullmatch(uri)
        return found is not None and found[1].lower() in self._marked

    def _uri_is_plain(self, server: str, uri: str, principal: Principal) -> bool:
        owners = self._claims.owners(uri, principal)
        if not owners:
            return scheme_of(uri) in _GLOBAL
        return owners == frozenset({server}) and self._claims.listers(uri, principal) <= {server}

    def _template_is_plain(self, server: str, template: str, principal: Principal) -> bool:
        # Whether two templates have a URI in common is not worth finding out: a scheme is a server's own, as a rule.
        return bool(scheme_of(template)) and self._claims.users_of_scheme(template, principal) <= {server}


@lru_cache(maxsize=1024)
def mark_of(server: str) -> str:
    """What stands for a server in a URI: its name, where that may be a part of any scheme, which has no capitals and no
    underscore (RFC 3986, section 3.1); otherwise a name like it with a digest, to keep `a_b` and `a-b` apart."""
    if _MARK.fullmatch(server):
        return server
    like = re.sub(r"[^a-z0-9]+", "-", server.lower()).strip("-")
    return f"x-{like}-{sha256(server.encode()).hexdigest()[:8]}"
