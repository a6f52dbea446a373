"""Which server a public name or a URI belongs to, as far as this client may see.

Turns names and URIs into upstreams and their own names. It asks nobody: what the servers listed last decides, and where
nobody listed a name, who could own it.
"""

from collections.abc import Mapping
from typing import Final

from gateway.errors import UnknownTool
from gateway.observe.escape import escape_text
from gateway.protocol.messages import INVALID_PARAMS
from gateway.proxy.caller import NOBODY, Caller, Principal
from gateway.proxy.catalog import Catalog
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
        visible = self.visible(principal)
        having = [each for each in visible if isinstance(each.offers.get("resources"), dict)]
        told = [each for each in having if each.lists_uri(uri, caller)] or [
            each
            for each in visible
            if each.given.has(uri, principal) and self._catalog.naming.shows(each.config.name, uri)
        ]
        found = told[:1] or (having if len(having) == 1 else [])
        return found[0].config.name if found else None

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
        return self._upstreams[server].may_have_tool(own, caller)

    def server_of(self, name: str) -> str | None:
        """The server that owns a tool, or the only one that could; None: nobody is known to."""
        entry = self._catalog.tools.get(name)
        if entry is not None:
            return entry.server
        owners = self._catalog.naming.tool_owners(name)
        return owners[0][0] if len(owners) == 1 else None

    def prompt(self, name: str, principal: Principal) -> tuple[Upstream, str]:
        """The same of a prompt. Raises `RpcError`."""
        owners = [(server, own) for server, own in self._catalog.naming.prompt_owners(name) if principal.sees(server)]
        having = [pair for pair in owners if self._has_prompt(*pair)] or owners
        if not having:
            raise rpc_error(INVALID_PARAMS, f"unknown prompt {escape_text(name, NAME_LENGTH)!r}: list them anew")
        server, own = having[0]
        return self._upstreams[server], own

    def _has_prompt(self, server: str, own: str) -> bool:
        listed = self._upstreams[server].known("prompts")
        return listed is not None and any(prompt["name"] == own for prompt in listed.items)

    def visible(self, principal: Principal) -> list[Upstream]:
        """The servers that this client may see, in the configuration's order."""
        return [each for each in self._upstreams.values() if principal.sees(each.config.name)]
