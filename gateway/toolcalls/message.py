"""Parses text into a whole message in the shape of OpenAI's API: for text without ids, and for tests.

Uses the same machine as for ids, without a vocabulary: markers count by their text. Pieces may be text or bytes and may
end inside a character.
"""

import codecs
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.formats.registry import format_named
from gateway.toolcalls.parser import machine_for
from gateway.toolcalls.schema.spec import ToolSpec, read_tools
from gateway.toolcalls.stream.output_events import (
    CallArguments,
    CallEvents,
    CallStarted,
    Content,
    Diagnostic,
    Event,
    Policy,
    Reasoning,
    new_call_ids,
)
from gateway.toolcalls.stream.spelling import Spelling


class _OpenAiShape(Mapping[str, Any], ABC):
    """Reads by key as the JSON object of OpenAI's API, and by attribute as the object of its client library."""

    __slots__ = ()

    @abstractmethod
    def to_openai(self) -> dict[str, Any]:
        """Return the JSON object."""

    def __getitem__(self, key: str) -> Any:
        return self.to_openai()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_openai())

    def __len__(self) -> int:
        return len(self.to_openai())


@dataclass(frozen=True, slots=True)
class CalledFunction(_OpenAiShape):
    """The called function; `arguments` is JSON text unless the message's diagnostics say that the call broke off."""

    name: str
    arguments: str

    def to_openai(self) -> dict[str, Any]:
        """Return `{"name", "arguments"}`."""
        return {"name": self.name, "arguments": self.arguments}


@dataclass(frozen=True, slots=True)
class ToolCall(_OpenAiShape):
    """One call as far as it was read, in OpenAI's shape: `id`, `type`, and `function` with `name` and `arguments`.

    `call.function.name` and `call["function"]["name"]` are the same; `call.name` is short for both.
    """

    id: str
    name: str
    arguments: str

    @property
    def type(self) -> Literal["function"]:
        """The only type of call that there is."""
        return "function"

    @property
    def function(self) -> CalledFunction:
        """What is called."""
        return CalledFunction(self.name, self.arguments)

    def to_openai(self) -> dict[str, Any]:
        """Return an item of `tool_calls`, as plain dicts."""
        return {"id": self.id, "type": self.type, "function": self.function.to_openai()}


@dataclass(frozen=True, slots=True)
class AssistantMessage(_OpenAiShape):
    """An assistant's message. `content` and `reasoning_content` are None where there is none.

    By key it is the JSON object of a chat completion (`to_openai`); `diagnostics` is not part of that, so it is only an
    attribute.
    """

    content: str | None
    reasoning_content: str | None
    tool_calls: tuple[ToolCall, ...]
    diagnostics: tuple[Diagnostic, ...]

    @property
    def role(self) -> Literal["assistant"]:
        """The role of the speaker."""
        return "assistant"

    def to_openai(self) -> dict[str, Any]:
        """Return the message object of a chat completion; keys without a value are left out, but `content` never is."""
        message: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.reasoning_content is not None:
            message["reasoning_content"] = self.reasoning_content
        if self.tool_calls:
            message["tool_calls"] = [call.to_openai() for call in self.tool_calls]
        return message


def join_events(events: Iterable[Event]) -> AssistantMessage:
    """Join a stream's events into the message that they describe."""
    content: list[str] = []
    reasoning: list[str] = []
    diagnostics: list[Diagnostic] = []
    calls: list[CallStarted] = []
    arguments: dict[int, list[str]] = {}
    for event in events:
        match event:
            case Content(text):
                content.append(text)
            case Reasoning(text):
                reasoning.append(text)
            case CallStarted(index):
                calls.append(event)
                arguments[index] = []
            case CallArguments(index, fragment):
                arguments[index].append(fragment)
            case Diagnostic():
                diagnostics.append(event)
            case _:
                pass
    return AssistantMessage(
        "".join(content) or None,
        "".join(reasoning) or None,
        tuple(ToolCall(call.id, call.name, "".join(arguments[call.index])) for call in calls),
        tuple(diagnostics),
    )


def parse(
    name: str,
    text: str,
    tools: Iterable[ToolSpec | Mapping[str, Any]] | None,
    prompt_tail: str = "",
    *,
    new_id: Callable[[], str] | None = None,
    policy: Policy | None = None,
) -> AssistantMessage:
    """Parse a whole answer in the format `name`; see `stream` for the arguments."""
    return stream(name, (text,), tools, prompt_tail, new_id=new_id, policy=policy)


def stream(
    name: str,
    pieces: Iterable[str | bytes],
    tools: Iterable[ToolSpec | Mapping[str, Any]] | None,
    prompt_tail: str = "",
    *,
    new_id: Callable[[], str] | None = None,
    policy: Policy | None = None,
) -> AssistantMessage:
    """Parse an answer that comes in pieces; the same answer gives the same message, however it is cut.

    `tools` are those of the request, in any shape that `read_tools` takes; `prompt_tail` is the end of the prompt's
    text, which shows whether the model begins inside reasoning. Invalid UTF-8 becomes U+FFFD. Raises `UnknownFormat`,
    and `RequestInvalid` for a tool of unknown shape; no text makes it raise.
    """
    return join_events(read_events(format_named(name), pieces, tools, prompt_tail, new_id=new_id, policy=policy))


def read_events(
    fmt: Format,
    pieces: Iterable[str | bytes],
    tools: Iterable[ToolSpec | Mapping[str, Any]] | None,
    prompt_tail: str = "",
    *,
    new_id: Callable[[], str] | None = None,
    policy: Policy | None = None,
) -> Iterator[Event]:
    """Yield the events of an answer in pieces, each piece's before the next one is taken. Otherwise like `stream`."""
    calls = CallEvents(new_id or new_call_ids(), lambda end: (), policy)
    machine, _ = machine_for(
        fmt,
        calls,
        Spelling({}),
        read_tools(tools or ()),
        prompt_tail=prompt_tail,
        forget=lambda offset: None,
    )
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for piece in pieces:
        # Half a surrogate pair is not a character: encoded as it is, it becomes U+FFFD like any invalid byte.
        machine.feed(decoder.decode(piece.encode("utf-8", "surrogatepass") if isinstance(piece, str) else piece))
        yield from calls.drain()
    machine.close(decoder.decode(b"", final=True))
    yield from calls.drain()
