"""Why a request continued no remembered conversation: what its client changed, compared with the most similar one.

Keeps the messages of the last conversations of each principal, as their clients sent them, within a bound of its own.
It counts equal messages at every place, since a changed system message leaves no equal beginning. No IO.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from gateway.context.memory.history import shown_of
from gateway.engine.interface import Message, shared_prefix
from gateway.observe.exposition import LossReason

_AROUND: Final = 40
"""Characters that are shown on each side of a difference."""
_MESSAGE_BYTES: Final = 300
_NEAR: Final = 16
"""How many of a principal's latest conversations a request is compared with: each costs work."""


@dataclass(frozen=True, slots=True)
class Miss:
    """Why nothing was recalled."""

    reason: LossReason
    held: int = 0
    """Ids that the engine held for the conversation that it could have continued."""
    message: int | None = None
    """Index of the first message that differs."""
    at: int | None = None
    """How many characters at its beginning are equal."""
    was: str = ""
    """The text around the difference before, and now."""
    now: str = ""
    results_lost: bool = False
    """Whether results of calls that the gateway ran could not be brought back."""


@dataclass(frozen=True, slots=True)
class _Conversation:
    owner: str
    root: bytes
    messages: Sequence[Message]
    held: int
    size: int


class Misses:
    """The last conversations of one gateway, for comparison with requests that continue none."""

    def __init__(self, most: int) -> None:
        """`most`: bytes in all."""
        self._most = most
        self._size = 0
        self._last: OrderedDict[int, _Conversation] = OrderedDict()

    def note(self, number: int, owner: str, root: bytes, messages: Sequence[Message], held: int) -> None:
        """Keep a conversation that has a new answer. `root`: its `root_digest`, of everything except its messages."""
        self._forget(number)
        size = sum(_MESSAGE_BYTES + len(str(message.get("content") or "")) for message in messages)
        if size > self._most:
            return
        self._last[number] = _Conversation(owner, root, messages, held, size)
        self._size += size
        while self._size > self._most:
            self._forget(next(iter(self._last)))

    def explain(self, owner: str, root: bytes, messages: Sequence[Message]) -> Miss:
        """Say what has changed in a request for which nothing was recalled."""
        near = islice((each for each in reversed(self._last.values()) if each.owner == owner), _NEAR)
        likened = [(_likeness(each.messages, messages), each) for each in near]
        (_, answered), best = max(likened, key=lambda pair: pair[0], default=((0, False), None))
        # Without an equal answer they may only have begun alike.
        if best is None or not answered:
            return Miss("not_seen_before")
        if not _has_system(best.messages) and _has_system(messages):
            return Miss("client_changed", best.held, 0, 0, "", _around(_text(messages[0]), 0))
        pairs = zip(best.messages, messages, strict=False)
        place = next((n for n, (was, now) in enumerate(pairs) if not _is_same(was, now)), None)
        if place is None:
            return Miss("options_changed" if best.root != root else "not_seen_before", best.held)
        was, now = _text(best.messages[place]), _text(messages[place])
        at = shared_prefix(was, now)
        return Miss("client_changed", best.held, place, at, _around(was, at), _around(now, at))

    def last_user_text(self, number: int) -> str | None:
        """The text of the last user message of a conversation; None where its messages are no longer kept."""
        kept = self._last.get(number)
        users = () if kept is None else (each for each in reversed(kept.messages) if each["role"] == "user")
        return next((_text(each) for each in users), None)

    def _forget(self, number: int) -> None:
        if (old := self._last.pop(number, None)) is not None:
            self._size -= old.size


def _likeness(was: Sequence[Message], now: Sequence[Message]) -> tuple[int, bool]:
    """How many messages are the same at their places, and whether one is an answer of the model, with the same text and
    call names. A system message that only one of them has moves no place."""
    pairs = list(zip(was[_has_system(was) :], now[_has_system(now) :], strict=False))
    same_system = _has_system(was) and _has_system(now) and _is_same(was[0], now[0])
    return same_system + sum(_is_same(*pair) for pair in pairs), any(_is_same_answer(*pair) for pair in pairs)


def _has_system(messages: Sequence[Message]) -> bool:
    return bool(messages) and messages[0]["role"] == "system"


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
