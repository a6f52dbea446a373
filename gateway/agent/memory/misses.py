"""Why a request did not go on from a conversation: what its client changed, found beside the nearest one.

Keeps the messages of the last conversations of each principal, as their clients sent them, within a bound of its own.
It compares what is the same place by place, since a changed system text leaves nothing equal before it. No IO.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from gateway.agent.memory.history import shown_of
from gateway.engine.interface import Message
from gateway.engine.left_behind import shared_prefix
from gateway.observe.labels import LossReason

_AROUND: Final = 40
"""Characters that are shown on each side of a difference."""
_MESSAGE_BYTES: Final = 300
_NEAR: Final = 16
"""Conversations of one principal that a request is compared with, the latest: each costs work."""


@dataclass(frozen=True, slots=True)
class Miss:
    """Why nothing was recalled."""

    reason: LossReason
    held: int = 0
    """Ids of the conversation that it could have gone on from."""
    message: int | None = None
    """Number of the first message that differs."""
    at: int | None = None
    """Characters of it that are equal."""
    was: str = ""
    """What stood there, and what stands there now: a few words on each side."""
    now: str = ""
    results_lost: bool = False
    """Whether results of calls that the gateway ran could not be brought back."""


@dataclass(frozen=True, slots=True)
class _Conversation:
    owner: str
    tools: bytes
    messages: Sequence[Message]
    held: int
    size: int


class Misses:
    """The last conversations of one gateway, to be compared with what does not go on from any."""

    def __init__(self, most: int) -> None:
        """`most`: bytes in all."""
        self._most = most
        self._size = 0
        self._last: OrderedDict[int, _Conversation] = OrderedDict()

    def note(self, number: int, owner: str, tools: bytes, messages: Sequence[Message], held: int) -> None:
        """A conversation has an answer more. `number`: which one it is; `tools`: a digest of all but its messages."""
        self._forget(number)
        size = sum(_MESSAGE_BYTES + len(str(message.get("content") or "")) for message in messages)
        if size > self._most:
            return
        self._last[number] = _Conversation(owner, tools, messages, held, size)
        self._size += size
        while self._size > self._most:
            self._forget(next(iter(self._last)))

    def explain(self, owner: str, tools: bytes, messages: Sequence[Message]) -> Miss:
        """Say what a request that nothing was recalled for has changed."""
        near = list(islice((each for each in reversed(self._last.values()) if each.owner == owner), _NEAR))
        best = max(near, key=lambda each: _equal(each.messages, messages), default=None)
        if best is None or not _equal(best.messages, messages):
            return Miss("not_seen_before")
        pairs = zip(best.messages, messages, strict=False)
        place = next((n for n, (was, now) in enumerate(pairs) if not _is_same(was, now)), None)
        if place is None:
            return Miss("tools_changed" if best.tools != tools else "not_seen_before", best.held)
        was, now = _text(best.messages[place]), _text(messages[place])
        at = shared_prefix(was, now)
        return Miss("client_changed", best.held, place, at, _around(was, at), _around(now, at))

    def _forget(self, number: int) -> None:
        if (old := self._last.pop(number, None)) is not None:
            self._size -= old.size


def _equal(was: Sequence[Message], now: Sequence[Message]) -> int:
    """How many messages are the same; without an answer of the model that is at least alike, nothing is."""
    pairs = list(zip(was, now, strict=False))
    return sum(_is_same(*pair) for pair in pairs) if any(_is_same_answer(*pair) for pair in pairs) else 0


def _is_same_answer(was: Message, now: Message) -> bool:
    if was["role"] != "assistant" or now["role"] != "assistant":
        return False
    mine, theirs = shown_of(was), shown_of(now)
    names = [call.name for call in mine.calls] == [call.name for call in theirs.calls]
    return names and mine.content.strip() == theirs.content.strip()


def _is_same(was: Message, now: Message) -> bool:
    return was["role"] == now["role"] and _text(was) == _text(now)


def _text(message: Message) -> str:
    content = str(message.get("content") or "")
    if message["role"] != "assistant":
        return content
    shown = shown_of(message)
    return "\n".join((content.strip(), *(f"{call.name} {call.arguments}" for call in shown.calls)))


def _around(text: str, at: int) -> str:
    return text[max(at - _AROUND, 0) : at + _AROUND]
