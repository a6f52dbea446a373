"""Which server a resource's URI belongs to: the first one that lists it keeps it.

Turns what the servers list (URIs, and templates that URIs may fit) into an owner for each URI, within what a principal
may see. Everything listed at the start counts as simultaneous: there, a server that lists a URI comes before one whose
template it fits, and the configuration's order decides the rest. What is listed later changes no owner. Pure.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain, islice
from typing import Final, NamedTuple

from gateway.proxy.caller import Principal

_VARIABLE: Final = re.compile(r"\{[^{}]*\}")
_TEMPLATES: Final = 100
"""Templates of one server that can claim URIs: each URI that others list is compared with all of them."""
_VARIABLES: Final = 16
"""Variables of a template that can claim URIs, at most."""


class Claim(NamedTuple):
    """A server's claim to a URI, or to all URIs that fit a template. Of several, the smallest one wins."""

    since: int
    """When it was first made, as a count of later listings; 0: at the start."""
    is_template: bool
    """Whether it is to a template's URIs; a URI comes first."""
    place: int
    """Position among all claims, in the order of the configuration and of each server's list."""
    server: str
    pattern: str


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

    def settle(self) -> None:
        """Note that the start is over: later claims come after all existing ones."""
        self._settled = True

    def replace(self, listed: Iterable[tuple[str, str, bool]]) -> None:
        """Replace all claims. `listed`: server, URI or template, and which of these; in the configuration's order."""
        before = {(each.server, each.pattern, each.is_template): each.since for each in chain(*self._named.values())}
        self.version += 1
        if self._settled:
            self._now += 1
        self._named, self._templates = {}, []
        counted: Counter[str] = Counter()
        for place, (server, pattern, is_template) in enumerate(listed):
            claim = Claim(before.get((server, pattern, is_template), self._now), is_template, place, server, pattern)
            self._named.setdefault(pattern, []).append(claim)
            if is_template and counted[server] < _TEMPLATES and len(literals_of(pattern)) <= _VARIABLES + 1:
                counted[server] += 1
                self._templates.append(claim)
        self._templates.sort()

    def owner(self, uri: str, principal: Principal | None = None) -> str | None:
        """The server that owns a URI or template; None: nobody claims it. `principal`: who asks; None: anybody."""
        best = self._first(self._named.get(uri, ()), principal)
        for claim in self._templates:
            if best is not None and best < claim:
                break
            if (principal is None or principal.sees(claim.server)) and fits(claim.pattern, uri):
                return claim.server
        return None if best is None else best.server

    def lister(self, template: str, principal: Principal) -> str | None:
        """Which of the servers that list this template shows it; None: none does."""
        best = self._first(self._named.get(template, ()), principal)
        return None if best is None else best.server

    def hidden(self) -> list[tuple[Claim, str]]:
        """The claims whose URI or template belongs to another server, each with that server."""
        found: list[tuple[Claim, str]] = []
        for claims in self._named.values():
            for claim in claims:
                kept = min(claims).server if claim.is_template else self.owner(claim.pattern)
                if kept is not None and kept != claim.server:
                    found.append((claim, kept))
        return found

    def overlaps(self) -> Iterator[tuple[Claim, Claim]]:
        """Pairs of templates of two servers that some URI fits; the first keeps it. Equal ones are `hidden`."""
        ordered = sorted((literals_of(claim.pattern)[0], claim) for claim in self._templates)
        for number, (start, one) in enumerate(ordered):
            for begin, other in islice(ordered, number + 1, None):
                if not begin.startswith(start):
                    break
                if (
                    one.server != other.server
                    and one.pattern != other.pattern
                    and _end_alike(one.pattern, other.pattern)
                ):
                    yield min(one, other), max(one, other)

    def _first(self, claims: Iterable[Claim], principal: Principal | None) -> Claim | None:
        return min((each for each in claims if principal is None or principal.sees(each.server)), default=None)


@lru_cache(maxsize=4096)
def literals_of(template: str) -> tuple[str, ...]:
    """The texts around a URI template's variables (RFC 6570), in order; always one more than there are variables."""
    return tuple(_VARIABLE.split(template))


def _end_alike(one: str, other: str) -> bool:
    """Whether a URI may end as both templates do; what is between beginning and end, their variables can hold."""
    ends = literals_of(one)[-1], literals_of(other)[-1]
    return ends[0].endswith(ends[1]) or ends[1].endswith(ends[0])


def fits(template: str, uri: str) -> bool:
    """Whether the template can produce the URI with some values of its variables.

    Both are untrusted. Each literal is searched for once, so the time is linear, unlike that of a regular expression.
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
