"""Which servers claim a resource's URI, within what a principal may see.

Turns what the servers list (URIs, and templates that URIs may fit) into the servers with the best claim to a URI.
Everything listed at the start counts as simultaneous: there, a server that lists a URI comes before one whose template
it fits, and a template that says more at its beginning before one that says less. What is listed later takes nothing
from who had it. The configuration's order decides nothing. Pure.
"""

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple
from urllib.parse import quote

from gateway.proxy.caller import Principal

_VARIABLE: Final = re.compile(r"\{[^{}]*\}")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_IN_URIS: Final = "%:/?#[]@!$&'()*+,;=-._~"
"""What stays as it is in URIs, besides letters and digits; a percent sign, because templates may be encoded already."""
_TEMPLATES: Final = 100
"""Templates of one server that can claim URIs: each URI that others list is compared with all of them."""
_VARIABLES: Final = 16
"""Variables of a template that can claim URIs, at most."""
_NOBODY: Final[frozenset[str]] = frozenset()


class Claim(NamedTuple):
    """A server's claim to a URI, or to all URIs that fit a template. Of several, the smallest rank wins."""

    since: int
    """When it was first made, as a count of later listings; 0: at the start."""
    is_template: bool
    """Whether it is to a template's URIs; a URI comes first."""
    generality: int
    """For a template: minus the length of what stands before its first variable."""
    server: str
    pattern: str

    @property
    def rank(self) -> tuple[int, bool, int]:
        """What decides among claims; claims of equal rank have an equal right."""
        return self[:3]


class UriClaims:
    """The claims of all servers."""

    def __init__(self) -> None:
        """Start with no claims; every claim counts as made at the start until `settle`."""
        self.version = 0
        """Changes with every `replace`."""
        self._now = 0
        self._settled = False
        self._named: dict[str, list[Claim]] = {}
        self._templates: list[Claim] = []
        self._schemes: dict[str, set[str]] = {}

    def settle(self) -> None:
        """Note that the start is over: later claims come after all existing ones."""
        self._settled = True

    def replace(self, listed: Iterable[tuple[str, str, bool]]) -> None:
        """Replace all claims. `listed`: server, URI or template, and which of these."""
        before = {(each.server, each.pattern, each.is_template): each.since for each in chain(*self._named.values())}
        self.version += 1
        if self._settled:
            self._now += 1
        self._named, self._templates, self._schemes = {}, [], {}
        counted: Counter[str] = Counter()
        for server, pattern, is_template in listed:
            since = before.get((server, pattern, is_template), self._now)
            generality = -len(literals_of(pattern)[0]) if is_template else 0
            claim = Claim(since, is_template, generality, server, pattern)
            self._named.setdefault(pattern, []).append(claim)
            self._schemes.setdefault(scheme_of(pattern), set()).add(server)
            if is_template and counted[server] < _TEMPLATES and len(literals_of(pattern)) <= _VARIABLES + 1:
                counted[server] += 1
                self._templates.append(claim)
        self._templates.sort()

    def owners(self, uri: str, principal: Principal) -> frozenset[str]:
        """The servers with the best claim to a URI or template, of those that `principal` sees: several if they have an
        equal right to it, none if nobody claims it."""
        named = [each for each in self._named.get(uri, ()) if principal.sees(each.server)]
        best = min((each.rank for each in named), default=None)
        found = {each.server for each in named if each.rank == best}
        for claim in self._templates:
            if best is not None and best < claim.rank:
                break
            if principal.sees(claim.server) and fits(claim.pattern, uri):
                found = {claim.server, *(found if claim.rank == best else ())}
                best = claim.rank
        return frozenset(found)

    def listers(self, uri: str, principal: Principal) -> frozenset[str]:
        """The servers that list exactly this URI or template."""
        return frozenset(each.server for each in self._named.get(uri, ()) if principal.sees(each.server))

    def users_of_scheme(self, template: str, principal: Principal) -> frozenset[str]:
        """The servers of which a URI, or a URI of a template, may begin with the same scheme as those of a template."""
        used = chain(self._schemes.get(scheme_of(template), _NOBODY), self._schemes.get("", _NOBODY))
        return frozenset(server for server in used if principal.sees(server))


def scheme_of(pattern: str) -> str:
    """The scheme of a URI or template with its colon, in lower case; empty if a template's variable is part of it."""
    found = _SCHEME.match(pattern)
    return "" if found is None else found[0].lower()


@lru_cache(maxsize=4096)
def literals_of(template: str) -> tuple[str, ...]:
    """The texts around a URI template's variables (RFC 6570), in order; always one more than there are variables."""
    return tuple(_VARIABLE.split(template))


@lru_cache(maxsize=4096)
def _encoded_literals_of(template: str) -> tuple[str, ...]:
    """The same as they stand in URIs, where characters that no URI has are percent-encoded (RFC 6570, 3.1)."""
    return tuple(quote(each, safe=_IN_URIS, errors="replace") for each in literals_of(template))


def fits(template: str, uri: str) -> bool:
    """Whether the template can produce the URI with some values of its variables; also where the URI was not encoded.

    Both are untrusted. Each literal is searched for once, so the time is linear, unlike that of a regular expression.
    """
    literals, encoded = literals_of(template), _encoded_literals_of(template)
    return _fit(literals, uri) or (encoded != literals and _fit(encoded, uri))


def _fit(literals: tuple[str, ...], uri: str) -> bool:
    first, *middle = literals
    if not middle:
        return uri == first
    last = middle.pop()
    if len(uri) < len(first) + len(last) or not (uri.startswith(first) and uri.endswith(last)):
        return False
    at, end = len(first), len(uri) - len(last)
    for literal in middle:
        found = uri.find(literal, at, end)
        if found < 0:
            return False
        at = found + len(literal)
    return True
