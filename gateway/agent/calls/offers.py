"""Which of the gateway's tools a request is offered.

Turns the proxy's tools, a caller's rights and the request's own wish into the tools that its prompt defines, and those
that are only found by a search, where the definitions of all would take too much of the context.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.proxy.approvals import level_of, why_asked
from gateway.proxy.caller import ANYBODY, Principal
from gateway.proxy.costs import DefinitionCosts
from gateway.proxy.naming import ToolEntry
from gateway.proxy.proxy import Proxy
from gateway.toolcalls.schema.spec import ToolSpec


@dataclass(frozen=True, slots=True)
class ToolScope:
    """Which of the gateway's tools a request wants to see."""

    servers: Mapping[str, frozenset[str] | None] | None = None
    """By server, names of its tools (public ones or its own), or None for all of its tools. None: every server."""

    def holds(self, entry: ToolEntry) -> bool:
        """Whether a tool is in the scope."""
        if self.servers is None:
            return True
        if entry.server not in self.servers:
            return False
        names = self.servers[entry.server]
        return names is None or not names.isdisjoint((entry.name, entry.tool, entry.alias_of))


EVERY_TOOL: Final = ToolScope()
NO_TOOL: Final = ToolScope({})


class ToolOffers:
    """The tools of one gateway."""

    def __init__(self, proxy: Proxy, costs: DefinitionCosts) -> None:
        self._proxy = proxy
        self._costs = costs

    def entries(self, principal: Principal) -> Sequence[ToolEntry]:
        """The tools that can be called now on a principal's behalf, with their servers."""
        return self._proxy.model_tools(principal)

    def servers(self, principal: Principal) -> frozenset[str]:
        """Names of the servers that a principal may see."""
        return frozenset(each.name for each in self._proxy.statuses() if principal.sees(each.name))

    def specs(self, principal: Principal = ANYBODY, scope: ToolScope = EVERY_TOOL) -> tuple[ToolSpec, ...]:
        """The tools that can be called now on a principal's behalf, as the parser and the grammar take them."""
        return tuple(entry.spec for entry in self.entries(principal) if scope.holds(entry))

    def to(
        self, principal: Principal, context: int, named: Collection[str] = (), scope: ToolScope = EVERY_TOOL
    ) -> tuple[tuple[ToolSpec, ...], Mapping[str, ToolEntry]]:
        """The tools that a conversation's prompt defines, and by name those that are searched for (`tool_search`).

        Args:
            principal: on whose behalf they would be called.
            context: ids that the engine's context holds.
            named: tools that the request names; they are always defined.
            scope: the tools that the request wants to see. A request that chooses servers has none searched for.
        """
        entries = self.entries(principal)
        if scope.servers is not None or not self._are_searched(entries, context):
            return self.specs(principal, scope), {}
        defined = tuple(entry.spec for entry in entries if entry.name in named)
        return defined, {entry.name: entry for entry in entries if entry.name not in named}

    def approval_rule(self) -> Callable[[ToolEntry], bool]:
        """Return what says whether the operator wants calls of a tool approved, by the settings in force now."""
        proxy, settings = self._proxy, self._proxy.config.approvals
        return lambda entry: why_asked(level_of(settings, *proxy.names_of(entry)), entry.definition) is not None

    def aliases(self, principal: Principal, besides: Collection[str] = ()) -> Mapping[str, str]:
        """By public name, the aliases of those tools that are offered under one. `besides`: names of other tools."""
        found = ((each.alias_of, each.name) for each in self.entries(principal))
        return {public: alias for public, alias in found if public is not None and public not in besides}

    def server_of(self, tool: str) -> str | None:
        """The server of a tool, by the tool's public name: the one that has it, or that its prefix names."""
        return self._proxy.server_in(tool)

    def _are_searched(self, entries: Sequence[ToolEntry], context: int) -> bool:
        search = self._proxy.config.tool_search
        if search == "auto":
            return is_heavy(sum(self._costs.of(entry).tokens for entry in entries), context)
        return search is True and len(entries) > 0


def is_heavy(tokens: int, context: int) -> bool:
    """Whether definitions take more than a quarter of the context."""
    return tokens * 4 > context
