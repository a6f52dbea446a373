"""Public names: what clients call a server's tool or prompt, and the way back to its own name.

A public name is `<server><separator><own name>`, or the own name alone where no prefix is configured, or the name that
the operator gave a tool. The server part is made safe for every client's naming rules; the own part is the server's
choice and stays as it is. What the operator excluded has no public name. Pure: it knows no connection and no list.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from gateway.config.model import GatewayConfig, UpstreamConfig
from gateway.protocol.annotations import Annotation, annotations_of

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
    """The upstream's raw Tool object, with the public name and, if the operator set one, the operator's description."""
    annotations: tuple[Annotation, ...] = ()
    """The arguments that a modern HTTP server wants repeated in headers."""
    words: dict[str, float] = field(default_factory=dict[str, float], compare=False, repr=False)
    """The weight of each of its words in a search, empty until the first one (`tool_search.py`)."""
    alias_of: str | None = None
    """The public name, if `name` is an alias of it."""


class Naming:
    """The names of one configuration."""

    def __init__(self, config: GatewayConfig) -> None:
        """Names are prefixed with their server unless the setting `prefix` says otherwise."""
        self._upstreams = {upstream.name: upstream for upstream in config.upstreams}
        self.shows_aliases = config.safe_names is True
        """Whether MCP clients see aliases too, not only models on `/v1`."""
        bare = config.prefix == "never" or (config.prefix == "auto" and len(self._upstreams) == 1)
        self._prefixes = {name: "" if bare else _UNSAFE.sub("_", name) + config.separator for name in self._upstreams}
        self._renamed = {
            public: (upstream.name, own) for upstream in config.upstreams for own, public in upstream.rename.items()
        }

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
        return upstream.rename.get(own) or self._prefixes[server] + own

    def prompt(self, server: str, own: str) -> str | None:
        """The prompt's public name; None: it is not offered."""
        return self._prefixes[server] + own if is_offered(self._upstreams[server], own) else None

    def shows(self, server: str, uri: str) -> bool:
        """Whether clients see this resource, or this template."""
        return is_offered(self._upstreams[server], uri)

    def tool_owners(self, name: str) -> list[tuple[str, str]]:
        """Every server that could have a tool of this public name, with its own name for it."""
        found = [self._renamed[name]] if name in self._renamed else self._prefixed(name)
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

    def entries(self, server: str, definitions: Sequence[Mapping[str, Any]]) -> tuple[ToolEntry, ...]:
        """The server's tools that are offered, in its own order. The definitions are copied, not changed."""
        words = self._upstreams[server].describe
        entries: list[ToolEntry] = []
        for definition in definitions:
            own = definition["name"]
            public = self.tool(server, own)
            if public is None:
                continue
            shown = {**definition, "name": public}
            if own in words:
                shown["description"] = words[own]
            entries.append(ToolEntry(public, server, own, shown, annotations_of(definition.get("inputSchema"))))
        return tuple(entries)


def is_offered(upstream: UpstreamConfig, own: str) -> bool:
    """Whether the operator lets clients see this tool, prompt or resource URI."""
    if upstream.include and not any(fnmatchcase(own, pattern) for pattern in upstream.include):
        return False
    return not any(fnmatchcase(own, pattern) for pattern in upstream.exclude)
