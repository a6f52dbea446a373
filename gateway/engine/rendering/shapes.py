"""Which shapes of conversation a template only appends to: found out by one rendering, then remembered.

Rendering a long conversation takes up to a second, but most templates only append to it, without changing what is
there. Whether one does depends on the roles, on what is empty and on which turns make calls: the shape. A repetition
counts at most twice, so that a long conversation soon has the same shape as a shorter one. It renders nothing itself.
"""

from collections import OrderedDict
from collections.abc import Container, Mapping, Sequence
from typing import Any, Final

from gateway.engine.interface import Message

Shape = tuple[str, ...]

_KEPT: Final = 1024
_LONGEST: Final = 6
"""Most messages of a repeated part: a question, two calls with their results, and an answer."""


class Shapes:
    """What is known about one template."""

    def __init__(self) -> None:
        self._known: OrderedDict[Shape, bool] = OrderedDict()

    def appends(self, shape: Shape) -> bool | None:
        """Whether new messages are only appended; None if that is not known yet."""
        return self._known.get(shape)

    def note(self, shape: Shape, appends: bool) -> None:
        """Remember what a rendering has shown. Once a shape was found not to append, that stays."""
        self._known[shape] = appends and self._known.get(shape, True)
        self._known.move_to_end(shape)
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)


def shape_of(
    messages: Sequence[Message],
    new: int,
    *,
    tools: bool,
    inside: Container[int] = (),
    forms: Mapping[int, str] | None = None,
) -> Shape:
    """Return the shape of a conversation.

    Args:
        messages: all its messages.
        new: how many of them, at the end, are to be appended.
        tools: whether the prompt contains definitions of tools.
        inside: turns of the model that were continued within one answer, without a rendering in between.
        forms: how turns of the model were written, by their numbers.
    """
    written = forms or {}
    kinds = [
        f"{_kind(message)}{'+' * (number in inside)}{written.get(number, '')}"
        for number, message in enumerate(messages)
    ]
    split = len(kinds) - new
    return ("tools" if tools else "", *_without_repetition(kinds[:split]), "|", *_without_repetition(kinds[split:]))


def _kind(message: Message) -> str:
    role = str(message["role"])
    if role != "assistant":
        return role if message.get("content") else f"{role} empty"
    calls: Sequence[Mapping[str, Any]] = message.get("tool_calls") or ()
    content = str(message.get("content") or "").strip()
    reasoning = str(message.get("reasoning_content") or "").strip()
    return f"assistant {bool(content):d}{bool(reasoning):d}{min(len(calls), 2)}"


def _without_repetition(kinds: Sequence[str]) -> list[str]:
    """Return the same, with each part at most twice in a row."""
    kept: list[str] = []
    for kind in kinds:
        kept.append(kind)
        for size in range(1, _LONGEST + 1):
            part = kept[-size:]
            if len(kept) >= 3 * size and kept[-2 * size : -size] == part and kept[-3 * size : -2 * size] == part:
                del kept[-size:]
                break
    return kept
