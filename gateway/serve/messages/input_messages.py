"""Anthropic's messages, turned into messages in the agent's terms.

Turns `system` and `messages`, whose contents are texts or lists of typed blocks, into messages with one text each, so
that an answer that a client sends back means what it meant: the text blocks of an assistant become one text, its
thinking becomes reasoning, its calls keep their ids. Results of calls come before any text of the same message.
`cache_control` has no effect on the messages; calls that the gateway ran are kept beside them
(`context/history/client_messages.py`). Each error names its place. Pure. Source: Anthropic's API reference, "Create
a Message".
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from gateway.context.history.client_messages import (
    MOST_MESSAGES,
    EchoedAnswer,
    LeftOut,
    arguments_text,
    found_tools,
    parts_of,
    plain_text,
    text_of_result,
    unread,
)
from gateway.context.history.shortening import add_message, after_summary
from gateway.context.memory import FOUND_TOOLS
from gateway.errors import RequestInvalid
from gateway.escape import cut_text
from gateway.proxy.results import KINDS

ChatMessage = dict[str, Any]
InputBlock = Mapping[str, Any]
PlacedBlock = tuple[InputBlock, str]
"""A block, and its place in the request."""

_SHOWN: Final = 100
_SUMMARY: Final = "compaction"
"""The type of a block that stands for all that precedes it."""
_READ: Final = frozenset({"text", "document", "tool_reference", "search_result"})
"""Types of blocks that are read; a flaw in one is reported."""
_CALL: Final = ("id", "name", "input", "server_name")
_RESULT: Final = ("tool_use_id", "content", "is_error")
_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    kind: frozenset(("type", "cache_control", *names))
    for kind, names in {
        "text": ("text",),
        # A signature proves Anthropic's own reasoning; nobody checks it here, and clients always send one.
        "thinking": ("thinking", "signature"),
        "document": ("source",),
        "search_result": ("content",),
        "tool_reference": ("tool_name",),
        "tool_addition": ("tool",),
        _SUMMARY: ("content", "encrypted_content", "signature", "tool_changes"),
        **dict.fromkeys(("tool_use", "server_tool_use", "mcp_tool_use"), _CALL),
        **dict.fromkeys(("tool_result", "mcp_tool_result", "tool_search_tool_result"), _RESULT),
    }.items()
}
"""The fields of blocks that are read, by the blocks' types."""


def read_messages(system: object, messages: object) -> tuple[list[ChatMessage], tuple[str, ...]]:
    """The conversation, and the types of its blocks that were left out.

    Raises `RequestInvalid` that names the place.
    """
    if not isinstance(messages, list) or not messages:
        raise RequestInvalid("messages: expected a list of at least one message", param="messages")
    reader = _Reader()
    reader.name_unread(system)
    if words := _texts(system if system is not None else "", "system"):
        reader.add({"role": "system", "content": words})
    for number, message in enumerate(cast("list[object]", messages)):
        reader.read(message, f"messages[{number}]")
    if not reader.messages:
        raise RequestInvalid("messages: expected a message besides a summary without a text", param="messages")
    return reader.messages, reader.left_out.names


class _Reader:
    """Collects messages."""

    def __init__(self) -> None:
        self.messages: list[ChatMessage] = []
        self.left_out = LeftOut()
        self._counted = 0

    def add(self, message: ChatMessage, calls: int = 0) -> None:
        self._counted += 1 + calls
        if self._counted > MOST_MESSAGES:
            words = f"messages: more than {MOST_MESSAGES} messages, calls and results in all: shorten the conversation"
            raise RequestInvalid(words, param="messages")
        add_message(self.messages, message)

    def name_unread(self, content: object) -> None:
        """Name the fields of blocks, and of those inside them, that are not read."""
        for block in cast("list[object]", content) if isinstance(content, list) else ():
            kind = cast("InputBlock", block).get("type") if isinstance(block, Mapping) else None
            if isinstance(kind, str) and (read := _FIELDS.get(kind)) is not None:
                fields = cast("InputBlock", block)
                self.left_out.add_fields(kind, fields, read)
                self.name_unread(fields.get("content"))

    def read(self, message: object, where: str) -> None:
        fields = _object(message, where)
        role, content, place = fields.get("role"), fields.get("content"), f"{where}.content"
        self.name_unread(content)
        if role in ("user", "assistant"):
            self._read_turn(role, content, place)
        elif role in ("system", "developer"):
            self._read_system(content, place)
        elif role == "tool":
            # OpenAI's form of a result.
            result = text_of_result(content, self.left_out)
            self.add({"role": "tool", "tool_call_id": _id(fields, "tool_call_id", where), "content": result})
        else:
            words = f"{where}.role: expected 'user', 'assistant' or 'system'; got {_shown(role)}"
            raise RequestInvalid(words, param=f"{where}.role")

    def _read_turn(self, role: str, content: object, where: str) -> None:
        """A user's or the model's message."""
        blocks = _blocks([] if content is None and role == "assistant" else content, where)
        if any(block.get("type") == _SUMMARY for block, _ in blocks):
            blocks = self._behind_summary(blocks)
            if not blocks:
                return
        if role == "user":
            self._read_user(blocks)
        else:
            self._read_assistant(blocks, where)

    def _behind_summary(self, blocks: Sequence[PlacedBlock]) -> Sequence[PlacedBlock]:
        """The blocks behind the last summary, which stands for all that precedes it.

        One without a text is what remains of an attempt that failed, and stands for nothing.
        """
        left: list[PlacedBlock] = []
        for block, place in blocks:
            if block.get("type") != _SUMMARY:
                left.append((block, place))
            elif isinstance(text := block.get("content"), str) and text:
                changes = parts_of(block.get("tool_changes") or [], place)
                found = [name for change in changes if not _is_removal(change) for name in _added_tool(change)]
                self.messages, left = after_summary(self.messages, text, found), []
        return left

    def _read_system(self, content: object, where: str) -> None:
        """A system message, which may also bring tools into the conversation."""
        texts: list[str] = []
        found: list[str] = []
        for block, place in _blocks(content, where):
            match block.get("type"):
                case "tool_addition" as kind:
                    added = _added_tool(block)
                    found += added
                    if not added:
                        self.left_out.add(f"{kind}.{_object(block.get('tool'), place).get('type')}")
                case "tool_removal" as kind:
                    # Whatever the request's tools do not hold can't be called.
                    self.left_out.add(kind)
                case _:
                    texts.append(_text(block, place))
        if texts or found:
            named: ChatMessage = {FOUND_TOOLS: tuple(found)} if found else {}
            self.add({"role": "system", "content": "\n".join(texts), **named})

    def _read_user(self, blocks: Sequence[PlacedBlock]) -> None:
        texts: list[str] = []
        counted = len(self.messages)
        for block, place in blocks:
            if block.get("type") == "tool_result":
                call_id = _id(block, "tool_use_id", place)
                result: ChatMessage = {"role": "tool", "tool_call_id": call_id, "content": self._result(block)}
                if found := found_tools(block.get("content")):
                    result[FOUND_TOOLS] = found
                self.add(result)
            elif (text := self._question(block, place)) is not None:
                texts.append(text)
        words = "\n".join(texts)
        if words or len(self.messages) == counted:
            self.add({"role": "user", "content": words})

    def _read_assistant(self, blocks: Sequence[PlacedBlock], where: str) -> None:
        answer = EchoedAnswer(where)
        ran: dict[str, InputBlock] = {}
        calls = 0
        for block, place in blocks:
            match block.get("type"):
                case "text":
                    answer.say("content", plain_text(block) or "")
                case "thinking":
                    # The signature is not checked: the memory compares the text.
                    answer.say("reasoning_content", text_of_result(block.get("thinking"), self.left_out))
                case "tool_use":
                    calls += 1
                    answer.call(*_call(block, place))
                case "server_tool_use" as kind if not str(block.get("name")).startswith("tool_search_tool"):
                    self.left_out.add(kind)
                case "mcp_tool_use" | "server_tool_use":
                    ran[_id(block, "id", place)] = block
                case "mcp_tool_result" | "tool_search_tool_result" as kind:
                    calls += 1
                    called = ran.pop(_id(block, "tool_use_id", place), None)
                    if called is not None:
                        found = _found(block) if kind == "tool_search_tool_result" else ()
                        answer.ran(*_call(called, place), "\n".join(found) or self._result(block), found)
                case kind:
                    self.left_out.add(kind)
        self.add(answer.end(), calls)

    def _question(self, block: InputBlock, where: str) -> str | None:
        """The text of a block of a question; None for a block of an unknown type, which is left out."""
        kind = block.get("type")
        if plain_text(block) is None and isinstance(kind, str) and kind not in {*KINDS, *_READ}:
            self.left_out.add(kind)
            return None
        return _text(block, where)

    def _result(self, block: InputBlock) -> str:
        words = text_of_result(block.get("content"), self.left_out)
        # Chat templates have no other place for `is_error`.
        return f"Error: {words}" if block.get("is_error") is True else words


def _blocks(content: object, where: str) -> Sequence[PlacedBlock]:
    """The blocks of a message's content, with their places."""
    if isinstance(content, str):
        return [({"type": "text", "text": content}, where)]
    texts = ({"type": "text", "text": part} if isinstance(part, str) else part for part in parts_of(content, where))
    return [(_object(block, f"{where}[{number}]"), f"{where}[{number}]") for number, block in enumerate(texts)]


def _texts(content: object, where: str) -> str:
    return "\n".join([_text(block, place) for block, place in _blocks(content, where)])


def _text(block: InputBlock, where: str) -> str:
    """The text of a block that holds text in some form."""
    if block.get("type") == "document":
        return _document(block, where)
    if (text := plain_text(block)) is not None:
        return text
    raise RequestInvalid(f"{where} {unread(block)}", param=where)


def _document(block: InputBlock, where: str) -> str:
    source = _object(block.get("source"), f"{where}.source")
    match source.get("type"):
        case "text":
            return _string(source, "data", f"{where}.source")
        case "content":
            return _texts(source.get("content"), f"{where}.source.content")
        case kind:
            words = f"is a document of type {_shown(kind)}: this model reads only text: send the document's text"
            raise RequestInvalid(f"{where}.source {words}", param=f"{where}.source")


def _call(block: InputBlock, where: str) -> tuple[str, str, str]:
    """The id, the name and the arguments of a call."""
    return _id(block, "id", where), _name(block, "name", where), arguments_text(block.get("input"))


def _is_removal(change: object) -> bool:
    return isinstance(change, Mapping) and cast("InputBlock", change).get("type") == "tool_removal"


def _added_tool(block: object) -> list[str]:
    """The name of the tool that a block brings into the conversation; none where it refers to none of the request's."""
    tool: object = cast("InputBlock", block).get("tool") if isinstance(block, Mapping) else None
    fields: InputBlock = cast("InputBlock", tool) if isinstance(tool, Mapping) else {}
    name: object = fields.get("name")
    return [name] if isinstance(name, str) and fields.get("type", "tool_reference") == "tool_reference" else []


def _found(block: InputBlock) -> tuple[str, ...]:
    """The names in the result of a search that the gateway ran."""
    inside: object = block.get("content")
    return found_tools(cast("InputBlock", inside).get("tool_references")) if isinstance(inside, Mapping) else ()


def _object(value: object, where: str) -> InputBlock:
    if not isinstance(value, Mapping):
        raise RequestInvalid(f"{where}: expected an object; got {_shown(value)}", param=where)
    return cast("InputBlock", value)


def _string(fields: InputBlock, key: str, where: str) -> str:
    value: object = fields.get(key)
    if not isinstance(value, str):
        raise RequestInvalid(f"{where}.{key}: expected a string; got {_shown(value)}", param=f"{where}.{key}")
    return value


def _id(fields: InputBlock, key: str, where: str) -> str:
    """The id of a call, which some servers leave empty and some clients leave out."""
    return "" if fields.get(key) is None else _string(fields, key, where)


def _name(fields: InputBlock, key: str, where: str) -> str:
    if not (value := _string(fields, key, where)):
        raise RequestInvalid(f"{where}.{key} is empty", param=f"{where}.{key}")
    return value


def _shown(value: object) -> str:
    return cut_text(repr(value), _SHOWN)
