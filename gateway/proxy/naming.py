"""Public names: what clients call a server's tool or prompt, and the way back to its own name.

A public name is `<server><separator><own name>`, or the own name alone where no prefix is configured, or the name that
the operator gave a tool. The server part is made safe for every client's naming rules; the own part is the server's
choice and stays as it is. What the operator excluded has no public name. Pure: it knows no connection and no list.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from gateway.config.model import GatewayConfig, UpstreamConfig
from gateway.config.overrides import ToolOverride
from gateway.protocol.annotations import Annotation, annotations_of
from gateway.proxy.overrides import overridden

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class ToolEntry:
    """One tool as clients see it."""

    name: str
    """Public name."""
    server: str
    tool: str
    """The upstream's own name for it."""
    definition: dict[str, Any]
    """The upstream's raw Tool object, with the public name and what the operator overrides."""
    annotations: tuple[Annotation, ...] = ()
    """The arguments that a modern HTTP server wants repeated in headers."""
    words: dict[str, float] = field(default_factory=dict[str, float], compare=False, repr=False)
    """The weight of each of its words in a search, empty until the first one (`tool_search.py`)."""
    alias_of: str | None = None
    """The public name, if `name` is an alias of it."""
    renamed: str | None = None
    """The name that the operator gave it everywhere, unless another tool of the server has that as its own."""

    @property
    def local(self) -> str:
        """Its name where clients are told its server beside it: no other tool of the server has it."""
        return self.renamed or self.tool


class Naming:
    """The names of one configuration."""

    def __init__(self, config: GatewayConfig) -> None:
        """Names are prefixed with their server unless the setting `prefix` says otherwise."""
        self._upstreams = {upstream.name: upstream for upstream in config.upstreams}
        self.shows_aliases = config.safe_names is True
        """Whether MCP clients see aliases too, not only models on `/v1`."""
        bare = config.prefix == "never" or (config.prefix == "auto" and len(self._upstreams) == 1)
        self._prefixes = {name: "" if bare else _UNSAFE.sub("_", name) + config.separator for name in self._upstreams}
        self.renamed = {
            override.name: (upstream.name, own)
            for upstream in config.upstreams
            for own, override in upstream.overrides.items()
            if override.name
        }
        """The owners of names that the operator gave to tools everywhere, and their own names there."""
        self.views = {name: view for name, view in config.views.items() if view.overrides}
        """The views in which tools have overrides."""
        self.has_overrides = bool(self.views) or any(upstream.overrides for upstream in config.upstreams)

    @property
    def servers(self) -> Collection[str]:
        """All servers, in the configuration's order."""
        return self._upstreams.keys()

    def prefix(self, server: str) -> str:
        """The prefix of the server's public names; may be empty."""
        return self._prefixes[server]

    def tool(self, server: str, own: str) -> str | None:
        """The tool's public name; None: it is not offered."""
        upstream = self._upstreams[server]
        if not is_offered(upstream, own):
            return None
        override = upstream.overrides.get(own)
        return (override and override.name) or self._prefixes[server] + own

    def overrides(self, server: str, own: str, view: str | None = None) -> list[ToolOverride]:
        """What the operator overrides of a tool: everywhere, then in this view."""
        found = [self._upstreams[server].overrides.get(own)]
        if view in self.views:
            found.append(self.views[view].overrides.get(self.tool(server, own) or ""))
        return [each for each in found if each is not None]

    def names(self, server: str, own: str, view: str | None = None) -> tuple[str, ...]:
        """The names of a tool: without overrides, with those that it has everywhere, and, last, in this view."""
        if not self.has_overrides:
            return (self._prefixes[server] + own,)
        given = [override.name for override in self.overrides(server, own, view) if override.name]
        return self._prefixes[server] + own, *given

    def prompt(self, server: str, own: str) -> str | None:
        """The prompt's public name; None: it is not offered."""
        return self._prefixes[server] + own if is_offered(self._upstreams[server], own) else None

    def shows(self, server: str, uri: str) -> bool:
        """Whether clients see this resource, or this template."""
        return is_offered(self._upstreams[server], uri)

    def tool_owners(self, name: str) -> list[tuple[str, str]]:
        """Every server that could have a tool of this public name, with its own name for it."""
        found = [self.renamed[name]] if name in self.renamed else self._prefixed(name)
        # A renamed tool can't be called by its former name.
        return [(server, own) for server, own in found if self.tool(server, own) == name]

    def prompt_owners(self, name: str) -> list[tuple[str, str]]:
        """Every server that could have a prompt of this public name, with its own name for it."""
        return [(server, own) for server, own in self._prefixed(name) if self.prompt(server, own) == name]

    def _prefixed(self, name: str) -> list[tuple[str, str]]:
        return [
            (server, name[len(prefix) :])
            for server, prefix in self._prefixes.items()
            if name.startswith(prefix) and len(name) > len(prefix)
        ]

    def override_tables(self) -> Iterator[tuple[str, ToolOverride, list[tuple[str, str]]]]:
        """The tables of all overrides, each with the servers that could have its tool, and their own names for it."""
        for server, upstream in self._upstreams.items():
            for own, override in upstream.overrides.items():
                if is_offered(upstream, own):
                    yield f"upstreams.{server}.overrides.{own}", override, [(server, own)]
        for name, view in self.views.items():
            for public, override in view.overrides.items():
                yield f"views.{name}.overrides.{public}", override, self.tool_owners(public)

    def entries(self, server: str, definitions: Sequence[Mapping[str, Any]]) -> tuple[ToolEntry, ...]:
        """The server's tools that are offered, in its own order. The definitions are copied, not changed."""
        overrides = self._upstreams[server].overrides
        entries: list[ToolEntry] = []
        for definition in definitions:
            own = definition["name"]
            public = self.tool(server, own)
            if public is None:
                continue
            shown = {**definition, "name": public}
            renamed = None
            if own in overrides:
                shown, renamed = overridden(shown, [overrides[own]]), overrides[own].name
                renamed = None if any(each["name"] == renamed for each in definitions) else renamed
            annotations = annotations_of(definition.get("inputSchema"))
            entries.append(ToolEntry(public, server, own, shown, annotations, renamed=renamed))
        return tuple(entries)


def is_offered(upstream: UpstreamConfig, own: str) -> bool:
    """Whether the operator lets clients see this tool, prompt or resource URI."""
    if upstream.include and not any(fnmatchcase(own, pattern) for pattern in upstream.include):
        return False
    return not any(fnmatchcase(own, pattern) for pattern in upstream.exclude)
