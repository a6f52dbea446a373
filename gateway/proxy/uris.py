"""Which server a resource's URI belongs to: who had it first keeps it.

Turns what the servers list (URIs, and templates that URIs may fit) into an owner for each URI, as far as a principal
may see. What was listed at the start counts as listed at once: there who lists a URI comes before whose template it
fits, and the configuration's order decides the rest. What is listed later takes nothing from anybody. Pure.
"""

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
from typing import Final, Literal, NamedTuple

from gateway.proxy.caller import Principal

_VARIABLE: Final = re.compile(r"\{[^{}]*\}")
_TEMPLATES: Final = 100
"""Templates of one server by which URIs are its own: each URI that others list is held against them."""
_VARIABLES: Final = 16
"""Variables of such a template."""


class Claim(NamedTuple):
    """One server says that it has a URI, or those that fit a template. The lesser one comes first."""

    since: int
    """When it was first said; 0: at the start."""
    by: Literal[0, 1]
    """1: by a template."""
    place: int
    """Of its server and of itself there, in the configuration's order."""
    server: str
    pattern: str


class UriClaims:
    """The claims of all servers."""

    def __init__(self) -> None:
        """Nothing is claimed, and everything counts as said at the start until `settle`."""
        self.version = 0
        """Another one for other claims."""
        self._now = 0
        self._settled = False
        self._named: dict[str, list[Claim]] = {}
        self._templates: list[Claim] = []

    def settle(self) -> None:
        """The start is over: what is claimed from now on comes after all that is there."""
        self._settled = True

    def take(self, listed: Iterable[tuple[str, str, Literal[0, 1]]]) -> None:
        """Replace all claims. `listed`: server, URI or template, and which it is; in the configuration's order."""
        before = {(each.server, each.pattern, each.by): each.since for each in chain(*self._named.values())}
        self.version += 1
        if self._settled:
            self._now += 1
        self._named, self._templates = {}, []
        counted: Counter[str] = Counter()
        for place, (server, pattern, by) in enumerate(listed):
            claim = Claim(before.get((server, pattern, by), self._now), by, place, server, pattern)
            self._named.setdefault(pattern, []).append(claim)
            if by and counted[server] < _TEMPLATES and len(literals_of(pattern)) <= _VARIABLES + 1:
                counted[server] += 1
                self._templates.append(claim)
        self._templates.sort()

    def owner(self, uri: str, principal: Principal | None = None) -> str | None:
        """Whose the URI is (or the template, by its own words); None: nobody claims it. None for all principals."""
        best = self._first(self._named.get(uri, ()), principal)
        for claim in self._templates:
            if best is not None and best < claim:
                break
            if (principal is None or principal.sees(claim.server)) and fits(claim.pattern, uri):
                return claim.server
        return None if best is None else best.server

    def lister(self, template: str, principal: Principal) -> str | None:
        """Who shows this template, of those that list the same."""
        best = self._first(self._named.get(template, ()), principal)
        return None if best is None else best.server

    def hidden(self) -> list[tuple[Claim, str]]:
        """What is listed and belongs to another server, and to which."""
        found: list[tuple[Claim, str]] = []
        for claims in self._named.values():
            for claim in claims:
                kept = min(claims).server if claim.by else self.owner(claim.pattern)
                if kept is not None and kept != claim.server:
                    found.append((claim, kept))
        return found

    def _first(self, claims: Iterable[Claim], principal: Principal | None) -> Claim | None:
        return min((each for each in claims if principal is None or principal.sees(each.server)), default=None)


@lru_cache(maxsize=4096)
def literals_of(template: str) -> tuple[str, ...]:
    """What stands around a URI template's variables (RFC 6570), in order; one text more than there are variables."""
    return tuple(_VARIABLE.split(template))


def fits(template: str, uri: str) -> bool:
    """Whether the template can have made the URI, whatever its variables hold.

    Both are strangers' words: each literal is looked for once, so the time is linear, which a pattern's would not be.
    """
    first, *middle = literals_of(template)
    if not middle:
        return uri == template
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
