"""Messages as a client sends them, made ready for the engine's template.

Checks OpenAI's message shapes, flattens text parts, and, for templates without support for tools, moves the tool
definitions into a system preamble and writes earlier calls as the text that the model would have written. It renders
nothing.
"""

import json
import re
from collections.abc import Mapping, Sequence
from math import isinf
from typing import Any, cast

from gateway.agent.memory import RETOLD as RETOLD
from gateway.agent.memory import retold
from gateway.engine.interface import Message
from gateway.errors import RequestInvalid
from gateway.observe.escape import cut_text
from gateway.toolcalls import Format, ToolSpec, call_text, system_preamble

_CHARACTERS_PER_ID = 64
_SHOWN = 100
_DEEPEST = 200
"""Most levels of nesting in the arguments of a call, about as many as a JSON body itself may have."""

MOST_MESSAGES = 10_000
"""Most messages of a conversation, counting the calls in them: each costs work, however short it is."""

ROLES = ("system", "developer", "user", "assistant", "tool")


def checked_messages(messages: object) -> list[dict[str, Any]]:
    """OpenAI's `messages` with every `content` a string. Raises `RequestInvalid`, which names the place."""
    if not isinstance(messages, list) or not messages:
        raise RequestInvalid("'messages' must be a list of at least one message", param="messages")
    given = cast("list[object]", messages)
    if len(given) + sum(map(_count_calls, given)) > MOST_MESSAGES:
        raise RequestInvalid(f"'messages' holds more than {MOST_MESSAGES} messages and calls in all", param="messages")
    return [checked_message(message, f"messages[{n}]") for n, message in enumerate(given)]


def tool_definitions(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """Tools in the shape that chat templates expect (OpenAI's)."""
    return [
        {
            "type": "function",
            "function": {"name": t.name, "description": t.description, "parameters": dict(t.parameters)},
        }
        for t in tools
    ]


def with_preamble(messages: Sequence[Message], fmt: Format, tools: Sequence[ToolSpec]) -> list[Message]:
    """The conversation for a template without support for tools: definitions and earlier calls become text."""
    plain = [_call_as_text(message, fmt) for message in messages]
    if not tools:
        return plain
    preamble = system_preamble(fmt, tools)
    if plain and plain[0]["role"] == "system":
        return [{**plain[0], "content": f"{plain[0]['content']}\n\n{preamble}"}, *plain[1:]]
    return [{"role": "system", "content": preamble}, *plain]


def checked_message(message: object, where: str) -> dict[str, Any]:
    """One message with its content a string. Raises `RequestInvalid`, which names the place, starting with `where`."""
    if not isinstance(message, Mapping):
        raise RequestInvalid(f"{where} must be an object with 'role' and 'content'", param=where)
    fields = dict(cast("Mapping[str, Any]", message))
    # Clients may not set this key; only the code that assembles a message from a client's pieces does.
    fields.pop(RETOLD, None)
    role = fields.get("role")
    if role not in ROLES:
        raise RequestInvalid(
            f"{where}.role is {_shown(role)}; expected one of {', '.join(ROLES)}", param=f"{where}.role"
        )
    fields["role"] = "system" if role == "developer" else role
    fields["content"] = _text(fields.get("content"), f"{where}.content")
    for key in ("tool_call_id", "name"):
        if not isinstance(fields.get(key, ""), str | None):
            raise RequestInvalid(f"{where}.{key} must be a string", param=f"{where}.{key}")
    if role == "user" and not fields["content"]:
        raise RequestInvalid(f"{where}.content is empty", param=f"{where}.content")
    calls: object = fields.get("tool_calls") or []
    if not isinstance(calls, list):
        raise RequestInvalid(f"{where}.tool_calls must be a list", param=f"{where}.tool_calls")
    for call in cast("list[object]", calls):
        _check_call(call, f"{where}.tool_calls")
    return fields


def _count_calls(message: object) -> int:
    calls: object = cast("Mapping[str, Any]", message).get("tool_calls") if isinstance(message, Mapping) else None
    return len(cast("list[object]", calls)) if isinstance(calls, list) else 0


def _text(content: object, where: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise RequestInvalid(f"{where} must be a string or a list of text parts", param=where)
    parts = cast("list[object]", content)
    texts: list[str] = []
    for part in parts:
        kind = cast("Mapping[str, Any]", part).get("type") if isinstance(part, Mapping) else None
        if kind != "text":
            words = f"{where} holds a part of type {_shown(kind)}; this model reads text only"
            raise RequestInvalid(words, param=where)
        text: object = cast("Mapping[str, Any]", part).get("text")
        if not isinstance(text, str):
            raise RequestInvalid(f"{where} holds a text part whose 'text' is not a string", param=where)
        texts.append(text)
    # Joined as llama.cpp does.
    return "\n".join(texts)


def _shown(value: object) -> str:
    return cut_text(repr(value), _SHOWN)


def _check_call(call: object, where: str) -> None:
    function: object = cast("Mapping[str, Any]", call).get("function") if isinstance(call, Mapping) else None
    fields: Mapping[str, Any] = cast("Mapping[str, Any]", function) if isinstance(function, Mapping) else {}
    if not isinstance(fields.get("name"), str) or not isinstance(fields.get("arguments", ""), str):
        raise RequestInvalid(
            f"{where} must hold objects with 'function': {{'name': string, 'arguments': JSON text}}", param=where
        )
    call_id: object = cast("Mapping[str, Any]", call).get("id")
    if call_id is not None and not isinstance(call_id, str):
        raise RequestInvalid(f"{where}.id must be a string", param=where)
    try:
        value: object = json.loads(fields.get("arguments") or "{}", parse_constant=_no_number, parse_float=_number)
    except (ValueError, RecursionError) as error:
        raise RequestInvalid(f"{where}.function.arguments is not JSON text: {error}", param=where) from error
    if _is_deep(value):
        raise RequestInvalid(f"{where}.function.arguments is nested deeper than {_DEEPEST} levels", param=where)


def _no_number(name: str) -> None:
    raise ValueError(f"{name:.40} is not a JSON number")


def _number(written: str) -> float:
    value = float(written)
    if isinf(value):
        _no_number(written)
    return value


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


def _call_as_text(message: Message, fmt: Format) -> Message:
    calls: Sequence[Mapping[str, Any]] = message.get("tool_calls") or ()
    if not calls:
        return message
    texts = [call_text(fmt, c["function"]["name"], c["function"].get("arguments") or "{}") for c in calls]
    content = "\n".join(filter(None, [message["content"], *texts]))
    return {"role": message["role"], "content": content}


def check_size(messages: Sequence[Message], context: int) -> None:
    """Refuse messages that can't fit before they are tokenized: no tokenizer packs so many characters into an id."""
    told = (each for message in messages for each in retold(message))
    check_length(sum(len(str(each.get("content") or "")) for each in told), context, "messages")


def check_length(characters: int, context: int, param: str) -> None:
    """Refuse a text that can't fit, as `check_size` does."""
    if characters > context * _CHARACTERS_PER_ID:
        raise RequestInvalid(
            f"{param}: {characters} characters are too many; the engine's context holds {context} tokens", param=param
        )


def begun_text(messages: Sequence[Message]) -> str:
    """Return the text of the last message, which the model is to continue. Raises `RequestInvalid` where it can't."""
    last = messages[-1]
    if len(messages) < 2 or last["role"] != "assistant" or last.get("tool_calls") or not last["content"]:
        raise RequestInvalid(
            "continue_final_message: the last of several messages must be the assistant's, with text and without calls",
            param="continue_final_message",
        )
    return last["content"]


def without_volatile(messages: Sequence[Message], volatile: re.Pattern[str] | None) -> Sequence[Message]:
    """Cut what changes from session to session out of system messages; drop those that then hold nothing else."""
    if volatile is None:
        return messages
    kept: list[Message] = []
    for message in messages:
        content = volatile.sub("", message["content"]) if message["role"] == "system" else message["content"]
        if content == message["content"]:
            kept.append(message)
        elif content.strip():
            kept.append({**message, "content": content})
    return kept
