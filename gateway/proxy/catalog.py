"""What all servers offer together: the merged tools, and which server owns a name or a resource.

Turns the servers' lists as last seen into entries under public names, and a public name into its owner. Two things
with the same public name are a `Clash`: the first keeps it, the other is hidden, and the clash is logged; at the start
it stops the gateway. URIs never clash (`public_uris.py`). It asks no server: it reads what the sessions have listed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gateway.observe.logs import get_logger
from gateway.proxy.aliases import Aliases
from gateway.proxy.naming import Naming, ToolEntry
from gateway.proxy.public_uris import PublicUris
from gateway.proxy.upstream.listing import Listed
from gateway.proxy.uris import UriClaims

_WORD: Final = 120
_NAMED: Final = 100
"""Clashes that are logged individually: servers could cause new ones for ever."""


_WAYS_OUT: Final = {
    "tool": 'rename one of the servers or of the tools (`rename`), or set `prefix = "always"`',
    "prompt": 'rename one of the servers, set `prefix = "always"`, or leave one of them out (`exclude`)',
}


@dataclass(frozen=True, slots=True)
class Clash:
    """Two things with the same public name."""

    what: str
    name: str
    kept: str
    """The server that keeps the name."""
    hidden: str
    """The server whose thing is hidden; the same as `kept` if two of its own tools were renamed alike."""

    def __str__(self) -> str:
        who = f"server {self.kept!r} and by server {self.hidden!r}"
        if self.kept == self.hidden:
            who = f"server {self.kept!r} twice"
        return f"{self.what} {self.name[:_WORD]!r} is offered by {who}: {_WAYS_OUT[self.what]}"


class Catalog:
    """What all servers offer, merged again whenever a list changes."""

    def __init__(self, naming: Naming) -> None:
        """Start empty."""
        self.naming = naming
        self._log = get_logger("gateway.proxy")
        self._warned: set[Clash] = set()
        self.tools: dict[str, ToolEntry] = {}
        """Tools by public name, in the configuration's order, including those of servers that are away."""
        self.aliases = Aliases()
        self.uris = UriClaims()
        self.public_uris = PublicUris(naming.servers, self.uris)
        self.clashes: tuple[Clash, ...] = ()

    def name_by(self, naming: Naming) -> None:
        """Use these names from the next `rebuild` on."""
        self.naming = naming
        self.public_uris = PublicUris(naming.servers, self.uris)

    def rebuild(self, lists: Mapping[str, Mapping[str, Listed | None]]) -> None:
        """Merge again. `lists`: each server's tools, prompts, resources and templates as last seen."""
        clashes: list[Clash] = []
        prompts: dict[str, str] = {}
        self.tools = {}
        for server, listed in lists.items():
            self._add_tools(server, listed.get("tools"), clashes)
            self._add_prompts(server, listed.get("prompts"), prompts, clashes)
        self.uris.replace(self._uris_of(lists))
        self.aliases.assign(self.tools)
        self.clashes = tuple(clashes)
        for clash in clashes:
            if len(self._warned) >= _NAMED:
                break
            if clash not in self._warned:
                self._warned.add(clash)
                self._log.warning(str(clash))
                if len(self._warned) == _NAMED:
                    self._log.warning("further name clashes are not logged; `codec-gateway doctor` lists all of them")

    def under_aliases(self, entries: Sequence[ToolEntry]) -> Sequence[ToolEntry]:
        """The tools under names that every model API accepts; the same ones if all names are such."""
        return tuple(map(self._under_alias, entries)) if self.aliases else entries

    def _under_alias(self, entry: ToolEntry) -> ToolEntry:
        alias = self.aliases.alias_of(entry.name)
        if alias == entry.name:
            return entry
        return replace(entry, name=alias, definition={**entry.definition, "name": alias}, alias_of=entry.name)

    def entry(self, name: str) -> ToolEntry | None:
        """The tool of this public name or alias; None: nobody listed it."""
        return self.tools.get(self.aliases.name_of(name))

    def _add_tools(self, server: str, listed: Listed | None, clashes: list[Clash]) -> None:
        for entry in self.naming.entries(server, _items(listed)):
            kept = self.tools.setdefault(entry.name, entry)
            # A server that lists one tool twice is the clients' business.
            if (kept.server, kept.tool) != (server, entry.tool):
                clashes.append(Clash("tool", entry.name, kept.server, server))

    def _add_prompts(self, server: str, listed: Listed | None, prompts: dict[str, str], clashes: list[Clash]) -> None:
        for prompt in _items(listed):
            name = self.naming.prompt(server, prompt["name"])
            if name is not None and (kept := prompts.setdefault(name, server)) != server:
                clashes.append(Clash("prompt", name, kept, server))

    def _uris_of(self, lists: Mapping[str, Mapping[str, Listed | None]]) -> Iterator[tuple[str, str, bool]]:
        for server, listed in lists.items():
            for resource in _items(listed.get("resources")):
                if self.naming.shows(server, resource["uri"]):
                    yield server, resource["uri"], False
            for template in _items(listed.get("templates")):
                if self.naming.shows(server, template["uriTemplate"]):
                    yield server, template["uriTemplate"], True


def _items(listed: Listed | None) -> Sequence[dict[str, Any]]:
    return () if listed is None else listed.items
