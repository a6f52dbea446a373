"""What all servers offer together: the merged tools, and who owns a name or a resource.

Turns the servers' lists as last seen into entries under public names, and a public name or a URI into its owner. Two
that come to the same public name or URI are a `Clash`, which ends a start with both named; one that appears later is
hidden and logged. It asks no server: it reads what the sessions have listed. `proxy.py` stands above.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from gateway.observe.logs import get_logger
from gateway.proxy.caller import Principal
from gateway.proxy.naming import Naming, ToolEntry
from gateway.proxy.upstreams.listing import Listed

_VARIABLE: Final = re.compile(r"\{[^{}]*\}")
_WORD: Final = 120


_WAYS_OUT: Final = {
    "tool": 'rename one of the servers or of the tools (`rename`), or set `prefix = "always"`',
    "prompt": 'rename one of the servers, set `prefix = "always"`, or leave one of them out (`exclude`)',
    "resource": "leave one of them out (`exclude`)",
}


@dataclass(frozen=True, slots=True)
class Clash:
    """Two things under one public name."""

    what: str
    name: str
    kept: str
    """The server whose thing it is now."""
    hidden: str
    """The other's; the same server where its tools were renamed so."""

    def __str__(self) -> str:
        who = f"server {self.kept!r} and by server {self.hidden!r}"
        if self.kept == self.hidden:
            who = f"server {self.kept!r} twice"
        return f"{self.what} {self.name[:_WORD]!r} is offered by {who}: {_WAYS_OUT[self.what]}"


class Catalog:
    """The merged offer, made anew whenever a list changed."""

    def __init__(self, naming: Naming) -> None:
        """Nothing is listed yet."""
        self.naming = naming
        self._log = get_logger("gateway.proxy")
        self._warned: set[Clash] = set()
        self.tools: dict[str, ToolEntry] = {}
        """Public name to tool, in the configuration's order; those of servers that are away too."""
        self._resources: dict[str, str] = {}
        self._templates: list[tuple[str, str]] = []
        self.clashes: tuple[Clash, ...] = ()

    def name_by(self, naming: Naming) -> None:
        """Use these names from the next `rebuild` on."""
        self.naming = naming

    def rebuild(self, lists: Mapping[str, Mapping[str, Listed | None]]) -> None:
        """Merge again. `lists`: server to its tools, prompts, resources and templates as last seen."""
        clashes: list[Clash] = []
        prompts: dict[str, str] = {}
        self.tools = {}
        self._resources = {}
        self._templates = []
        for server, listed in lists.items():
            self._add_tools(server, listed.get("tools"), clashes)
            self._add_prompts(server, listed.get("prompts"), prompts, clashes)
            self._add_resources(server, listed.get("resources"), clashes)
            for template in _items(listed.get("templates")):
                uri = template["uriTemplate"]
                if self.naming.shows(server, uri):
                    self._templates.append((uri, server))
        # The one that says most itself comes first.
        self._templates.sort(key=lambda pair: -sum(map(len, literals_of(pair[0]))))
        self.clashes = tuple(clashes)
        for clash in clashes:
            if clash not in self._warned:
                self._warned.add(clash)
                self._log.warning(str(clash))

    def _add_tools(self, server: str, listed: Listed | None, clashes: list[Clash]) -> None:
        for entry in self.naming.entries(server, _items(listed)):
            kept = self.tools.setdefault(entry.name, entry)
            # One that lists a tool twice under one name is left to its clients.
            if (kept.server, kept.tool) != (server, entry.tool):
                clashes.append(Clash("tool", entry.name, kept.server, server))

    def _add_prompts(self, server: str, listed: Listed | None, prompts: dict[str, str], clashes: list[Clash]) -> None:
        for prompt in _items(listed):
            name = self.naming.prompt(server, prompt["name"])
            if name is not None and (kept := prompts.setdefault(name, server)) != server:
                clashes.append(Clash("prompt", name, kept, server))

    def _add_resources(self, server: str, listed: Listed | None, clashes: list[Clash]) -> None:
        for resource in _items(listed):
            uri = resource["uri"]
            if not self.naming.shows(server, uri):
                continue
            kept = self._resources.setdefault(uri, server)
            if kept != server:
                clashes.append(Clash("resource", uri, kept, server))

    def resource_owners(self, uri: str, principal: Principal) -> list[str]:
        """The servers that a URI (or a URI template itself) may be of: who lists it, else whose template it fits."""
        listed = self._resources.get(uri)
        if listed is not None and principal.sees(listed):
            return [listed]
        fitting = [
            server
            for template, server in self._templates
            if principal.sees(server) and (template == uri or fits(template, uri))
        ]
        return list(dict.fromkeys(fitting))


def _items(listed: Listed | None) -> Sequence[dict[str, Any]]:
    return () if listed is None else listed.items


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
