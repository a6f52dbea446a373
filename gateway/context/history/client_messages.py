"""Messages as a client sends them, checked: OpenAI's shapes, with every content one text and all arguments texts.

What the gateway or another server has sent once is taken back, whatever it is: arguments that are no JSON text (a call
that a limit cut), arguments as an object (Ollama's shape), results that are JSON values. `template_messages.py` makes
such arguments readable for templates. What a client itself says (a user's or system message) must be text: a picture or
a file in a question is refused, since the question is about it. Nobody can take back what stands in a result or in an
answer: there, a part without text has a stand-in or is left out. Contents are read in every form that clients send. An
answer that comes back in pieces becomes one message; calls that the gateway ran are kept beside it (`RETOLD`), in case
the memory, which restores them with their original ids, has forgotten them. Pure.
"""

import json
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, cast

from gateway.context.memory import FOUND_TOOLS, SUMMARY
from gateway.context.memory import RETOLD as RETOLD
from gateway.errors import RequestInvalid
from gateway.escape import cut_text, escape_text
from gateway.proxy.results import KINDS, stand_in, text_of

_SHOWN: Final = 100
_NAMED: Final = 32
_OF_TEXTS: Final = frozenset({"type", "text", "cache_control"})
"""The fields of text parts that are read; marks of what is to be cached have no effect on a text."""
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
_Message = dict[str, Any]
Said = Literal["content", "reasoning_content"]


def unread_fields(fields: Mapping[str, Any], read: Container[str]) -> Iterator[str]:
    """Yield the names of the fields that are not read, but for those that ask for nothing: empty or false ones."""
    return (escape_text(name, _SHOWN) for name, value in fields.items() if value and name not in read)


class LeftOut:
    """The types of parts, and their fields, that the model does not read, as `codec.ignored` names them; at most 32."""

    def __init__(self, place: str = "") -> None:
        """`place`: what their names begin with."""
        self._place = place
        self._names: dict[str, None] = {}

    def add(self, kind: object) -> None:
        """Add a type."""
        if len(self._names) < _NAMED:
            self._names[f"{self._place}{escape_text(str(kind), _SHOWN)}"] = None

    def add_fields(self, kind: object, fields: Mapping[str, Any], read: Container[str]) -> None:
        """Add the fields of a part that are not read."""
        for name in unread_fields(fields, read):
            self.add(f"{kind}.{name}")

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, each once."""
        return tuple(self._names)


def text_of_content(role: str, content: object, where: str, left_out: LeftOut) -> str:
    """The text of a content. Raises `RequestInvalid`, which names the place."""
    if isinstance(content, str):
        return content
    if role == "tool" or (role == "assistant" and isinstance(content, int | float)):
        return text_of_result(content, left_out)
    # Joined as llama.cpp does.
    return "\n".join(texts_of_parts(role, parts_of(content, where), where, left_out))


def parts_of(content: object, where: str) -> Sequence[object]:
    """The parts of a content. Raises `RequestInvalid`."""
    if isinstance(content, list):
        return cast("list[object]", content)
    if content is not None and not isinstance(content, str | Mapping):
        raise RequestInvalid(f"{where} must be a string or a list of text parts", param=where)
    return () if content is None else (cast("object", content),)


def text_of_result(content: object, left_out: LeftOut) -> str:
    """The text of a result's content, which may be any JSON value."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return json.dumps(content, ensure_ascii=False)
    return "\n".join(text_of_result_part(part, left_out) for part in cast("list[object]", content))


def text_of_result_part(part: object, left_out: LeftOut) -> str:
    """The text of one part of a result."""
    if not isinstance(part, Mapping):
        return part if isinstance(part, str) else json.dumps(part, ensure_ascii=False)
    fields = cast("Mapping[str, Any]", part)
    text = text_of(fields)
    if text is not None:
        _name_unread(fields, left_out)
        return text
    if not isinstance(fields.get("type"), str):
        # No part of any API, but a value that the tool gave.
        return json.dumps(fields, ensure_ascii=False)
    left_out.add(fields["type"])
    return stand_in(fields)


def found_tools(content: object) -> tuple[str, ...]:
    """The names of the tools that a content's parts refer to: what a search of tools has found."""
    if not isinstance(content, list):
        return ()
    fields = (cast("Mapping[str, Any]", part) for part in cast("list[object]", content) if isinstance(part, Mapping))
    names = (each.get("tool_name") for each in fields if each.get("type") == "tool_reference")
    return tuple(name for name in names if isinstance(name, str))


def texts_of_parts(role: str, parts: Sequence[object], where: str, left_out: LeftOut) -> Iterator[str]:
    """The texts of the parts of a question, an answer or a system message. Raises `RequestInvalid`."""
    for part in parts:
        fields: Mapping[str, Any] = cast("Mapping[str, Any]", part) if isinstance(part, Mapping) else {}
        kind: object = fields.get("type")
        text = part if isinstance(part, str) else plain_text(fields)
        if text is not None:
            _name_unread(fields, left_out)
            yield text
        elif role != "assistant" and (not isinstance(kind, str) or kind in KINDS or _has_no_text(fields)):
            raise RequestInvalid(f"{where} {unread(fields)}", param=where)
        else:
            left_out.add(kind)


def _name_unread(part: Mapping[str, Any], left_out: LeftOut) -> None:
    if "text" in part:
        left_out.add_fields(part.get("type", "text"), part, _OF_TEXTS)


def plain_text(part: Mapping[str, Any]) -> str | None:
    """The text of a part, which may lack its type, or have null as its text; None for one that holds no text."""
    text = text_of(part)
    if text is not None or not part:
        return text
    given: object = part.get("text")
    if part.get("type") is None:
        return given if isinstance(given, str) else None
    return "" if "text" in part and given is None else None


def unread(part: Mapping[str, Any]) -> str:
    """Why a part of a question can't be read, and what to do."""
    kind: object = part.get("type")
    if isinstance(kind, str) and kind in KINDS:
        what = KINDS[kind]
        return (
            f"holds a part of type {cut_text(repr(kind), _SHOWN)}: this model reads only text: send the {what} as text "
            "(a description, what stands in it), or let a tool read it"
        )
    if _has_no_text(part):
        return "holds a text part whose 'text' is not a string"
    return f"holds a part of type {cut_text(repr(kind), _SHOWN)}: expected a text part"


def _has_no_text(part: Mapping[str, Any]) -> bool:
    return not isinstance(part.get("text", None if part.get("type") == "text" else ""), str)


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
    # Clients may not set these keys; only the code that assembles a message from a client's pieces does.
    fields = {key: value for key, value in cast("Mapping[str, Any]", message).items() if key not in _OURS}
    role = fields.get("role")
    if role not in ROLES:
        raise RequestInvalid(
            f"{where}.role is {_shown(role)}; expected one of {', '.join(ROLES)}", param=f"{where}.role"
        )
    left_out = left_out or LeftOut()
    if not fields.keys() <= _READ:
        left_out.add_fields(role, fields, _READ)
    fields["role"] = "system" if role == "developer" else role
    content = fields.get("content")
    if not isinstance(content, str):
        found = found_tools(content)
        fields |= {FOUND_TOOLS: found} if found else {}
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


class EchoedAnswer:
    """Collects the pieces of one answer."""

    def __init__(self, where: str) -> None:
        """`where`: its place in the request, for error messages."""
        self.message: _Message = {"role": "assistant", "content": ""}
        self._where = where
        self._said: dict[Said, list[str]] = {}
        self._behind: dict[Said, list[str]] = {}
        """The part of `_said` after the last call that the gateway ran."""
        self._calls: list[_Message] = []
        self._ran: list[_Message] = []

    @property
    def last_call(self) -> str:
        """The id of the last call that the client is to make; "" where there is none."""
        return self._calls[-1]["id"] if self._calls else ""

    def say(self, field: Said, text: str) -> None:
        """Add a piece of its content or reasoning."""
        self._said.setdefault(field, []).append(text)
        self._behind.setdefault(field, []).append(text)

    def call(self, call_id: str, name: str, arguments: str) -> None:
        """Add a call that the client is to make."""
        self._calls.append(_call(call_id, name, arguments))

    def ran(self, call_id: str, name: str, arguments: str, result: str, found: Sequence[str] = ()) -> None:
        """Add a call that the gateway ran. `found`: names of the tools that it found. Raises `RequestInvalid`."""
        called = {"role": "assistant", **_joined(self._behind), "tool_calls": [_call(call_id, name, arguments)]}
        told = {"role": "tool", "tool_call_id": call_id, "content": result}
        self._ran += [checked_message(each, self._where) for each in (called, told)]
        if found:
            self._ran[-1][FOUND_TOOLS] = found
        self._behind.clear()

    def end(self) -> _Message:
        """Return the message; call it again after adding more calls. The texts are joined here, not piece by piece."""
        self.message |= _joined(self._said)
        calls = {"tool_calls": self._calls} if self._calls else {}
        self.message |= calls
        if self._ran:
            last = [{"role": "assistant", **_joined(self._behind), **calls}] if self._behind or calls else []
            self.message[RETOLD] = [*self._ran, *last]
        return self.message


def _joined(said: dict[Said, list[str]]) -> _Message:
    return {"content": "", **{field: "".join(texts) for field, texts in said.items()}}


def _call(call_id: str, name: str, arguments: str) -> _Message:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
