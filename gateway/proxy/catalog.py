"""What all servers offer together, which server owns a name or a resource, and who is told when that changes."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from gateway.config.overrides import Overrides
from gateway.errors import rpc_error
from gateway.observe.logs import get_logger
from gateway.protocol.messages import INTERNAL_ERROR, INVALID_PARAMS
from gateway.proxy.caller import ANYBODY, ClientSession, Principal
from gateway.proxy.naming import Aliases, Naming, ToolEntry, overridden, unknown_arguments
from gateway.proxy.shares import ShareRule
from gateway.proxy.upstream.items.item_reader import KEYS
from gateway.proxy.upstream.session.session import UPDATED, ListKind
from gateway.proxy.upstream.supervision.listing import KINDS, ItemKind, Listed
from gateway.proxy.upstream.upstream import Upstream
from gateway.proxy.uris import Located, PublicUris, UriClaims, rename_in_tool

# The first of two things with the same public name keeps it, the other is hidden, and the clash is logged; at the start
# it stops the gateway. URIs never clash (`uris.py`).

_WORD: Final = 120
_NAMED: Final = 100
"""Clashes that are logged individually: servers could cause new ones for ever."""


_WAYS_OUT: Final = {
    "tool": 'rename one of the servers or of the tools (`overrides.TOOL.name`), or set `prefix = "always"`',
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
    table: str = ""
    """The override that gives one of them the name; empty: none does."""

    def __str__(self) -> str:
        who = f"server {self.kept!r} and by server {self.hidden!r}"
        if self.kept == self.hidden:
            who = f"server {self.kept!r} twice"
        clash = f"{self.what} {self.name[:_WORD]!r} is offered by {who}"
        return f"{self.table}.name: {clash}: choose another" if self.table else f"{clash}: {_WAYS_OUT[self.what]}"


class Catalog:
    """What all servers offer, merged again whenever a list changes."""

    def __init__(self, naming: Naming) -> None:
        self.naming = naming
        self._log = get_logger("gateway.proxy")
        self._warned: set[Clash | str] = set()
        self.tools: dict[str, ToolEntry] = {}
        """Tools by public name, in the configuration's order, including those of servers that are away."""
        self.aliases = Aliases()
        self.uris = UriClaims()
        self.public_uris = PublicUris(naming.servers, self.uris)
        self.clashes: tuple[Clash, ...] = ()
        self.misplaced: tuple[str, ...] = ()
        """What is wrong with overrides: of tools that no server offers, and of arguments that a tool does not have."""
        self._views: dict[str, dict[str, str]] = {}
        """For each view with overrides, by their names in it, the public names of the tools that have another one."""

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
        self._views = {view: self._renamed(config.overrides) for view, config in self.naming.views.items()}
        self.clashes = (*clashes, *self._clashes_in_views())
        self.misplaced = tuple(self._misplaced(lists))
        for fault in (*self.clashes, *self.misplaced):
            if len(self._warned) >= _NAMED:
                break
            if fault not in self._warned:
                self._warned.add(fault)
                self._log.warning(str(fault))
                if len(self._warned) == _NAMED:
                    self._log.warning("further name clashes are not logged; `codec-gateway doctor` lists all of them")

    def meant(self, called: str, view: str | None) -> str:
        """The public name of the tool that a client calls so in a view; empty if the tool has another name there."""
        renamed = self._views.get(view or "")
        if renamed is None:
            return called
        if called in renamed:
            return renamed[called]
        public = self.aliases.name_of(called)
        return "" if public in renamed.values() else public

    def shown(self, entries: Iterable[ToolEntry], principal: Principal) -> Sequence[ToolEntry]:
        """Those of the tools that an MCP client sees, as it sees them."""
        seen = [entry for entry in entries if principal.may_call(entry.server, entry.name)]
        listed = self.under_aliases(seen) if self.naming.shows_aliases else seen
        return listed if principal.view not in self._views else list(self._in_view(listed, principal.view))

    def _in_view(self, entries: Iterable[ToolEntry], view: str) -> Iterator[ToolEntry]:
        overrides = self.naming.views[view].overrides
        for entry in entries:
            override = overrides.get(entry.alias_of or entry.name)
            if override is not None:
                name = override.name or entry.name
                definition = {**overridden(entry.definition, [override]), "name": name}
                yield replace(entry, name=name, definition=definition, words={})
            elif entry.name not in self._views[view]:
                yield entry

    def _renamed(self, overrides: Overrides) -> dict[str, str]:
        given = ((override.name, public) for public, override in overrides.items())
        # A tool that there is keeps its name before one that there is not.
        return {name: public for name, public in given if name and (public in self.tools or name not in self.tools)}

    def under_aliases(self, entries: Sequence[ToolEntry]) -> Sequence[ToolEntry]:
        """The tools under names that every model API accepts; the same ones if all names are such."""
        return tuple(map(self._under_alias, entries)) if self.aliases.listed else entries

    def _under_alias(self, entry: ToolEntry) -> ToolEntry:
        alias = self.aliases.alias_of(entry.name)
        if alias == entry.name:
            return entry
        return replace(entry, name=alias, definition={**entry.definition, "name": alias}, alias_of=entry.name)

    def entry(self, name: str) -> ToolEntry | None:
        """The tool of this public name or alias; None: nobody listed it."""
        return self.tools.get(self.aliases.name_of(name))

    def is_owner(self, server: str, name: str) -> bool:
        """Whether a call of a tool that the server lists for one client under this name would reach this server."""
        entry = self.tools.get(name)
        return entry is None or entry.server == server

    def _add_tools(self, server: str, listed: Listed | None, clashes: list[Clash]) -> None:
        for entry in self.naming.entries(server, _items(listed)):
            kept = self.tools.setdefault(entry.name, entry)
            # A server that lists one tool twice is the clients' business.
            if (kept.server, kept.tool) == (server, entry.tool):
                continue
            owner, hidden = self.naming.renamed.get(entry.name), server
            if owner == (server, entry.tool):
                # The operator chose this tool's name; the other's was chosen by its server, maybe to get these calls.
                hidden, kept = self.tools.pop(entry.name).server, entry
                self.tools[entry.name] = entry
            table = "" if owner is None else "upstreams.{}.overrides.{}".format(*owner)
            clashes.append(Clash("tool", entry.name, kept.server, hidden, table))

    def _add_prompts(self, server: str, listed: Listed | None, prompts: dict[str, str], clashes: list[Clash]) -> None:
        for prompt in _items(listed):
            name = self.naming.prompt(server, prompt["name"])
            if name is not None and (kept := prompts.setdefault(name, server)) != server:
                clashes.append(Clash("prompt", name, kept, server))

    def _clashes_in_views(self) -> Iterator[Clash]:
        for view, renamed in self._views.items():
            config = self.naming.views[view]
            principal = Principal("", frozenset(config.servers) or None, within=config.tools or None)
            for name, public in renamed.items():
                other = self.tools.get(name)
                if other and name not in renamed.values() and principal.may_call(other.server, name):
                    table = f"views.{view}.overrides.{public}"
                    yield Clash("tool", name, self.tools[public].server, other.server, table)

    def _misplaced(self, lists: Mapping[str, Mapping[str, Listed | None]]) -> Iterator[str]:
        for table, override, owners in self.naming.override_tables():
            listed = [(own, lists[server].get("tools")) for server, own in owners]
            found = [tool for own, tools in listed for tool in _items(tools) if tool["name"] == own]
            if not found and all(tools is not None for _, tools in listed):
                yield f"{table}: no server offers all clients a tool of this name: correct it, or remove the override"
            for unknown in (unknown_arguments(tool, override) for tool in found):
                if unknown:
                    yield f"{table}.defaults: the tool has no argument {', '.join(map(repr, unknown))}"

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


@dataclass(frozen=True, slots=True)
class ListChange:
    """A change of a list that clients see."""

    kind: ListKind
    server: str
    session: ClientSession | None = None
    """The only client whose view changed; None: it changed for all."""
    owner: str | None = None
    """The `owner` of the only principal whose view changed; None: it changed for all."""


_LISTS: Final[tuple[ListKind, ...]] = ("tools", "prompts", "resources")
_MOST: Final = 10_000
"""Resources that may be watched at a time."""
_Shown = dict[tuple[str, ListKind], object]
"""What clients can see of each list, by server and kind of list."""


class ChangeFeed:
    """Tells subscribers about changes (`upstream.Listener`)."""

    def __init__(self, upstreams: Mapping[str, Upstream], catalog: Catalog, rule: ShareRule) -> None:
        """`upstreams` may change later; `merge` must be called then. `rule`: how much one principal may watch."""
        self._shares = rule.shares("watched_resource", _MOST, "subscriptions to resources")
        self.offered: tuple[ToolEntry, ...] = ()
        """The tools of all servers that are up or asleep."""
        self._upstreams = upstreams
        self._catalog = catalog
        self._shown: _Shown = {}
        self._tool_callbacks: list[Callable[[], None]] = []
        self._callbacks: dict[object, Callable[[ListChange], None]] = {}
        self._watchers: dict[Located, dict[object, Callable[[], None]]] = {}

    def on_tools_changed(self, callback: Callable[[], None]) -> None:
        """See `Proxy.on_tools_changed`."""
        self._tool_callbacks.append(callback)

    def on_change(self, callback: Callable[[ListChange], None]) -> Callable[[], None]:
        """See `Proxy.on_change`."""
        key = object()
        self._callbacks[key] = callback
        return lambda: self._callbacks.pop(key, None) and None

    async def watch(
        self, wanted: Sequence[tuple[Located, str]], principal: Principal, updated: Callable[[str], None]
    ) -> Callable[[], None]:
        """See `Proxy.watch`. `wanted`: resources, each with the URI by which the client knows it."""
        self._check_shared(wanted, principal)
        if (over := self._shares.take(principal, len(wanted))) is not None:
            raise rpc_error(INTERNAL_ERROR, over.message)
        watched: list[tuple[Located, object]] = []
        for located, uri in wanted:
            key = object()
            self._upstreams[located.server].follower.want(located.uri)
            self._watchers.setdefault(located, {})[key] = partial(updated, uri)
            watched.append((located, key))

        def stop() -> None:
            while watched:
                located, key = watched.pop()
                self._shares.give_back(principal)
                self._watchers[located].pop(key, None)
                if not self._watchers[located]:
                    del self._watchers[located]
                # A server that a reload removed has no subscription to end.
                if located.server in self._upstreams:
                    self._upstreams[located.server].follower.drop(located.uri)

        try:
            # Every change after `watch` returns must be reported, so wait until the servers know.
            for located, _ in wanted:
                if located.server in self._upstreams:
                    await self._upstreams[located.server].follower.settled(located.uri)
        except BaseException:
            stop()
            raise
        return stop

    def _check_shared(self, wanted: Sequence[tuple[Located, str]], principal: Principal) -> None:
        """Raise `RpcError` if one of these is on a server that the principal does not share with others."""
        own = {located.server for located, _ in wanted if not self._upstreams[located.server].serves(principal)}
        if own:
            words = f"resources of server {min(own)!r}, at which each user has a sign-in of its own, can't be watched"
            raise rpc_error(INVALID_PARAMS, words)

    def taken_over(self, fresh: Collection[str]) -> None:
        """Watch again on these new servers what was watched on the former ones of the same names."""
        for (server, uri), callbacks in self._watchers.items():
            for _ in callbacks if server in fresh else ():
                self._upstreams[server].follower.want(uri)

    def upstream_changed(
        self, server: str, kind: ListKind | None, session: ClientSession | None, owner: str | None = None
    ) -> None:
        """Handle a change of a server's list, or the coming or going of a server (`Listener`)."""
        if session is not None:
            self._tell(ListChange(kind or "tools", server, session))
        elif owner is not None:
            for each in _LISTS if kind is None else (kind,):
                self._tell(ListChange(each, server, owner=owner))
        elif server in self._upstreams:
            # The server's notification is passed on even if its list is the same as before: clients can judge that.
            self.merge([] if kind is None else [(server, kind)])

    def merge(self, told: Collection[tuple[str, ListKind]] = ()) -> None:
        """Merge the offer again, and report every list that differs from before, and those in `told`."""
        before = self._catalog.tools, self.offered
        self._catalog.rebuild({name: {kind: up.known(kind) for kind in KINDS} for name, up in self._upstreams.items()})
        self.offered = tuple(entry for entry in self._catalog.tools.values() if self._upstreams[entry.server].available)
        if (self._catalog.tools, self.offered) != before:
            for callback in self._tool_callbacks:
                callback()
        was, self._shown = self._shown, self._see()
        changed = {key for key in was.keys() | self._shown.keys() if was.get(key) != self._shown.get(key)}
        for server, kind in sorted(changed | set(told)):
            self._tell(ListChange(kind, server))

    def resource_updated(self, server: str, uri: str) -> None:
        """A resource that a main session watches has changed (`Listener`)."""
        for callback in list(self._watchers.get(Located(server, uri), {}).values()):
            callback()

    def own_resource_updated(self, server: str, params: Mapping[str, Any], session: ClientSession) -> None:
        """A resource that a client watches on its own session has changed (`Listener`)."""
        uri: object = params.get("uri")
        if isinstance(uri, str):
            public = self._catalog.public_uris.public(server, uri, session.principal)
            session.notified(UPDATED, {**params, "uri": public})

    def _see(self) -> _Shown:
        """What clients can see now. A server that is not there has no entry; an empty list counts as none."""
        shown: _Shown = {}
        public = self._catalog.public_uris
        for name, upstream in self._upstreams.items():
            if not upstream.available:
                continue
            naming = self._catalog.naming
            named = [(naming.prompt(name, item["name"]), item) for item in self._items(upstream, "prompts")]
            prompts = [pair for pair in named if pair[0] is not None]
            resources = [
                (public.public(name, item[KEYS[kind]], ANYBODY, is_template=kind == "templates"), item)
                for kind in ("resources", "templates")
                for item in self._items(upstream, kind)
                if naming.shows(name, item[KEYS[kind]])
            ]
            rename = partial(public.public, name, principal=ANYBODY)
            tools = [rename_in_tool(entry.definition, rename) for entry in self.offered if entry.server == name]
            shown[name, "tools"] = tools or None
            shown[name, "prompts"] = prompts or None
            shown[name, "resources"] = resources or None
        return shown

    def _items(self, upstream: Upstream, kind: ItemKind) -> Sequence[dict[str, Any]]:
        listed = upstream.known(kind)
        return () if listed is None else listed.items

    def _tell(self, change: ListChange) -> None:
        for callback in list(self._callbacks.values()):
            callback(change)
