"""Calls in a history whose arguments no chat template can read: each gets an object that keeps their text.

A limit cuts a call within its arguments, a model writes a value that is no JSON, and clients send back what they were
sent. Templates parse arguments, or ask for an object's members, and would refuse the whole conversation. Pure.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from gateway.context.memory import RETOLD
from gateway.engine.interface import Message
from gateway.escape import cut_text
from gateway.toolcalls.stream.output_events import Diagnostic

STAND_IN: Final = "input"
"""The member of the object that holds the text."""
_DEEPEST: Final = 200
"""Most levels of nesting, about as many as a JSON body itself may have: later code is recursive."""
_NAMED: Final = 3
_SHOWN: Final = 64


def with_readable_calls(messages: Sequence[Message]) -> tuple[Sequence[Message], tuple[Diagnostic, ...]]:
    """The messages with readable arguments, and a diagnostic where some were not; the same messages where all were.

    Arguments that are JSON but no object stay as they are, for the memory to recognise: `engine/rendering/foreign.py`
    wraps them.
    """
    named: list[str] = []
    changed = [_message(message, named) for message in messages]
    if not named:
        return messages, ()
    names = ", ".join(cut_text(repr(name), _SHOWN) for name in dict.fromkeys(named[:_NAMED]))
    others = ", ..." if len(named) > _NAMED else ""
    words = (
        f"messages: the arguments of {len(named)} call(s) in the history ({names}{others}) are not JSON; "
        f'the model reads them as {{"{STAND_IN}": "<their text>"}}'
    )
    return changed, (Diagnostic("history", words),)


def _message(message: Message, named: list[str]) -> Message:
    told: Sequence[Message] = message.get(RETOLD) or ()
    calls: Sequence[Mapping[str, Any]] = message.get("tool_calls") or ()
    if not calls and not told:
        return message
    changed = dict(message)
    if calls:
        changed["tool_calls"] = [_call(call, named) for call in calls]
    if told:
        # They tell of the same calls again.
        changed[RETOLD] = [_message(each, []) for each in told]
    return changed


def _call(call: Mapping[str, Any], named: list[str]) -> Mapping[str, Any]:
    function: Mapping[str, Any] = call["function"]
    arguments = str(function.get("arguments") or "{}")
    if _is_readable(arguments):
        return call
    named.append(str(function["name"]))
    return {**call, "function": {**function, "arguments": json.dumps({STAND_IN: arguments}, ensure_ascii=False)}}


def _is_readable(arguments: str) -> bool:
    try:
        # Python refuses to read integers of more than 4,300 digits; nobody needs their values here.
        value: object = json.loads(arguments, parse_constant=_no_number, parse_int=str)
    except (ValueError, RecursionError):
        return False
    return not _is_deep(value)


def _no_number(name: str) -> None:
    raise ValueError(f"{name:.40} is not a JSON number")


def _is_deep(value: object) -> bool:
    """Whether it is nested so deeply that later recursive code could fail on it."""
    level: list[object] = [value]
    for _ in range(_DEEPEST + 1):
        below: list[object] = []
        for each in level:
            if isinstance(each, dict):
                below += cast("dict[str, object]", each).values()
            elif isinstance(each, list):
                below += cast("list[object]", each)
        level = below
        if not level:
            return False
    return True
