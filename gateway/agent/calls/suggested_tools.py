"""Deferred tools that a user's words suggest: their definitions are in the prompt before the model searches.

Small models seldom search. They answer without tools, or make up a tool's name. So the few definitions that fit a new
user message best are written in front of it; others are found by a search, as ever.
"""

from collections.abc import Callable, Sequence
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
"""Most tokens that the definitions in front of one message take, by an estimate."""
_SHARE: Final = 8
"""The first message's may take one in so many tokens of the context, the second's half of that, and so on."""
_READ: Final = 2000
"""Characters from the end of a message that are searched: agents put reminders at its beginning."""
_SHARED: Final = 2
"""Words that a tool must share with the message: a single one is shared by chance."""


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
    if note is None:
        return offered
    return replace(offered, note=replace(note, message=f"{note.message}; the user's words suggest {', '.join(names)}"))
