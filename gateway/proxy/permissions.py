"""Which server a public name or a URI belongs to, as far as this client may see.

Turns names and URIs into upstreams and their own names. What the servers listed last decides, and where nobody listed a
name, who could own it. `learn_tool`, `learn_prompt` and `learn_uri` come before that, and are all that asks a server:
a list that is known to be incomplete for a client is made whole where a name that nobody listed can stand in no other.
The server is asked for its list and not told the name.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from gateway.errors import UnknownTool, UpstreamUnavailable
from gateway.observe.escape import escape_text
from gateway.protocol.messages import INVALID_PARAMS
from gateway.proxy.caller import NOBODY, Caller, Principal
from gateway.proxy.catalog import Catalog
from gateway.proxy.upstream.listing import Kind
from gateway.proxy.upstream.session import rpc_error
from gateway.proxy.upstream.upstream import Upstream

NAME_LENGTH: Final = 128
"""Characters of a name that an error shows."""
_REASON: Final = 300


class Owners:
    """Who owns what."""

    def __init__(self, upstreams: Mapping[str, Upstream], catalog: Catalog) -> None:
        """Both are read, and may change."""
        self._upstreams = upstreams
        self._catalog = catalog

    def uri_owner(self, uri: str, principal: Principal, caller: Caller = NOBODY) -> str | None:
        """The server that owns a URI; None: nobody is known to.

        Where nobody listed it to all, it is of who listed it to this client, then of who gave it to this principal in
        an answer, and else of the only server that has resources: no server is shown what was meant for another.
        """
        owner = self._catalog.uris.owner(uri, principal)
        if owner is not None:
            return owner
        having = self._having(principal)
        found = self._told(uri, principal, caller)[:1] or (self._showing(uri, having) if len(having) == 1 else [])
        return found[0].config.name if found else None

    async def learn_uri(self, uri: str, caller: Caller) -> None:
        """As `learn_tool`, of a resource. Where it can't be learned nothing is: a resource need stand in no list."""
        principal = caller.principal
        if self._catalog.uris.owner(uri, principal) is None and not self._told(uri, principal, caller):
            await self._learn_if_can(("resources", "templates"), self._showing(uri, self._having(principal)), caller)

    def _told(self, uri: str, principal: Principal, caller: Caller) -> list[Upstream]:
        """Who told this client of the URI, or gave it to this principal."""
        shown = self._showing(uri, self.visible(principal))
        told = [each for each in shown if each.lists.holds_uri_aside(uri, caller)]
        return told or [each for each in shown if each.given.has(uri, principal)]

    def _having(self, principal: Principal) -> list[Upstream]:
        return [each for each in self.visible(principal) if isinstance(each.offers.get("resources"), dict)]

    def _showing(self, uri: str, upstreams: Iterable[Upstream]) -> list[Upstream]:
        """Those of which the operator lets clients see this resource."""
        return [each for each in upstreams if self._catalog.naming.shows(each.config.name, uri)]

    def tool(self, name: str, caller: Caller) -> tuple[Upstream, str]:
        """The server that owns a tool, and its own name there. Raises `UnknownTool`."""
        entry = self._catalog.tools.get(name)
        if entry is not None and caller.principal.may_call(entry.server, name):
            return self._upstreams[entry.server], entry.tool
        for server, own in self._catalog.naming.tool_owners(name):
            if caller.principal.may_call(server, name) and self._may_have(server, own, caller):
                return self._upstreams[server], own
        raise UnknownTool(
            f"unknown tool {escape_text(name, NAME_LENGTH)!r}: expected one of the names in tools/list; list them anew"
        )

    async def learn_tool(self, name: str, caller: Caller) -> None:
        """Where nobody listed a tool, and only one server's list can hold it that is known to be incomplete for this
        caller, have that server list its tools to this caller.

        Raises:
            UpstreamUnavailable: it can't.
        """
        owners = [(s, own) for s, own in self._catalog.naming.tool_owners(name) if caller.principal.may_call(s, name)]
        if not any(self._upstreams[server].lists.knows_tool_aside(own, caller) for server, own in owners):
            await self._learn(("tools",), [self._upstreams[server] for server, _ in owners], caller)

    async def learn_prompt(self, name: str, caller: Caller) -> None:
        """As `learn_tool`, of a prompt. Where it can't be learned nothing is: the server refuses what it has not."""
        owners = self._prompt_owners(name, caller.principal)
        if not any(self._upstreams[server].lists.holds("prompts", own, caller) for server, own in owners):
            await self._learn_if_can(("prompts",), [self._upstreams[server] for server, _ in owners], caller)

    async def _learn(self, kinds: Sequence[Kind], upstreams: Iterable[Upstream], caller: Caller) -> None:
        incomplete = [each for each in upstreams if each.selector.may_list_more(caller)]
        if len(incomplete) == 1:
            await incomplete[0].learn(kinds, caller)

    async def _learn_if_can(self, kinds: Sequence[Kind], upstreams: Iterable[Upstream], caller: Caller) -> None:
        with suppress(UpstreamUnavailable):
            await self._learn(kinds, upstreams, caller)

    def _may_have(self, server: str, own: str, caller: Caller) -> bool:
        """Whether a server may know a tool that stands in no merged list: it showed it to this client only, or its list
        is known to be incomplete. Any other name is ours to refuse: no server is to see it.
        """
        if own in self._upstreams[server].pins.blocked:
            raise UnknownTool(
                f"tool {escape_text(own, NAME_LENGTH)!r} of server {server!r} is blocked: its definition is not the "
                f"pinned one; the operator accepts it with `codec-gateway pins accept {server}`"
            )
        if (why := self._upstreams[server].tool_headers.invalid.get(own)) is not None:
            raise UnknownTool(
                f"tool {escape_text(own, NAME_LENGTH)!r} of server {server!r} is not offered, because the headers that "
                f"it asks for are not valid: {escape_text(why, _REASON)}; its author has to correct its inputSchema"
            )
        return self._upstreams[server].lists.may_have_tool(own, caller)

    def server_of(self, name: str) -> str | None:
        """The server that owns a tool, or the only one that could; None: nobody is known to."""
        entry = self._catalog.tools.get(name)
        if entry is not None:
            return entry.server
        owners = self._catalog.naming.tool_owners(name)
        return owners[0][0] if len(owners) == 1 else None

    def prompt(self, name: str, caller: Caller) -> tuple[Upstream, str]:
        """The same of a prompt. Raises `RpcError`."""
        owners = self._prompt_owners(name, caller.principal)
        having = [(s, own) for s, own in owners if self._upstreams[s].lists.holds("prompts", own, caller)] or owners
        if not having:
            raise rpc_error(INVALID_PARAMS, f"unknown prompt {escape_text(name, NAME_LENGTH)!r}: list them anew")
        server, own = having[0]
        return self._upstreams[server], own

    def _prompt_owners(self, name: str, principal: Principal) -> list[tuple[str, str]]:
        return [(server, own) for server, own in self._catalog.naming.prompt_owners(name) if principal.sees(server)]

    def visible(self, principal: Principal) -> list[Upstream]:
        """The servers that this client may see, in the configuration's order."""
        return [each for each in self._upstreams.values() if principal.sees(each.config.name)]
