"""The tools of one request: those that its prompt defines, and those that are defined only where a search finds them.

Turns the proxy's tools, a caller's rights and the request's own wish into the tools that a request is offered, and
joins the client's to them. A client says which of its tools are deferred; where it defers none although their
definitions would take too much of the context, the gateway does, and the answer says so. Of deferred tools, those that
fit the user's last words are suggested: defined in front of the message.

Templates fail on legal schemas (`toolcalls.schema.merge`), and one tool would take every request with it. Renderings
of fewer tools show which are to blame, and those of simpler forms in which form the engine can show them; what no form
helps is left out. Their number is bounded, and what is found is kept with the engine.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import anyio.to_thread

from gateway.agent.calls.tool_finder import OURS, USUAL
from gateway.context.compose.conversation import SearchTool
from gateway.context.history.template_messages import tool_definitions
from gateway.context.memory import FOUND_TOOLS
from gateway.context.memory.defined_tools import ToolDigests, found_in
from gateway.engine.interface import Message
from gateway.engine.rendering.template_forms import ToolFault
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.errors import RequestInvalid
from gateway.proxy.approvals import level_of, why_asked
from gateway.proxy.caller import ANYBODY, Principal
from gateway.proxy.costs import BYTES_A_TOKEN, DefinitionCosts
from gateway.proxy.naming import ToolEntry
from gateway.proxy.proxy import Proxy
from gateway.proxy.tool_search import rank
from gateway.toolcalls.grammar.refused_grammars import too_much
from gateway.toolcalls.schema.merge import NO_PARAMETERS, tidied, typed
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import Diagnostic

Deferring = Literal["auto", "never", "always"]
_AROUND: Final = 70
"""Characters that templates write around a definition, in OpenAI's shape."""
_DEFERRED: Final = "tools are deferred: their definitions are not in the prompt until the model finds them"
_BY_GATEWAY: Final = (
    "; the gateway defers the request's own since they would take more than half of the context "
    "(agent.defer_client_tools)"
)
_ROOM: Final = 1000
"""Most tokens that the definitions in front of one message take, by an estimate."""
_SHARE: Final = 8
"""The first message's may take one in so many tokens of the context, the second's half of that, and so on."""
_READ: Final = 2000
"""Characters from the end of a message that are searched: agents put reminders at its beginning."""
_SHARED: Final = 2
"""Words that a tool must share with the message: a single one is shared by chance."""
_REFUSED: Final = "the engine can't render its definition"
_LEFT_OUT: Final = "the model is not offered the tool"


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

    def entry(self, name: str) -> ToolEntry | None:
        """The tool of this name, whoever may call it; None: there is no such tool."""
        return next((entry for entry in self._proxy.model_tools() if entry.name == name), None)

    def servers(self, principal: Principal) -> frozenset[str]:
        """Names of the servers that a principal may see."""
        return frozenset(each.name for each in self._proxy.statuses() if principal.sees(each.name))

    def specs(self, principal: Principal = ANYBODY, scope: ToolScope = EVERY_TOOL) -> tuple[ToolSpec, ...]:
        """The tools that can be called now on a principal's behalf, as the parser and the grammar take them."""
        return tuple(entry.spec for entry in self.entries(principal) if scope.holds(entry))

    def divide(
        self, entries: Sequence[ToolEntry], context: int, named: Collection[str] = (), scope: ToolScope = EVERY_TOOL
    ) -> tuple[tuple[ToolSpec, ...], Mapping[str, ToolEntry]]:
        """The tools that a conversation's prompt defines, and by name those that are searched for (`tool_search`).

        Args:
            entries: the tools that can be called on the principal's behalf.
            context: ids that the engine's context holds.
            named: tools that the request names; they are always defined.
            scope: the tools that the request wants to see. A request that chooses servers has none searched for.
        """
        if not entries:
            return (), {}
        if scope.servers is not None or not self._are_searched(entries, context):
            return tuple(entry.spec for entry in entries if scope.holds(entry)), {}
        defined = tuple(entry.spec for entry in entries if entry.name in named)
        return defined, {entry.name: entry for entry in entries if entry.name not in named}

    def approval_rule(self) -> Callable[[ToolEntry], bool]:
        """Return what says whether the operator wants calls of a tool approved, by the settings in force now."""
        proxy, settings = self._proxy, self._proxy.config.approvals
        return lambda entry: why_asked(level_of(settings, *proxy.names_of(entry)), entry.definition) is not None

    def server_of(self, tool: str, besides: Collection[str] = ()) -> str | None:
        """The server of a tool, by the tool's public name: the one that has it, or that its prefix names.

        `besides`: names of tools that no server has.
        """
        return None if tool in besides else self._proxy.server_in(tool)

    def _are_searched(self, entries: Sequence[ToolEntry], context: int) -> bool:
        search = self._proxy.config.tool_search
        if search == "auto":
            return is_heavy(sum(self._costs.of(entry).tokens for entry in entries), context)
        return search is True


def aliases_of(entries: Sequence[ToolEntry], besides: Collection[str] = ()) -> dict[str, str]:
    """By public name, the aliases of those tools that are offered under one. `besides`: names of other tools."""
    found = ((each.alias_of, each.name) for each in entries)
    return {public: alias for public, alias in found if public is not None and public not in besides}


def is_heavy(tokens: int, context: int) -> bool:
    """Whether definitions take more than a quarter of the context."""
    return tokens * 4 > context


@dataclass(frozen=True, slots=True)
class Deferral:
    """Which of its tools a client defers."""

    names: Collection[str] = ()
    search: SearchTool | None = None
    """The tool with which the model finds them, which the gateway runs; None: one of the client's tools finds them."""
    found: Collection[str] = ()
    """Those that stand in the messages, as found by then: nothing has to find them."""


NO_DEFERRAL: Final = Deferral()


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """The tools of one request."""

    tools: tuple[ToolSpec, ...]
    """Those that the prompt defines, the search among them."""
    deferred: Mapping[str, ToolEntry]
    """Those that are only found, by name."""
    search: SearchTool | None
    note: Diagnostic | None = None
    """That tools are deferred; None: none is."""


def gathered(
    ours: tuple[Sequence[ToolSpec], Mapping[str, ToolEntry]],
    theirs: Sequence[ToolSpec],
    deferral: Deferral,
    named: Collection[str],
    context: int,
    deferring: Deferring,
    digests: ToolDigests,
) -> OfferedTools:
    """Return a request's tools; where names clash the client's tool wins, since the client gets that call.

    Args:
        ours: the gateway's tools: those to define, and those that are only found.
        theirs: the client's tools.
        deferral: which of these the client defers.
        named: names of tools that the request requires; they are always defined.
        context: ids that the engine's context holds.
        deferring: `agent.defer_client_tools`.
        digests: those of the request's tools.
    """
    names = {tool.name for tool in theirs}
    defined, searched = ours
    search, by_gateway = deferral.search, ""
    deferred = {name for name in deferral.names if name in names}
    heavy = deferring == "auto" and len(theirs) > USUAL and _are_heavy(theirs, context, digests)
    if theirs and not deferred and (heavy or deferring == "always"):
        deferred, search, by_gateway = names, search or OURS, _BY_GATEWAY
    deferred = deferred - set(named)
    entries = {name: entry for name, entry in searched.items() if name not in names}
    # A tool of the client's can only find the others if the model can call it.
    unfound = deferred >= names and bool(deferred.difference(deferral.found))
    if entries or unfound:
        search = search or OURS
    entries |= {tool.name: _entry(tool) for tool in theirs if tool.name in deferred}
    tools = (
        *((search.spec,) if search is not None and search.spec.name not in names else ()),
        *(tool for tool in theirs if tool.name not in deferred),
        *(tool for tool in defined if tool.name not in names),
    )
    note = Diagnostic("deferred", f"{len(entries)} {_DEFERRED}{by_gateway}") if entries else None
    return OfferedTools(tools, entries, search, note)


def _are_heavy(tools: Sequence[ToolSpec], context: int, digests: ToolDigests) -> bool:
    """Whether the definitions of tools take more than half of the context, by an estimate.

    Not before: a model that has read a definition calls it better than one that has to search for it.
    """
    return 2 * sum(_AROUND + digests.of(tool)[1] for tool in tools) > context * BYTES_A_TOKEN


def _entry(tool: ToolSpec) -> ToolEntry:
    definition = {"name": tool.name, "description": tool.description, "inputSchema": tool.parameters}
    return ToolEntry(tool.name, "", tool.name, definition)


async def with_suggestions(
    messages: Sequence[Message],
    offered: OfferedTools,
    digests: ToolDigests,
    most: int,
    context: int,
    allows: Callable[[str], bool],
) -> tuple[Sequence[Message], OfferedTools]:
    """Return the messages, the last one with the names of the tools that it suggests, and the tools with a note of it.

    Args:
        offered: the request's tools. Where a tool of the client's searches, nothing is suggested: clients that bring
            one have models that use it.
        digests: those of the request's tools.
        most: how many tools one message may suggest.
        context: tokens that the engine's context holds.
        allows: says whether the model may call a tool.
    """
    if not most or offered.search is None or not messages or messages[-1]["role"] != "user":
        return messages, offered
    room = _room(messages, context)
    entries = [entry for entry in offered.deferred.values() if allows(entry.name)] if room else []
    if not entries:
        return messages, offered
    words = str(messages[-1].get("content") or "")[-_READ:]
    ranked = await anyio.to_thread.run_sync(rank, entries, words, _SHARED)
    names = _fitting(ranked[:most], digests, room)
    if not names:
        return messages, offered
    found = tuple(dict.fromkeys((*found_in(messages[-1]), *names)))
    return [*messages[:-1], {**messages[-1], FOUND_TOOLS: found}], _noted(offered, names)


def _room(messages: Sequence[Message], context: int) -> int:
    """Tokens for the definitions in front of the last message: they stay, and the conversation must not end by them."""
    written = sum(len(str(each.get("content") or "").encode("utf-8", "replace")) for each in messages)
    if 2 * written > context * BYTES_A_TOKEN:
        return 0
    asked = sum(each["role"] == "user" for each in messages)
    return min(_ROOM, context // (_SHARE * asked))


def _fitting(ranked: Sequence[ToolEntry], digests: ToolDigests, room: int) -> list[str]:
    left, names = room * BYTES_A_TOKEN, list[str]()
    for entry in ranked:
        size = digests.of(entry.spec)[1]
        if size <= left:
            left -= size
            names.append(entry.name)
    return names


def _noted(offered: OfferedTools, names: Sequence[str]) -> OfferedTools:
    note = offered.note
    said = note and replace(note, message=f"{note.message}; the user's words suggest {', '.join(names)}")
    return replace(offered, note=said)


def _described(tool: ToolSpec) -> ToolSpec:
    schema = json.dumps(tool.parameters, ensure_ascii=False, default=dict)
    words = f"{tool.description}\nParameters, as JSON Schema: {schema}".strip()
    return replace(tool, description=words, parameters=NO_PARAMETERS)


_FORMS: Final[tuple[tuple[Callable[[ToolSpec], ToolSpec], str], ...]] = (
    (lambda tool: replace(tool, parameters=tidied(tool.parameters)), "the model reads a tidied form of it"),
    (lambda tool: replace(tool, parameters=typed(tool.parameters)), "the model reads it with plain types alone"),
    (_described, "the model reads it as JSON in the tool's description"),
)
"""From the closest to what the tool says to the plainest, and what follows."""


async def find_forms(tools: Sequence[ToolSpec], ready: ReadyEngine, server_of: Callable[[str], str | None]) -> bool:
    """Find the tools that the engine can't render, and note a form for each.

    `server_of`: returns the server of a tool, by its name. Returns whether any was found; if not, something else in the
    conversation was refused.
    """
    if not tools or ready.tool_format.preamble:
        return False
    first = await ready.template.refusal_of(tool_definitions(tools))
    if first is None or await ready.template.refusal_of(()) is not None:
        return False
    search = _Search(ready, first)
    left = await too_much(tools, search.takes, _pass)
    for formed, outcome in _FORMS:
        forms = [(tool, formed(tool)) for tool in left]
        refused = await search.refused([form for _, form in forms])
        for tool, form in forms:
            # Where the bound was reached, a tool that needs no other form may be among those that do.
            if form.name not in refused and form != tool:
                ready.forms.note(tool, form, search.fault(tool, server_of, outcome))
        left = [tool for tool in left if tool.name in refused]
    for tool in left:
        ready.forms.note(tool, None, search.fault(tool, server_of, _LEFT_OUT))
    return True


class _Search:
    """Trial renderings for one request."""

    def __init__(self, ready: ReadyEngine, first: str) -> None:
        """`first`: why all tools together were refused."""
        self._ready = ready
        self._first = first
        self._reasons: dict[str, str] = {}

    async def takes(self, tools: Sequence[ToolSpec]) -> bool:
        """Whether the engine renders these tools; if it is one, the reason against it is kept."""
        refusal = await self._ready.template.refusal_of(tool_definitions(tools))
        if refusal is not None and len(tools) == 1:
            self._reasons.setdefault(tools[0].name, refusal)
        return refusal is None

    async def refused(self, forms: Sequence[ToolSpec]) -> set[str]:
        """The names of the forms that the engine does not render."""
        if not forms or await self.takes(forms):
            return set()
        return {form.name for form in await too_much(forms, self.takes, _pass)}

    def fault(self, tool: ToolSpec, server_of: Callable[[str], str | None], outcome: str) -> ToolFault:
        """What is reported of a tool."""
        reason = self._reasons.get(tool.name, self._first)
        return ToolFault(server_of(tool.name), tool.name, f"{_REFUSED} ({reason}); {outcome}")


def check_left_out(names: Collection[str], tools: Sequence[ToolSpec], ready: ReadyEngine) -> None:
    """Raise `RequestInvalid` where a request names a tool that is left out. `tools`: all tools of the request."""
    for tool in tools:
        if tool.name in names and (fault := ready.forms.left_out(tool)) is not None:
            raise RequestInvalid(f"tool_choice: {fault.message}", param="tool_choice")


def _pass(tool: ToolSpec) -> None:
    """Note nothing: a tool's form is noted once it is known."""
