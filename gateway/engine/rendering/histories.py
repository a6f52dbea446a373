"""A conversation in the forms that stricter templates accept, the client's own first.

Some templates want ids of nine letters or digits, some only one call per turn, and some know no calls or results at
all. Refusing what such a model itself did one request ago would end the conversation. No IO.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gateway.engine.interface import Message

Numbered = tuple[int | None, Message]
"""A message, and its number in the original conversation; None if it was split or joined."""


def histories(messages: Sequence[Message]) -> Iterator[list[Numbered]]:
    """Yield the conversation as it is, then in ever simpler forms. Without calls and results there is only one form."""
    yield list(enumerate(messages))
    if not any(message["role"] == "tool" or message.get("tool_calls") for message in messages):
        return
    short = [(number, _with_short_ids(message)) for number, message in enumerate(messages)]
    yield list(short)
    single = _one_call_a_turn(short)
    if len(single) != len(short):
        yield list(single)
    yield _results_as_questions(single)


def _with_short_ids(message: Message) -> Message:
    calls: Sequence[Mapping[str, Any]] = message.get("tool_calls") or ()
    changed = dict(message)
    if calls:
        changed["tool_calls"] = [{**call, "id": _short(str(call.get("id")))} for call in calls]
    if "tool_call_id" in message:
        changed["tool_call_id"] = _short(str(message["tool_call_id"]))
    return changed


def _short(call_id: str) -> str:
    if len(call_id) == 9 and call_id.isascii() and call_id.isalnum():
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:9]


def _one_call_a_turn(messages: Sequence[Numbered]) -> list[Numbered]:
    """The conversation with each call in a turn of its own, followed by its result if there is one."""
    shown: list[Numbered] = []
    results = {str(m.get("tool_call_id")): (number, m) for number, m in messages if m["role"] == "tool"}
    moved: set[str] = set()
    for place, message in messages:
        calls: Sequence[Mapping[str, Any]] = message.get("tool_calls") or ()
        if message["role"] == "tool" and str(message.get("tool_call_id")) in moved:
            continue
        if len(calls) < 2:
            shown.append((place, message))
            continue
        for number, call in enumerate(calls):
            shown.append((None, {**message, "tool_calls": [call], **({"content": ""} if number else {})}))
            if (result := results.get(str(call["id"]))) is not None:
                shown.append(result)
                moved.add(str(call["id"]))
    return shown


def _results_as_questions(messages: Sequence[Numbered]) -> list[Numbered]:
    """The conversation with results as turns of the user, consecutive ones joined, and without calls."""
    shown: list[Numbered] = []
    for number, message in messages:
        role = "user" if message["role"] == "tool" else message["role"]
        plain = {key: value for key, value in message.items() if key not in ("tool_calls", "tool_call_id", "name")}
        if role == "user" and shown and shown[-1][1]["role"] == "user":
            before = shown[-1][1]
            shown[-1] = (None, {**before, "content": f"{before['content']}\n\n{message['content']}"})
        else:
            shown.append((number, {**plain, "role": role, "content": plain.get("content") or ""}))
    return shown
