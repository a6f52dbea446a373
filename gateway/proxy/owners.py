"""Which server a public name or a URI belongs to, as far as this client may see.

Turns names and URIs into upstreams and their own names. It asks nobody: what the servers listed last decides, and where
nobody listed a name, who could own it. `routes.py` stands above, `catalog.py` below.
"""

from collections.abc import Mapping
from typing import Final

from gateway.errors import UnknownTool
from gateway.observe.escape import escape_text
from gateway.proxy.caller import Caller, Principal
from gateway.proxy.catalog import Catalog
from gateway.proxy.upstreams.session import refusal
from gateway.proxy.upstreams.upstream import Upstream
from gateway.rpc.messages import INVALID_PARAMS

NAME_LENGTH: Final = 128
"""Characters of a name that an error shows."""


class Owners:
    """Who owns what."""

    def __init__(self, upstreams: Mapping[str, Upstream], catalog: Catalog) -> None:
        """Both are read, and may change."""
        self._upstreams = upstreams
        self._catalog = catalog

    def uri_owners(self, uri: str, principal: Principal) -> list[str]:
        """The servers that may own a URI, best first; where nobody claims it, all that have resources."""
        owners = self._catalog.resource_owners(uri, principal)
        if owners:
            return owners
        return [each.config.name for each in self.visible(principal) if isinstance(each.offers.get("resources"), dict)]

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
        """Whether a server may know a tool that it did not list: it is away, or shows some tools to some clients only.

        Without a prefix the server's own words say best what is wrong with a name.
        """
        if own in self._upstreams[server].pins.blocked:
            raise UnknownTool(
                f"tool {escape_text(own, NAME_LENGTH)!r} of server {server!r} is blocked: its definition is not the "
                f"pinned one; the operator accepts it with `codec-gateway pins accept {server}`"
            )
        return (
            not self._upstreams[server].up
            or not self._catalog.naming.prefix(server)
            or caller.session is not None
            or bool(caller.capabilities)
        )

    def prompt(self, name: str, principal: Principal) -> tuple[Upstream, str]:
        """The same of a prompt. Raises `RpcError`."""
        owners = [(server, own) for server, own in self._catalog.naming.prompt_owners(name) if principal.sees(server)]
        having = [pair for pair in owners if self._has_prompt(*pair)] or owners
        if not having:
            raise refusal(INVALID_PARAMS, f"unknown prompt {escape_text(name, NAME_LENGTH)!r}: list them anew")
        server, own = having[0]
        return self._upstreams[server], own

    def _has_prompt(self, server: str, own: str) -> bool:
        listed = self._upstreams[server].known("prompts")
        return listed is not None and any(prompt["name"] == own for prompt in listed.items)

    def visible(self, principal: Principal) -> list[Upstream]:
        """The servers that this client may see, in the configuration's order."""
        return [each for each in self._upstreams.values() if principal.sees(each.config.name)]
