"""System messages after the beginning of a conversation, for templates that have no place for them there.

Agents send them: what happened in the meantime, what must not be forgotten. A third of templates silently drop such a
message, refuse it, or move it to the front, which invalidates the engine's cache. For these templates its text is
appended to the message before it, which arrived together with it, so nothing that was already processed changes.
"""

from collections.abc import Sequence
from itertools import dropwhile, takewhile

from gateway.context.memory.defined_tools import FOUND_TOOLS, found_in
from gateway.engine.interface import Message
from gateway.engine.rendering.template import ChatTemplate


async def in_their_places(messages: Sequence[Message], template: ChatTemplate) -> Sequence[Message]:
    """The messages in a form in which the template shows each of them at its place."""
    later = dropwhile(_is_system, messages)
    if not any(map(_is_system, later)) or await template.shows_late_system():
        return messages
    return merged(messages)


def merged(messages: Sequence[Message]) -> list[Message]:
    """The messages, each late system message merged into the one before it; after an answer it becomes the user's."""
    kept = list(takewhile(_is_system, messages))
    # What to append to the last message kept, joined only once.
    behind: list[Message] = []
    for message in messages[len(kept) :]:
        if _is_system(message) and kept[-1]["role"] != "assistant":
            behind.append(message)
            continue
        _end(kept, behind)
        kept.append({**message, "role": "user"} if _is_system(message) else message)
    _end(kept, behind)
    return kept


def _end(kept: list[Message], behind: list[Message]) -> None:
    if behind:
        joined = [kept[-1], *behind]
        kept[-1] = {**kept[-1], "content": "\n\n".join(filter(None, [each["content"] for each in joined]))}
        if found := [name for each in joined for name in found_in(each)]:
            kept[-1] = {**kept[-1], FOUND_TOOLS: found}
        behind.clear()


def _is_system(message: Message) -> bool:
    return message["role"] == "system"
