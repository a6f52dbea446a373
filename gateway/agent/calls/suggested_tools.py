"""Deferred tools that a user's words suggest: their definitions are in the prompt before the model searches.

Small models seldom search. They answer without tools, or make up a tool's name. So the few definitions that fit a new
user message best are written in front of it; others are found by a search, as ever.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import anyio.to_thread

from gateway.agent.calls.request_tools import OfferedTools
from gateway.context.memory import FOUND_TOOLS
from gateway.context.memory.defined_tools import ToolDigests, found_in
from gateway.engine.interface import Message
from gateway.proxy.costs import BYTES_A_TOKEN
from gateway.proxy.naming import ToolEntry
from gateway.proxy.tool_search import rank

_ROOM: Final = 1000
"""Tokens that the definitions in front of one message may take, by an estimate."""
_SHARED: Final = 2
"""Words that a tool must share with the message: a single one is shared by chance."""


async def with_suggestions(
    messages: Sequence[Message], offered: OfferedTools, digests: ToolDigests, most: int, *, may_call: bool
) -> tuple[Sequence[Message], OfferedTools]:
    """Return the messages, the last one with the names of the tools that it suggests, and the tools with a note of it.

    Args:
        offered: the request's tools. Where a tool of the client's searches, nothing is suggested: clients that bring
            one have models that use it.
        digests: those of the request's tools.
        most: how many tools one message may suggest.
        may_call: whether the model may call any.
    """
    searched = most and offered.deferred and offered.search is not None and may_call
    if not searched or not messages or messages[-1]["role"] != "user":
        return messages, offered
    entries, words = [*offered.deferred.values()], str(messages[-1].get("content") or "")
    ranked = await anyio.to_thread.run_sync(rank, entries, words, _SHARED)
    names = _fitting(ranked[:most], digests)
    if not names:
        return messages, offered
    found = tuple(dict.fromkeys((*found_in(messages[-1]), *names)))
    return [*messages[:-1], {**messages[-1], FOUND_TOOLS: found}], _noted(offered, names)


def _fitting(ranked: Sequence[ToolEntry], digests: ToolDigests) -> list[str]:
    left, names = _ROOM * BYTES_A_TOKEN, list[str]()
    for entry in ranked:
        size = digests.of(entry.spec)[1]
        if size <= left:
            left -= size
            names.append(entry.name)
    return names


def _noted(offered: OfferedTools, names: Sequence[str]) -> OfferedTools:
    note = offered.note
    if note is None:
        return offered
    return replace(offered, note=replace(note, message=f"{note.message}; the user's words suggest {', '.join(names)}"))
