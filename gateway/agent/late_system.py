"""System messages behind the beginning of a conversation, for templates that have no place for them there.

Agents send them: what happened meanwhile, what is not to be forgotten. A third of templates drops such a message
without a word, refuses it, or moves it to the front, which takes the engine's cache with it. For these its words stand
at the end of the message before it, which came with it, so that nothing that was processed changes.
"""

from collections.abc import Sequence
from itertools import dropwhile, takewhile

from gateway.engine.interface import Message
from gateway.engine.template import ChatTemplate


async def in_their_places(messages: Sequence[Message], template: ChatTemplate) -> Sequence[Message]:
    """The messages as the template shows all of them, each where it stands."""
    later = dropwhile(_is_system, messages)
    if not any(map(_is_system, later)) or await template.shows_late_system():
        return messages
    return merged(messages)


def merged(messages: Sequence[Message]) -> list[Message]:
    """The messages, each late system message within the one before it; behind an answer it is the user's."""
    kept = list(takewhile(_is_system, messages))
    # Words that stand at the end of the last one kept, joined once.
    behind: list[str] = []
    for message in messages[len(kept) :]:
        if _is_system(message) and kept[-1]["role"] != "assistant":
            behind.append(message["content"])
            continue
        _end(kept, behind)
        kept.append({"role": "user", "content": message["content"]} if _is_system(message) else message)
    _end(kept, behind)
    return kept


def _end(kept: list[Message], behind: list[str]) -> None:
    if behind:
        kept[-1] = {**kept[-1], "content": "\n\n".join([kept[-1]["content"], *behind])}
        behind.clear()


def _is_system(message: Message) -> bool:
    return message["role"] == "system"
