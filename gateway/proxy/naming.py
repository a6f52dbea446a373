"""Public names: what clients call a server's tool or prompt, the way back, and the operator's changes to tools."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from hashlib import sha256
from itertools import count
from typing import Any, Final, cast

from gateway.config.gateway_config import GatewayConfig, UpstreamConfig
from gateway.config.overrides import ToolOverride
from gateway.protocol.headers import Annotation, annotations_of
from gateway.toolcalls.schema.spec import ToolSpec

# OpenAI's and Anthropic's APIs, and hosts that pass names on to them, take 1 to 64 letters, digits, `_` and `-`, and
# refuse a whole request for one other name. An alias depends on the public name alone unless another tool has that
# alias as its name.

SAFE: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_UNSAFE_RUN: Final = re.compile(r"[^A-Za-z0-9_-]+")
_DIGITS: Final = 8
_READABLE: Final = 64 - 1 - _DIGITS
"""Characters of an alias before its digest."""
_LEARNED: Final = 1000
"""Aliases of tools in no merged list that are kept: some servers list a tool only for some clients."""


class Aliases:
    """The aliases of one gateway's tools."""

    def __init__(self) -> None:
        self._names: Collection[str] = ()
        self.listed: dict[str, str] = {}
        """The aliases of listed tools, by public name."""
        self._learned: dict[str, str] = {}
        self._meant: dict[str, str] = {}

    def assign(self, names: Collection[str]) -> None:
        """Give an alias to each of these names that needs one; they are the public names of all listed tools."""
        self._names = names
        self.listed, self._meant = {}, {}
        # Sorted, so that the order of servers and of their lists decides nothing.
        for name in sorted(name for name in {*names, *self._learned} if SAFE.fullmatch(name) is None):
            alias = self._free_alias(name)
            self._meant[alias] = name
            (self.listed if name in names else self._learned)[name] = alias

    def alias_of(self, name: str) -> str:
        """The alias of a public name; the name itself if it is safe."""
        if SAFE.fullmatch(name) is not None:
            return name
        alias = self.listed.get(name) or self._learned.get(name)
        if alias is None:
            alias = self._learned[name] = self._free_alias(name)
            self._meant[alias] = name
            if len(self._learned) > _LEARNED:
                self._meant.pop(self._learned.pop(next(iter(self._learned))), None)
        return alias

    def name_of(self, alias: str) -> str:
        """The public name that an alias stands for; the alias itself if it stands for none."""
        return self._meant.get(alias, alias)

    def _free_alias(self, name: str) -> str:
        """The first alias of a name that is neither a tool's name nor another one's alias."""
        tries = (_alias(name, number) for number in count())
        return next(alias for alias in tries if alias not in self._names and alias not in self._meant)


def usual_alias(name: str) -> str:
    """The alias of a public name, whatever other tools are called; the name itself if it is safe."""
    return name if SAFE.fullmatch(name) is not None else _alias(name, 0)


def _alias(name: str, number: int) -> str:
    """What can be read of a name, and a digest of all of it."""
    digest = sha256(f"{number or ''}{name}".encode("utf-8", "surrogatepass")).hexdigest()
    return f"{_UNSAFE_RUN.sub('_', name)[:_READABLE]}_{digest[:_DIGITS]}"


def overridden(definition: Mapping[str, Any], overrides: Iterable[ToolOverride]) -> dict[str, Any]:
    """The definition as clients see it, apart from its name; a later override counts before an earlier one."""
    shown = dict(definition)
    for override in overrides:
        texts = {"title": override.title, "description": override.description}
        shown |= {key: text for key, text in texts.items() if text is not None}
        if override.annotations:
            # The server's claim to be read-only would take the meaning from the operator's word.
            implied = {"readOnlyHint": False} if override.annotations.get("destructiveHint") is True else {}
            shown["annotations"] = {**_table(shown.get("annotations")), **implied, **override.annotations}
        if override.defaults:
            shown["inputSchema"] = _with_defaults(_table(shown.get("inputSchema")), override.defaults)
    return shown


def filled(params: dict[str, Any], overrides: Iterable[ToolOverride]) -> dict[str, Any]:
    """The params of `tools/call` with the arguments that the caller left out; the same object if there are none."""
    given = _table(params.get("arguments"))
    left_out: dict[str, Any] = {}
    for override in overrides:
        left_out |= {name: value for name, value in override.defaults.items() if name not in given}
    return {**params, "arguments": {**given, **left_out}} if left_out else params


def unknown_arguments(definition: Mapping[str, Any], override: ToolOverride) -> list[str]:
    """The arguments with a default that the tool does not have, as far as its schema tells."""
    known = _table(_table(definition.get("inputSchema")).get("properties"))
    return sorted(override.defaults.keys() - known.keys()) if known else []


def _with_defaults(schema: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    properties = _table(schema.get("properties"))
    shown = {name: {**_table(properties[name]), "default": defaults[name]} for name in properties if name in defaults}
    changed = {**schema, "properties": {**properties, **shown}} if shown else dict(schema)
    required: object = changed.pop("required", None)
    if isinstance(required, list) and (rest := [each for each in cast("list[Any]", required) if each not in defaults]):
        changed["required"] = rest
    return changed


def _table(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


# The server part of a public name is made safe for every client's naming rules; the own part is the server's choice and
# stays as it is. What the operator excluded has no public name.

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
    def spec(self) -> ToolSpec:
        """The tool as parser and grammar take it."""
        described, schema = self.definition.get("description"), self.definition.get("inputSchema")
        return ToolSpec(self.name, str(described or ""), schema or {"type": "object"})

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
