"""Messages as a client sends them, checked: OpenAI's shapes, with every content one text and all arguments texts.

What the gateway or another server has sent once is taken back, whatever it is: arguments that are no JSON text (a call
that a limit cut), arguments as an object (Ollama's shape), results that are JSON values. `call_arguments.py` makes
such arguments readable for templates. What a client itself says (a user's or system message) must be text.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from gateway.context.history.contents import LeftOut, found_tools, text_of_content
from gateway.context.memory import FOUND_TOOLS, SUMMARY
from gateway.context.memory import RETOLD as RETOLD
from gateway.errors import RequestInvalid
from gateway.escape import cut_text

_SHOWN: Final = 100

MOST_MESSAGES: Final = 10_000
"""Most messages of a conversation, counting the calls in them: each costs work, however short it is."""

_READ: Final = frozenset(
    ("role", "content", "name", "tool_call_id", "tool_calls", "reasoning_content", "reasoning", "cache_control")
)
"""Fields of messages that are read; a mark of what is to be cached asks for what happens anyway."""
_OURS: Final = frozenset((RETOLD, FOUND_TOOLS, SUMMARY))
ROLES: Final = ("system", "developer", "user", "assistant", "tool")
_OLD_ID: Final = "function_call_{}"
"""The id of a call in the old form, which has none: the number of its message tells it from others."""


def checked_messages(messages: object, left_out: LeftOut | None = None) -> list[dict[str, Any]]:
    """OpenAI's `messages` with every `content` a string. Raises `RequestInvalid`, which names the place.

    `left_out`: takes the types of parts, and the fields, that the model does not read.
    """
    if not isinstance(messages, list) or not messages:
        raise RequestInvalid("'messages' must be a list of at least one message", param="messages")
    given = [*in_todays_form(cast("list[object]", messages))]
    if len(given) + sum(map(count_calls, given)) > MOST_MESSAGES:
        raise RequestInvalid(f"'messages' holds more than {MOST_MESSAGES} messages and calls in all", param="messages")
    return [checked_message(message, f"messages[{n}]", left_out) for n, message in enumerate(given)]


def in_todays_form(messages: Sequence[object]) -> Iterator[object]:
    """Yield messages; of those, OpenAI's old form (`function_call`, and the result by `function`) becomes today's."""
    last: str | None = None
    for number, message in enumerate(messages):
        fields: Mapping[str, Any] = cast("Mapping[str, Any]", message) if isinstance(message, Mapping) else {}
        role, called = fields.get("role"), fields.get("function_call")
        if role == "function":
            yield {**fields, "role": "tool", "tool_call_id": last}
        elif role == "assistant" and called is not None:
            told = {key: value for key, value in fields.items() if key != "function_call"}
            last = _OLD_ID.format(number)
            yield told if told.get("tool_calls") else {**told, "tool_calls": [{"id": last, "function": called}]}
        else:
            yield message


def free_form_arguments(text: str) -> str:
    """The arguments with which the model calls a free-form tool, for its input."""
    return json.dumps({"input": text}, ensure_ascii=False)


def checked_message(message: object, where: str, left_out: LeftOut | None = None) -> dict[str, Any]:
    """One message with its content a string. Raises `RequestInvalid`, which names the place, starting with `where`."""
    if not isinstance(message, Mapping):
        raise RequestInvalid(f"{where} must be an object with 'role' and 'content'", param=where)
    fields = dict(cast("Mapping[str, Any]", message))
    # Clients may not set these keys; only the code that assembles a message from a client's pieces does.
    for key in _OURS & fields.keys():
        del fields[key]
    role = fields.get("role")
    if role not in ROLES:
        raise RequestInvalid(
            f"{where}.role is {_shown(role)}; expected one of {', '.join(ROLES)}", param=f"{where}.role"
        )
    left_out = left_out or LeftOut()
    left_out.add_fields(role, fields, _READ)
    fields["role"] = "system" if role == "developer" else role
    content = fields.get("content")
    if not isinstance(content, str) and (found := found_tools(content)):
        fields[FOUND_TOOLS] = found
    fields["content"] = text_of_content(role, content, f"{where}.content", left_out)
    for key in ("tool_call_id", "name"):
        if isinstance(value := fields.get(key), int):
            # Some clients number their calls.
            fields[key] = str(value)
        elif not isinstance(value, str | None):
            raise RequestInvalid(f"{where}.{key} must be a string", param=f"{where}.{key}")
    calls: object = fields.get("tool_calls") or []
    if not isinstance(calls, list):
        raise RequestInvalid(f"{where}.tool_calls must be a list", param=f"{where}.tool_calls")
    if calls:
        fields["tool_calls"] = [checked_call(call, f"{where}.tool_calls") for call in cast("list[object]", calls)]
    return fields


def arguments_text(arguments: object) -> str:
    """The arguments of a call as a client sends them back, as text: `{}` where there are none."""
    if isinstance(arguments, str):
        return arguments if arguments.strip() else "{}"
    return "{}" if arguments is None else json.dumps(arguments, ensure_ascii=False)


def count_calls(message: object) -> int:
    """How many calls a message in the shape of chats holds."""
    calls: object = cast("Mapping[str, Any]", message).get("tool_calls") if isinstance(message, Mapping) else None
    return len(cast("list[object]", calls)) if isinstance(calls, list) else 0


def checked_call(call: object, where: str) -> dict[str, Any]:
    """A call of a function or of a free-form tool; some clients write what it holds beside its id. Raises."""
    fields: Mapping[str, Any] = cast("Mapping[str, Any]", call) if isinstance(call, Mapping) else {}
    inside: object = fields.get("function") or fields.get("custom") or fields
    function: Mapping[str, Any] = cast("Mapping[str, Any]", inside) if isinstance(inside, Mapping) else {}
    name, free_form = function.get("name"), function.get("input")
    if not isinstance(name, str):
        raise RequestInvalid(
            f"{where} must hold objects with 'function': {{'name': string, 'arguments': JSON text}}", param=where
        )
    call_id: object = fields.get("id")
    if not isinstance(call_id, str | int | None):
        raise RequestInvalid(f"{where}.id must be a string", param=where)
    arguments = function.get("arguments")
    if arguments is None and isinstance(free_form, str):
        arguments = free_form_arguments(free_form)
    named = {} if call_id is None else {"id": str(call_id)}
    return {**named, "type": "function", "function": {"name": name, "arguments": arguments_text(arguments)}}


def _shown(value: object) -> str:
    return cut_text(repr(value), _SHOWN)
