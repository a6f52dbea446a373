"""What all servers offer now, and who hears when that changes.

Turns the servers' own words ("my tools changed", "this resource did") and their coming and going into the merged offer
and into calls of those who asked to be told, each list of each server by itself. It asks no server anything.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gateway.protocol.messages import INTERNAL_ERROR
from gateway.proxy.caller import ClientSession, Principal
from gateway.proxy.catalog import Catalog
from gateway.proxy.shares import ShareRule
from gateway.proxy.upstream.listing import KINDS, Kind
from gateway.proxy.upstream.session import ListKind, rpc_error
from gateway.proxy.upstream.upstream import Upstream

if TYPE_CHECKING:
    from gateway.proxy.naming import ToolEntry


@dataclass(frozen=True, slots=True)
class ListChange:
    """What clients see changed."""

    kind: ListKind
    server: str
    session: ClientSession | None = None
    """Set where only this client's view changed."""


_MOST: Final = 10_000
"""Resources that are watched at a time."""
_Shown = dict[tuple[str, ListKind], object]
"""Server and list to what clients can see of it."""


class ChangeFeed:
    """Who is told of what (`upstream.Listener`)."""

    def __init__(self, upstreams: Mapping[str, Upstream], catalog: Catalog, rule: ShareRule) -> None:
        """`upstreams` may change later; `merge` is to be called then. `rule`: how much one principal may watch."""
        self._shares = rule.shares("watched_resource", _MOST, "watched resources")
        self.offered: tuple[ToolEntry, ...] = ()
        """The tools of all servers that are there."""
        self._upstreams = upstreams
        self._catalog = catalog
        self._shown: _Shown = {}
        self._tool_callbacks: list[Callable[[], None]] = []
        self._callbacks: dict[object, Callable[[ListChange], None]] = {}
        self._watchers: dict[tuple[str, str], dict[object, Callable[[str], None]]] = {}

    def on_tools_changed(self, callback: Callable[[], None]) -> None:
        """As `Proxy.on_tools_changed`."""
        self._tool_callbacks.append(callback)

    def on_change(self, callback: Callable[[ListChange], None]) -> Callable[[], None]:
        """As `Proxy.on_change`."""
        key = object()
        self._callbacks[key] = callback
        return lambda: self._callbacks.pop(key, None) and None

    async def watch(
        self, owned: Sequence[tuple[str, str]], principal: Principal, updated: Callable[[str], None]
    ) -> Callable[[], None]:
        """As `Proxy.watch`; `owned`: the server of each URI, and the URI."""
        if (over := self._shares.take(principal, len(owned))) is not None:
            raise rpc_error(INTERNAL_ERROR, over.message)
        key = object()
        watched = list(owned)
        for server, uri in owned:
            self._upstreams[server].follower.want(uri)
            self._watchers.setdefault((server, uri), {})[key] = updated

        def stop() -> None:
            while watched:
                server, uri = watched.pop()
                self._shares.give_back(principal)
                self._watchers[server, uri].pop(key, None)
                if not self._watchers[server, uri]:
                    del self._watchers[server, uri]
                # A server that a reload took away has nothing to forget.
                if server in self._upstreams:
                    self._upstreams[server].follower.drop(uri)

        try:
            # What changes once we have said that we watch must be heard.
            for server, uri in owned:
                if server in self._upstreams:
                    await self._upstreams[server].follower.settled(uri)
        except BaseException:
            stop()
            raise
        return stop

    def taken_over(self, fresh: Collection[str]) -> None:
        """These servers are others now, under names that may have been there: what was watched is watched there."""
        for (server, uri), callbacks in self._watchers.items():
            for _ in callbacks if server in fresh else ():
                self._upstreams[server].follower.want(uri)

    def upstream_changed(self, server: str, kind: ListKind | None, session: ClientSession | None) -> None:
        """A server's list changed, or it came or went (`Listener`)."""
        if session is not None:
            self._tell(ListChange(kind or "tools", server, session))
        elif server in self._upstreams:
            # The server's own word is passed on even if it lists the same again: that is for clients to judge.
            self.merge([] if kind is None else [(server, kind)])

    def merge(self, told: Collection[tuple[str, ListKind]] = ()) -> None:
        """Make the offer anew, and tell of each list that is not what it was, and of those in `told`."""
        before = self._catalog.tools, self.offered
        self._catalog.rebuild({name: {kind: up.known(kind) for kind in KINDS} for name, up in self._upstreams.items()})
        self.offered = tuple(entry for entry in self._catalog.tools.values() if self._upstreams[entry.server].there)
        if (self._catalog.tools, self.offered) != before:
            for callback in self._tool_callbacks:
                callback()
        was, self._shown = self._shown, self._see()
        changed = {key for key in was.keys() | self._shown.keys() if was.get(key) != self._shown.get(key)}
        for server, kind in sorted(changed | set(told)):
            self._tell(ListChange(kind, server))

    def resource_updated(self, server: str, uri: str) -> None:
        """A resource changed that a main session watches (`Listener`)."""
        for callback in list(self._watchers.get((server, uri), {}).values()):
            callback(uri)

    def _see(self) -> _Shown:
        """What is not offered has no entry; an empty list is as good as none."""
        shown: _Shown = {}
        for name, upstream in self._upstreams.items():
            if not upstream.there:
                continue
            naming = self._catalog.naming
            named = [(naming.prompt(name, item["name"]), item) for item in self._items(upstream, "prompts")]
            prompts = [pair for pair in named if pair[0] is not None]
            resources = [item for item in self._items(upstream, "resources") if naming.shows(name, item["uri"])]
            templates = [i for i in self._items(upstream, "templates") if naming.shows(name, i["uriTemplate"])]
            shown[name, "tools"] = [entry.definition for entry in self.offered if entry.server == name] or None
            shown[name, "prompts"] = prompts or None
            shown[name, "resources"] = resources + templates or None
        return shown

    def _items(self, upstream: Upstream, kind: Kind) -> Sequence[dict[str, Any]]:
        listed = upstream.known(kind)
        return () if listed is None else listed.items

    def _tell(self, change: ListChange) -> None:
        for callback in list(self._callbacks.values()):
            callback(change)
