"""A request's messages as a memory compares them: by what they mean, since no client sends back the same bytes.

Turns messages into a chain of digests, one after each answer of the model, and says whether an answer that a client
sends back is one that it was given. The digests cover roles, texts and names of calls; ids, arguments and reasoning are
compared afterwards, because clients rewrite them: they reorder keys, write `20.0` as `20`, fill in defaults, drop the
model's reasoning. Where a request continues no remembered conversation, it is compared with the most similar of the
last ones, at every place, since a changed system message leaves no equal beginning. It knows neither token ids nor
templates. No IO.
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Any, Final, TypeVar, cast

from gateway.engine.interface import Message, shared_prefix
from gateway.observe.prompt_losses import LossReason

T = TypeVar("T")
RETOLD: Final = "retold"
"""Key of an answer with which the client also sends back calls that the gateway ran: the messages it was made from."""
_DIGEST: Final = 16
"""Bytes: enough that two different histories never have the same digest."""
_AROUND: Final = 40
"""Characters that are shown on each side of a difference."""
_MESSAGE_BYTES: Final = 300
_NEAR: Final = 16
"""How many of a principal's latest conversations a request is compared with: each costs work."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call as it is sent to a client, or as a client sends it back."""

    id: str
    name: str
    arguments: str
    """JSON text."""


@dataclass(frozen=True, slots=True)
class Shown:
    """An answer of the model as its client saw it."""

    content: str
    reasoning: str = ""
    calls: tuple[Call, ...] = ()

    @property
    def message(self) -> Message:
        """The answer as a message."""
        calls = [{"id": c.id, "function": {"name": c.name, "arguments": c.arguments}} for c in self.calls]
        return {"role": "assistant", "content": self.content, "tool_calls": calls}

    def is_echoed_by(self, other: "Shown", schemas: Mapping[str, Mapping[str, Any]]) -> bool:
        """Whether `other`, which has the same text and names of calls, is this answer sent back.

        A call with the id that it was given may have defaults of its tool's schema added; any other call must have
        equal arguments. Reasoning may be left out, but not changed.
        """
        if other.reasoning.strip() not in ("", self.reasoning.strip()) or len(other.calls) != len(self.calls):
            return False
        return all(
            ours.arguments == theirs.arguments or _is_same_call(ours, theirs, schemas.get(ours.name, {}))
            for ours, theirs in zip(self.calls, other.calls, strict=True)
        )


class History:
    """The messages of one request, results in the order of their calls, with a digest after each answer in them."""

    def __init__(self, root: bytes, messages: Sequence[Message]) -> None:
        """`root`: a digest of everything else that must be equal: principal, map, template, tools."""
        self.messages = ordered_results(messages, lambda message: message)
        self.root = root
        self._state = blake2b(root, digest_size=_DIGEST)
        self.answers: list[tuple[int, bytes]] = []
        """Place of each answer of the model, and the digest of everything up to and including it."""
        self.shown: dict[int, Shown] = {}
        """The answers by their places."""
        positions: dict[str, int] = {}
        for place, message in enumerate(self.messages):
            role, text = message["role"], str(message.get("content") or "")
            if role == "assistant":
                shown = self.shown[place] = shown_of(message)
                positions = {call.id: number for number, call in enumerate(shown.calls)}
                _add_answer(self._state, shown)
                self.answers.append((place, self._state.digest()))
            elif role == "tool":
                _add(self._state, f"t{positions.get(str(message.get('tool_call_id')), -1)}", text)
            else:
                _add(self._state, role, text, str(message.get("name") or ""))

    def strangers(self, start: int, stop: int) -> bytes:
        """A digest of the reasoning and calls of answers in a part of it that are not remembered; b"" without any."""
        found = [self.shown[place] for place in range(start, stop) if place in self.shown]
        if not found:
            return b""
        state = blake2b(digest_size=_DIGEST)
        for shown in found:
            _add(state, "stranger", shown.reasoning, *(text for c in shown.calls for text in (c.id, c.arguments)))
        return state.digest()

    def with_answer(self, shown: Shown) -> bytes:
        """The digest of this history and an answer to it."""
        state = self._state.copy()
        _add_answer(state, shown)
        return state.digest()


def _add_answer(state: "blake2b", shown: Shown) -> None:
    _add(state, "assistant", shown.content.strip(), *(call.name for call in shown.calls))


def _add(state: "blake2b", kind: str, *texts: str) -> None:
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    # Lengths first, so that no text can shift into the next one.
    state.update(f"{kind}{[len(text) for text in encoded]}".encode())
    for text in encoded:
        state.update(text)


def root_digest(key: bytes, *parts: str) -> bytes:
    """A digest of what two histories must have in common, under a secret key."""
    state = blake2b(key=key, digest_size=_DIGEST)
    _add(state, "root", *parts)
    return state.digest()


def retold(message: Message) -> Sequence[Message]:
    """The messages that stand for one that is not remembered: itself, or all that its client sent for it (`RETOLD`)."""
    return message.get(RETOLD) or (message,)


def shown_of(message: Message) -> Shown:
    """An answer of the model as a client sends it back."""
    calls: Sequence[Mapping[str, Any]] = message.get("tool_calls") or ()
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    content = str(message.get("content") or "")
    functions = ((str(call.get("id") or ""), call["function"]) for call in calls)
    shown = tuple([Call(known, str(each["name"]), str(each.get("arguments") or "{}")) for known, each in functions])
    return Shown(content, reasoning if isinstance(reasoning, str) else "", shown)


def ordered_results(turns: Sequence[T], message_of: Callable[[T], Message]) -> list[T]:
    """The messages, with the results of each turn's calls in the order of the calls."""
    ordered: list[T] = []
    results: list[T] = []
    calls: Sequence[Mapping[str, Any]] = ()
    for turn in turns:
        message = message_of(turn)
        if message["role"] == "tool":
            results.append(turn)
            continue
        ordered += _by_call(results, calls, message_of) if len(results) > 1 else results
        ordered.append(turn)
        results, calls = [], message.get("tool_calls") or ()
    return ordered + (_by_call(results, calls, message_of) if len(results) > 1 else results)


def _by_call(results: list[T], calls: Sequence[Mapping[str, Any]], message_of: Callable[[T], Message]) -> list[T]:
    place = {str(call.get("id")): number for number, call in enumerate(calls)}
    return sorted(results, key=lambda result: place.get(str(message_of(result).get("tool_call_id")), len(place)))


def _is_same_call(ours: Call, theirs: Call, schema: Mapping[str, Any]) -> bool:
    """Whether two texts of arguments mean the same call."""
    mine, other = _value(ours.arguments), _value(theirs.arguments)
    if ours.id and ours.id == theirs.id:
        return _is_completed(mine, other, schema)
    return _is_equal(mine, other)


def _value(arguments: str) -> object:
    try:
        return json.loads(arguments.strip() or "{}")
    except (ValueError, RecursionError):
        return arguments


def _is_completed(mine: object, other: object, schema: Mapping[str, Any]) -> bool:
    """Whether `other` is `mine`, with at most defaults of the schema added."""
    if not isinstance(mine, dict) or not isinstance(other, dict):
        return _is_equal(cast("object", mine), other)
    ours, theirs = cast("dict[str, object]", mine), cast("dict[str, object]", other)
    properties = _mapping(schema.get("properties"))
    for key, value in theirs.items():
        known = _mapping(properties.get(key))
        if key in ours:
            if not _is_completed(ours[key], value, known):
                return False
        elif "default" not in known or not _is_equal(known["default"], value):
            return False
    return ours.keys() <= theirs.keys()


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _is_equal(mine: object, other: object) -> bool:
    """Whether two JSON values are equal: `1` equals `1.0`, but not `true`."""
    if isinstance(mine, bool) or isinstance(other, bool):
        return mine is other
    if isinstance(mine, dict) and isinstance(other, dict):
        ours, theirs = cast("dict[str, object]", mine), cast("dict[str, object]", other)
        return ours.keys() == theirs.keys() and _all_equal((value, theirs[key]) for key, value in ours.items())
    if isinstance(mine, list) and isinstance(other, list):
        mine, other = cast("list[object]", mine), cast("list[object]", other)
        return len(mine) == len(other) and _all_equal(zip(mine, other, strict=True))
    return mine == other


def _all_equal(pairs: Iterable[tuple[object, object]]) -> bool:
    return all(_is_equal(mine, other) for mine, other in pairs)


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
        old = self._last.pop(number, None)
        self._size -= 0 if old is None else old.size
        size = sum(_MESSAGE_BYTES + len(str(message.get("content") or "")) for message in messages)
        if size > self._most:
            return
        self._last[number] = _Conversation(owner, root, messages, held, size)
        self._size += size
        while self._size > self._most:
            self._size -= self._last.popitem(last=False)[1].size

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
