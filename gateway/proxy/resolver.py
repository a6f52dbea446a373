"""Which server owns a public name or a URI, within what this client may see, and requests about one resource."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from gateway.errors import RpcError, UnknownTool, UpstreamUnavailable, rpc_error
from gateway.escape import escape_text
from gateway.protocol.messages import INVALID_PARAMS
from gateway.proxy.caller import NOBODY, Caller, ClientSession, Principal
from gateway.proxy.catalog import Catalog
from gateway.proxy.naming import ToolEntry
from gateway.proxy.upstream.supervision.listing import ItemKind
from gateway.proxy.upstream.upstream import Upstream
from gateway.proxy.uris import Located, rename_in_result

# The owner is the server that listed the name last, or, if none did, one that could have it. Only `learn_tool`,
# `learn_prompt` and `learn_uri`, called before that, ask a server: if a name that nobody listed could be in just one
# list that is known to be incomplete for this client, that server is asked for its list again. It is not told the name.

NAME_LENGTH: Final = 128
"""Characters of a name that an error message shows."""
_REASON: Final = 300


class Resolver:
    """Finds the owners of names and URIs."""

    def __init__(self, upstreams: Mapping[str, Upstream], catalog: Catalog) -> None:
        """Both are only read here, and may change meanwhile."""
        self._upstreams = upstreams
        self._catalog = catalog

    def upstream(self, server: str, principal: Principal) -> Upstream:
        """What the principal uses of a server: its own upstream, if it has signed in there for itself. Else that of all
        callers, whose lists it sees; a request on its behalf goes there only if all callers share it."""
        common = self._upstreams[server]
        return common if common.per_user is None else common.per_user.of(principal) or common

    async def look_up(self, principal: Principal) -> None:
        """Find out whether the principal has signed in for itself at other replicas."""
        for server, upstream in list(self._upstreams.items()):
            if upstream.per_user is not None and principal.sees(server):
                await upstream.per_user.look_up(principal)

    def is_common(self, upstream: Upstream) -> bool:
        """Whether an upstream is the one that callers share, and no principal's own."""
        return upstream is self._upstreams.get(upstream.config.name)

    def entry(self, name: str, principal: Principal) -> ToolEntry | None:
        """The tool of this public name, as the principal's own list has it where there is one; None: it is not known,
        or there is no such tool for the principal."""
        entry = self._catalog.entry(name)
        if entry is not None and self._upstreams[entry.server].per_user is None:
            return entry
        own = [(server, tool) for server, tool in self._catalog.naming.tool_owners(name) if principal.sees(server)]
        for server, tool in own if entry is None else [(entry.server, entry.tool)]:
            upstream = self.upstream(server, principal)
            if upstream is not self._upstreams[server] and upstream.known("tools") is not None:
                definition = upstream.lists.tool(tool, NOBODY)
                return None if definition is None else self._catalog.naming.entries(server, [definition])[0]
        return entry

    def own_entry(self, upstream: Upstream, own: str, called: str, caller: Caller) -> ToolEntry | None:
        """A tool as the principal's own upstream lists it; None: it has not listed it, and may have it all the same.
        Raises `UnknownTool`: it has no such tool, or it may not be called."""
        server = upstream.config.name
        if not self.may_have(server, own, caller):
            raise unknown_tool(called)
        definition = upstream.lists.tool(own, caller)
        return None if definition is None else self._catalog.naming.entries(server, [definition])[0]

    def entries(self, offered: Sequence[ToolEntry], principal: Principal) -> Sequence[ToolEntry]:
        """These tools, which all callers see, as the principal sees them: with its own lists where it has some."""
        own = {
            name: self.upstream(name, principal) for name, each in self._upstreams.items() if each.per_user is not None
        }
        listed = {name: each.known("tools") for name, each in own.items() if each is not self._upstreams[name]}
        if not any(each is not None for each in listed.values()):
            return offered
        found: list[ToolEntry] = []
        for name in self._upstreams:
            if (mine := listed.get(name)) is None:
                found += [entry for entry in offered if entry.server == name]
            else:
                entries = self._catalog.naming.entries(name, mine.items)
                found += [entry for entry in entries if self._catalog.is_owner(name, entry.name)]
        return found

    def locate(self, uri: str, principal: Principal, caller: Caller = NOBODY) -> Located | None:
        """The server that has a resource, and its own URI for it; None: no server is known, or several are.

        If the URI carries no server and none listed it for all clients, it is the one that listed it for this client,
        else the one that gave it to this principal in an answer, else the only server that has resources. Of several
        none is chosen: a server must not see a URI that is meant for another.
        """
        meant = self._meant(uri, principal)
        if meant is None:
            return None
        own, among = meant
        if owners := self._catalog.uris.owners(own, among):
            return Located(next(iter(owners)), own) if len(owners) == 1 else None
        having = self._having(among)
        found = self._told(own, among, caller) or (self._showing(own, having) if len(having) == 1 else [])
        return Located(found[0].config.name, own) if len(found) == 1 else None

    def public_uri(self, located: Located, principal: Principal) -> str:
        """The URI under which this principal is shown a resource."""
        return self._catalog.public_uris.public(*located, principal)

    def no_resource(self, uri: str, principal: Principal) -> RpcError:
        """The error for a URI that `locate` finds no server for."""
        shown = escape_text(uri, NAME_LENGTH)
        meant = self._meant(uri, principal)
        owners = frozenset[str]() if meant is None else self._catalog.uris.owners(*meant)
        if not owners:
            return rpc_error(INVALID_PARAMS, f"no server has the resource {shown!r}: list the resources again", uri=uri)
        spellings = [escape_text(each, NAME_LENGTH) for each in self._catalog.public_uris.spellings(uri, owners)]
        words = f"several servers have the resource {shown!r}: ask for one of {', '.join(spellings)}"
        return rpc_error(INVALID_PARAMS, words, uri=uri)

    async def learn_uri(self, uri: str, caller: Caller) -> None:
        """Like `learn_tool`, for a resource. Never raises UpstreamUnavailable: a resource need not be in any list."""
        meant = self._meant(uri, caller.principal)
        if meant is None:
            return
        own, among = meant
        if not self._catalog.uris.owners(own, among) and not self._told(own, among, caller):
            await self._learn_if_can(("resources", "templates"), self._showing(own, self._having(among)), caller)

    def _meant(self, uri: str, principal: Principal) -> tuple[str, Principal] | None:
        """What a public URI stands for: a server's own URI, and the principal, who sees only that server if the URI
        carries one. None: it stands for nothing."""
        public = self._catalog.public_uris
        if (located := public.located(uri, principal)) is not None:
            return located.uri, replace(principal, servers=frozenset({located.server}))
        return None if public.needs_mark(uri, principal) else (uri, principal)

    def _told(self, uri: str, principal: Principal, caller: Caller) -> list[Upstream]:
        """The servers that listed the URI for this client, else those that gave it to this principal in an answer."""
        shown = self._showing(uri, self.visible(principal))
        told = [each for each in shown if each.lists.holds_uri_aside(uri, caller)]
        return told or [each for each in shown if each.given.has(uri, principal)]

    def _having(self, principal: Principal) -> list[Upstream]:
        return [each for each in self.visible(principal) if isinstance(each.offers.get("resources"), dict)]

    def _showing(self, uri: str, upstreams: Iterable[Upstream]) -> list[Upstream]:
        """The upstreams of which the operator lets clients see this resource."""
        return [each for each in upstreams if self._catalog.naming.shows(each.config.name, uri)]

    def tool(self, name: str, caller: Caller, called: str | None = None) -> tuple[Upstream, str]:
        """The server that owns a tool, as all callers have it, and its own name there.

        Args:
            called: the alias, if the caller used one.

        Raises:
            UnknownTool: it does not show what an alias stands for: to this caller the tool may not exist.
        """
        entry = self._catalog.tools.get(name)
        if entry is not None and caller.principal.may_call(entry.server, name):
            return self._upstreams[entry.server], entry.tool
        for server, own in self._catalog.naming.tool_owners(name):
            if caller.principal.may_call(server, name) and self.may_have(server, own, caller):
                return self._upstreams[server], own
        raise unknown_tool(called or name)

    async def learn_tool(self, name: str, caller: Caller) -> None:
        """Have a server list its tools for this caller, if nobody listed this tool and this server is the only one that
        could have it and whose list is known to be incomplete for the caller.

        Raises:
            UpstreamUnavailable: the server can't list them.
        """
        owners = [(s, own) for s, own in self._catalog.naming.tool_owners(name) if caller.principal.may_call(s, name)]
        upstreams = [(self.upstream(server, caller.principal), own) for server, own in owners]
        if not any(each.lists.knows_tool_aside(own, caller) for each, own in upstreams):
            await self._learn(("tools",), [each for each, _ in upstreams], caller)

    async def learn_prompt(self, name: str, caller: Caller) -> None:
        """Like `learn_tool`, for a prompt. Never raises UpstreamUnavailable: a server can refuse unknown prompts."""
        owners = self._prompt_owners(name, caller.principal)
        upstreams = [(self.upstream(server, caller.principal), own) for server, own in owners]
        if not any(each.lists.holds("prompts", own, caller) for each, own in upstreams):
            await self._learn_if_can(("prompts",), [each for each, _ in upstreams], caller)

    async def _learn(self, kinds: Sequence[ItemKind], upstreams: Iterable[Upstream], caller: Caller) -> None:
        incomplete = [
            each for each in upstreams if each.serves(caller.principal) and each.selector.may_list_more(caller)
        ]
        if len(incomplete) == 1:
            await incomplete[0].learn(kinds, caller)

    async def _learn_if_can(self, kinds: Sequence[ItemKind], upstreams: Iterable[Upstream], caller: Caller) -> None:
        with suppress(UpstreamUnavailable):
            await self._learn(kinds, upstreams, caller)

    def may_have(self, server: str, own: str, caller: Caller) -> bool:
        """Whether a server may have a tool that is in no merged list: it listed it for this client only, or its list is
        known to be incomplete. Any other name is refused here, so that it reaches no server.

        Raises:
            UnknownTool: the tool is blocked by a pin, or its definition is not valid.
        """
        upstream = self.upstream(server, caller.principal)
        if own in upstream.pins.blocked:
            raise UnknownTool(
                f"tool {escape_text(own, NAME_LENGTH)!r} of server {server!r} is blocked: its definition is not the "
                f"pinned one; the operator accepts it with `codec-gateway pins accept {server}`"
            )
        if (why := upstream.tool_headers.invalid.get(own)) is not None:
            raise UnknownTool(
                f"tool {escape_text(own, NAME_LENGTH)!r} of server {server!r} is not offered, because its inputSchema "
                f"asks for invalid headers: {escape_text(why, _REASON)}; the server's author has to correct it"
            )
        if (why := upstream.reader.why_left_out("tools").get(own)) is not None:
            raise UnknownTool(
                f"tool {escape_text(own, NAME_LENGTH)!r} of server {server!r} is not offered, because its definition "
                f"is malformed: {escape_text(why, _REASON)}; the server's author has to correct it"
            )
        if not upstream.serves(caller.principal) and self._catalog.naming.prefix(server):
            # Nobody has listed its tools for this caller; it has to sign in first.
            return True
        return upstream.lists.may_have_tool(own, caller)

    def server_of(self, name: str) -> str | None:
        """The server that owns a tool, or the only one that could; None: no owner is known."""
        entry = self._catalog.entry(name)
        if entry is not None:
            return entry.server
        owners = self._catalog.naming.tool_owners(self._catalog.aliases.name_of(name))
        return owners[0][0] if len(owners) == 1 else None

    def server_in(self, name: str) -> str | None:
        """The server that owns a tool, or that its name tells by its prefix; None: neither."""
        entry = self._catalog.entry(name)
        if entry is not None:
            return entry.server
        # Without a prefix, a server's name for a tool could be a client's as well.
        owners = [server for server, own in self._catalog.naming.tool_owners(name) if own != name]
        return owners[0] if len(owners) == 1 else None

    def prompt(self, name: str, caller: Caller) -> tuple[Upstream, str]:
        """The server that owns a prompt, and its own name there. Raises `RpcError`."""
        owners = self._prompt_owners(name, caller.principal)
        mine = [(self.upstream(server, caller.principal), own) for server, own in owners]
        having = [(each, own) for each, own in mine if each.lists.holds("prompts", own, caller)] or mine
        if not having:
            shown = escape_text(name, NAME_LENGTH)
            raise rpc_error(
                INVALID_PARAMS, f"unknown prompt {shown!r}: expected a name from prompts/list; list them again"
            )
        return having[0]

    def _prompt_owners(self, name: str, principal: Principal) -> list[tuple[str, str]]:
        return [(server, own) for server, own in self._catalog.naming.prompt_owners(name) if principal.sees(server)]

    def visible(self, principal: Principal) -> list[Upstream]:
        """The servers that this client may see, as it uses them, in the configuration's order."""
        return [self.upstream(name, principal) for name in self._upstreams if principal.sees(name)]


def unknown_tool(called: str) -> UnknownTool:
    """The error for a tool that does not exist for the caller."""
    shown = escape_text(called, NAME_LENGTH)
    return UnknownTool(f"unknown tool {shown!r}: expected a name from tools/list; list the tools again")


# For a client without a session of its own with a resource's server, the gateway watches the resource instead.

ResourceWatch = Callable[[Collection[str], Principal, Callable[[str], None]], Awaitable[Callable[[], None]]]
AskUpstream = Callable[[Upstream, str, dict[str, Any], Caller], Awaitable[dict[str, Any]]]


class Resources:
    """Handles the methods about one resource."""

    def __init__(self, resolver: Resolver, watch: ResourceWatch, ask: AskUpstream) -> None:
        """`watch`: see `Proxy.watch`. `ask` sends a request to a server."""
        self._resolver = resolver
        self._watch = watch
        self._ask = ask
        self._subscribed: dict[ClientSession, dict[str, Callable[[], None]]] = {}

    async def read(self, method: str, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        """Send the request to the URI's owner, and to no other server."""
        uri = params.get("uri")
        if not isinstance(uri, str):
            raise rpc_error(INVALID_PARAMS, f"{method} needs the resource's URI, as a string, in params.uri")
        await self._resolver.learn_uri(uri, caller)
        located = self._resolver.locate(uri, caller.principal, caller)
        if located is None:
            raise self._resolver.no_resource(uri, caller.principal)
        upstream = self._resolver.upstream(located.server, caller.principal)
        result = await self._ask(upstream, method, {**params, "uri": located.uri}, caller)
        # The client finds the resource under the URI that it asked for, even if lists show another.
        listed = self._resolver.public_uri(located, caller.principal)
        return rename_in_result(result, lambda each: uri if each == listed else each) if listed != uri else result

    async def subscribe(self, method: str, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        """Subscribe on the client's own session with the server if there is one; else watch the resource for it."""
        uri, session = params.get("uri"), caller.session
        if isinstance(uri, str):
            await self._resolver.learn_uri(uri, caller)
        located = self._resolver.locate(uri, caller.principal, caller) if isinstance(uri, str) else None
        if session is None or located is None or self._has_own(located, caller):
            return await self.read(method, params, caller)
        watched = self._subscribed.setdefault(session, {})
        if uri not in watched:
            stop = await self._watch(
                [str(uri)],
                caller.principal,
                lambda updated: session.notified("notifications/resources/updated", {"uri": updated}),
            )
            if uri in watched or self._subscribed.get(session) is not watched:
                # The client subscribed twice at the same time, or has disconnected meanwhile.
                stop()
            else:
                watched[str(uri)] = stop
        return {}

    async def unsubscribe(self, method: str, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        """End what `subscribe` began. Never unsubscribes on a shared session, where it could be another client's."""
        uri = params.get("uri")
        watched = self._subscribed.get(caller.session, {}) if caller.session is not None else {}
        stop = watched.pop(str(uri), None)
        if stop is not None:
            stop()
            return {}
        located = self._resolver.locate(uri, caller.principal, caller) if isinstance(uri, str) else None
        if located is None or self._has_own(located, caller):
            return await self.read(method, params, caller)
        return {}

    def _has_own(self, located: Located, caller: Caller) -> bool:
        return self._resolver.upstream(located.server, caller.principal).selector.has_own(caller)

    def forget(self, session: ClientSession) -> None:
        """End all watches for a client that has disconnected."""
        for stop in self._subscribed.pop(session, {}).values():
            stop()
