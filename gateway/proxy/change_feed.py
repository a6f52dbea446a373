"""What all servers offer now, and who is told when that changes.

Turns the servers' notifications (a list changed, a resource changed) and their coming and going into the merged offer
and into calls to everybody who asked to be told, for each list of each server separately. It asks no server anything.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gateway.protocol.messages import INTERNAL_ERROR, INVALID_PARAMS
from gateway.proxy.caller import ANYBODY, ClientSession, Principal
from gateway.proxy.catalog import Catalog
from gateway.proxy.public_uris import Located
from gateway.proxy.result_uris import rename_in_tool
from gateway.proxy.shares import ShareRule
from gateway.proxy.upstream.items.item_forms import KEYS
from gateway.proxy.upstream.session.session import UPDATED, ListKind, rpc_error
from gateway.proxy.upstream.supervision.listing import KINDS, Kind
from gateway.proxy.upstream.upstream import Upstream

if TYPE_CHECKING:
    from gateway.proxy.naming import ToolEntry


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

    def _items(self, upstream: Upstream, kind: Kind) -> Sequence[dict[str, Any]]:
        listed = upstream.known(kind)
        return () if listed is None else listed.items

    def _tell(self, change: ListChange) -> None:
        for callback in list(self._callbacks.values()):
            callback(change)
