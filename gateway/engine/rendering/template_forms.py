"""Messages and tools in the forms that a chat template can render, the client's own first.

Some templates want ids of nine letters or digits, some only one call per turn, and some know no calls or results at
all: refusing what such a model itself did one request ago would end the conversation. Of tools, those are remembered
whose own definition one running engine can't render or hold calls to, with the form that its template gets instead; and
the text of one definition is cut out of a prompt that has it and another that lacks it. It asks no engine itself:
`gateway.agent.calls.request_tools` finds the forms.
"""

import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from gateway.engine.interface import Message, shared_prefix
from gateway.escape import cut_text
from gateway.observe.logs import get_logger
from gateway.toolcalls.grammar.exact import has_too_many_ways
from gateway.toolcalls.schema.keywords import dead_references
from gateway.toolcalls.schema.spec import ToolSpec

Numbered = tuple[int | None, Message]
"""A message, and its number in the original conversation; None if it was split or joined."""
_BETWEEN: Final = " ,\n"
"""What templates write between two definitions."""
_ELEMENT: Final = re.compile(r"<([\w|]+)[ >]")
_NAMES: Final = ("aardvark", "zyzzyva")
"""Of the tools before and behind it: their definitions have as little in common with others as possible."""
_REMEMBERED: Final = 1024
"""Most tools that are remembered; the least recently used is dropped first."""
_SHOWN: Final = 80
_LISTED: Final = 3
_Key = tuple[str, str, bytes]
"""A tool's name, its description, and the digest of its schema."""
log = get_logger("engine")


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


def around(definition: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """Return the tools to render: two others, and this one between them."""
    first, last = (
        {"type": "function", "function": {"name": name, "description": name, "parameters": {"type": "object"}}}
        for name in _NAMES
    )
    return [first, last] if definition is None else [first, definition, last]


def definition_in(text: str, without: str) -> str | None:
    """Return the definition that `text` has and `without` lacks; None where its ends can't be told.

    Both texts agree around it, and the end of the definition before it may equal its own end: then it could begin
    earlier. The place nearest to what differs counts where a whole JSON object or element begins, or else a line.
    """
    size = len(text) - len(without)
    start = shared_prefix(text, without)
    if size <= 0 or text[start + size :] != without[start:]:
        return None
    line: str | None = None
    for place in _places(text, start, size):
        found = text[place : place + size]
        if _is_whole(found):
            return found.strip(_BETWEEN)
        if line is None and text[place - 1 : place] == "\n":
            line = found
    return None if line is None else line.strip(_BETWEEN)


def _places(text: str, start: int, size: int) -> Iterator[int]:
    """Where it could begin, the last place first."""
    yield start
    while start and text[start - 1] == text[start + size - 1]:
        start -= 1
        yield start


def _is_whole(text: str) -> bool:
    text = text.strip(_BETWEEN)
    if text.startswith("{"):
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return False
        return True
    opening = _ELEMENT.match(text)
    return opening is not None and text.endswith(f"</{opening[1]}>")


def as_json(definition: Mapping[str, Any]) -> str:
    """Return a definition as JSON text, in the shape that most templates write."""
    return json.dumps(definition, ensure_ascii=False, default=dict).encode("utf-8", "replace").decode()


@dataclass(frozen=True, slots=True)
class ToolFault:
    """What is wrong with one tool, and what follows from it."""

    server: str | None
    """The server that offers it; None: it came with a request."""
    tool: str
    reason: str

    @property
    def message(self) -> str:
        """The whole sentence."""
        whose = "the request" if self.server is None else f"server {self.server!r}"
        return f"tool {self.tool!r} of {whose}: {self.reason}"


@dataclass(slots=True)
class _Schema:
    """What is known of one schema object. It is kept with it, so that its address is not reused."""

    schema: Mapping[str, Any]
    dead: list[str] | None = None
    """Its references that lead nowhere; None: nobody has looked yet."""
    digest: bytes = b""
    """Of its text; empty: not computed yet."""
    loose: bool | None = None
    """Whether no grammar should hold a tool to it; None: nobody has looked yet."""


class ToolForms:
    """The forms of the tools of one running engine."""

    def __init__(self, most: int = _REMEMBERED) -> None:
        """Remember nothing yet; later at most `most` tools."""
        self._most = most
        self._forms: OrderedDict[_Key, tuple[ToolSpec | None, ToolFault]] = OrderedDict()
        self._schemas: OrderedDict[int, _Schema] = OrderedDict()
        """What is known of schema objects, by their addresses: requests share those of servers' tools."""
        self._reported: OrderedDict[ToolFault, None] = OrderedDict()

    def note(self, tool: ToolSpec, form: ToolSpec | None, fault: ToolFault) -> None:
        """Remember in which form a tool is rendered; None: it is left out."""
        self._forms[self._key(tool)] = form, fault
        if len(self._forms) > self._most:
            self._forms.popitem(last=False)
        self.report(fault)

    def report(self, fault: ToolFault) -> None:
        """Log a fault, unless it is known."""
        if fault in self._reported:
            return
        self._reported[fault] = None
        if len(self._reported) > self._most:
            self._reported.popitem(last=False)
        log.warning("a tool can't be used as it is defined", server=fault.server, tool=fault.tool, reason=fault.reason)

    @property
    def reported(self) -> list[ToolFault]:
        """Every fault that was reported."""
        return list(self._reported)

    def rendered(self, tools: Sequence[ToolSpec]) -> list[ToolSpec]:
        """The tools as the template gets them, without those that are left out."""
        if not self._forms:
            return list(tools)
        forms = (tool if (known := self._known(tool)) is None else known[0] for tool in tools)
        return [form for form in forms if form is not None]

    def offered(self, tools: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
        """The tools themselves, without those that are left out."""
        return tuple(tool for tool in tools if self.left_out(tool) is None) if self._forms else tuple(tools)

    def left_out(self, tool: ToolSpec) -> ToolFault | None:
        """Why a tool is left out; None: it is not."""
        known = self._known(tool) if self._forms else None
        return None if known is None or known[0] is not None else known[1]

    def faults(self, tools: Sequence[ToolSpec], server_of: Callable[[str], str | None]) -> list[ToolFault]:
        """What is wrong with some of these tools. `server_of`: returns the server of a tool, by its name."""
        found: list[ToolFault] = []
        for tool in tools:
            if self._forms and (changed := self._known(tool)) is not None:
                found.append(changed[1])
            known = self._schema(tool.parameters)
            if known.dead is None:
                known.dead = dead_references(tool.parameters)
            if known.dead:
                found.append(ToolFault(server_of(tool.name), tool.name, nowhere(known.dead)))
                self.report(found[-1])
        return found

    def has_too_many_ways(self, tool: ToolSpec) -> bool:
        """Whether no grammar should hold a tool to its schema, since an engine could not follow it."""
        known = self._schema(tool.parameters)
        if known.loose is None:
            known.loose = has_too_many_ways(tool.parameters)
        return known.loose

    def _schema(self, schema: Mapping[str, Any]) -> _Schema:
        known = self._schemas.get(id(schema))
        if known is None:
            known = self._schemas[id(schema)] = _Schema(schema)
            if len(self._schemas) > self._most:
                self._schemas.popitem(last=False)
        else:
            self._schemas.move_to_end(id(schema))
        return known

    def _known(self, tool: ToolSpec) -> tuple[ToolSpec | None, ToolFault] | None:
        key = self._key(tool)
        if key in self._forms:
            self._forms.move_to_end(key)
        return self._forms.get(key)

    def _key(self, tool: ToolSpec) -> _Key:
        known = self._schema(tool.parameters)
        if not known.digest:
            text = json.dumps(tool.parameters, default=dict)
            known.digest = sha256(text.encode("utf-8", "replace")).digest()
        return tool.name, tool.description, known.digest


def nowhere(references: Sequence[str]) -> str:
    """Say that references of a tool's schema lead nowhere."""
    shown = ", ".join(repr(cut_text(each, _SHOWN)) for each in references[:_LISTED])
    more = f" and {len(references) - _LISTED} more" if len(references) > _LISTED else ""
    return f"nothing in its schema is what {shown}{more} refers to; any value is accepted there"
