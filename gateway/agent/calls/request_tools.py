"""The tools of one request: those that its prompt defines, and those that are defined only where a search finds them.

Joins the gateway's tools and the client's. A client says which of its tools are deferred; where it defers none although
their definitions would take too much of the context, the gateway does, and the answer says so. Pure.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from gateway.agent.calls.tool_finder import OURS, USUAL
from gateway.context.compose.conversation import SearchTool
from gateway.context.memory.defined_tools import ToolDigests
from gateway.proxy.costs import BYTES_A_TOKEN
from gateway.proxy.naming import ToolEntry
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import Diagnostic

Deferring = Literal["auto", "never", "always"]


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


_AROUND: Final = 70
"""Characters that templates write around a definition, in OpenAI's shape."""
_DEFERRED: Final = "tools are deferred: their definitions are not in the prompt until the model finds them"
_BY_GATEWAY: Final = (
    "; the gateway defers the request's own since they would take more than half of the context "
    "(agent.defer_client_tools)"
)


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
