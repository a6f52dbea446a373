"""The parsers of what a model writes: token ids in, events out; or text in, a whole message out.

Joins three steps of the packages below: ids to guarded text (`tokens`), text to marks (the format's nodes), marks to
events (`calls`). Nothing that a model writes makes it raise. It holds back at most a marker's beginning, half a
character, or a word; a region beyond its bound becomes content.
"""

import codecs
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.formats.registry import format_named
from gateway.toolcalls.nodes.regions import RegionTooLong
from gateway.toolcalls.nodes.unmarked_calls import MAX_TRIED
from gateway.toolcalls.schema.spec import ToolSpec, read_tools
from gateway.toolcalls.stream.cursor import Cursor
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
from gateway.toolcalls.stream.spelling import Spelling, TokenReader, Vocabulary, spelling_of, stand_ins

MAX_REGION = 1 << 20
"""Most characters of one region, since they are kept for its call."""

_PART = 1024

_OVER = object()
"""Returned by `next` for a run that is over; a run that goes on yields None."""


class Machine:
    """Runs a format's nodes over text that comes in pieces."""

    def __init__(self, fmt: Format, cursor: Cursor) -> None:
        self._cursor = cursor
        self._run = fmt.body.run(cursor)
        self._running: bool = True

    def feed(self, text: str) -> None:
        """Read the next piece of text, in parts: many steps look at all that has arrived and is not read yet."""
        cursor = self._cursor
        for start in range(0, max(len(text), 1), _PART):
            cursor.feed(text[start : start + _PART])
            if self._running:
                try:
                    self._running = next(self._run, _OVER) is not _OVER
                    if cursor.region_length > MAX_REGION:
                        self._end_region()
                except Exception as error:  # noqa: BLE001 - the only boundary: a bug in a format must not lose the answer
                    self._running = False
                    cursor.fail(error)
            if not self._running:
                # The format has ended or failed; the rest of the text must not be lost.
                cursor.calls.content(cursor.take(len(cursor.buffer)))

    def close(self, text: str, *, whole: bool = False) -> None:
        """End the stream with its last text: half a character, which may have been part of a marker.

        `whole`: the model ended it itself, so that nothing in it was cut off.
        """
        self._cursor.ended, self._cursor.whole = True, whole
        self.feed(text)

    def _end_region(self) -> None:
        try:
            self._run.throw(RegionTooLong(f"a tool call is longer than {MAX_REGION} characters"))
        except StopIteration:
            self._running = False


class FormedMachine(Machine):
    """Reads an answer of a form (`answer_grammar`): from its first character on everything is text."""

    def feed(self, text: str) -> None:
        """Read the next piece, by single characters until the answer begins: the nodes must not look beyond that."""
        read = 0
        while self._running and read < len(text):
            super().feed(text[read])
            read += 1
            self._running = self._running and not self._cursor.calls.spoken
        super().feed(text[read:])


class StreamParser:
    """Parses one generation; `parser_for` makes one. Ids may come in any batches, with the same result."""

    def __init__(self, machine: Machine, cursor: Cursor, reader: TokenReader, *, text_wanted: bool) -> None:
        self._machine = machine
        self._cursor = cursor
        self._calls = cursor.calls
        self._reader = reader
        self._text_wanted = text_wanted
        self._closed = False

    @property
    def scanned(self) -> int:
        """How many characters were examined so far; a character that is examined again counts again."""
        return self._cursor.scanned

    def feed(self, ids: Sequence[int]) -> list[Event]:
        """Read the next ids (without the end-of-generation id); return their events. Raises ValueError once closed."""
        if self._closed:
            raise ValueError("this parser is closed; make one parser per generation")
        if not self._text_wanted and self._cursor.idle:
            ids = self._from_first_guard(ids)
        self._machine.feed(self._reader.feed(ids))
        return self._calls.drain() if self._text_wanted else self._calls_alone()

    def close(self, *, whole: bool = False) -> list[Event]:
        """End the stream and return the events of what was held back; a second call returns none.

        `whole`: the model ended it itself; otherwise a call that is still open was cut off.
        """
        if self._closed:
            return []
        self._closed = True
        self._machine.close(self._reader.close(), whole=whole)
        return self._calls.drain() if self._text_wanted else self._calls_alone()

    def _from_first_guard(self, ids: Sequence[int]) -> Sequence[int]:
        for number, token_id in enumerate(ids):
            if self._reader.guards(token_id):
                return ids[number:]
        return ()

    def _calls_alone(self) -> list[Event]:
        return [event for event in self._calls.drain() if not isinstance(event, (Content, Reasoning))]


def machine_for(
    fmt: Format,
    calls: CallEvents,
    spelling: Spelling,
    tools: Sequence[ToolSpec],
    *,
    prompt_tail: str,
    forget: Callable[[int], None],
    formed: bool = False,
    lookalikes: bool = True,
) -> tuple[Machine, Cursor]:
    """Return a format's machine and the cursor that it reads from; `lookalikes` as the cursor has it."""
    cursor = Cursor(
        calls,
        spelling,
        tools={tool.name: tool for tool in tools},
        prompt_tail=prompt_tail,
        forget=forget,
        lookalikes=MAX_TRIED if lookalikes and tools and not formed else 0,
    )
    return (FormedMachine if formed else Machine)(fmt, cursor), cursor


def parser_for(
    fmt: Format,
    vocabulary: Vocabulary,
    tools: Sequence[ToolSpec],
    *,
    prompt_tail: str = "",
    new_id: Callable[[], str] | None = None,
    by_text: bool = False,
    text_wanted: bool = True,
    policy: Policy | None = None,
    formed: bool = False,
    hidden: Container[int] = (),
) -> StreamParser:
    """Make the parser for one generation.

    A marker that is one special token of `vocabulary` counts only as that token; with `by_text` (for a generation
    under `call_grammar` or `answer_grammar`, which can't tell a token from its spelling) it counts by its text.
    `prompt_tail` is the end of the prompt's text: it shows whether the model begins inside reasoning. `new_id` makes
    the ids of calls, by default `call_` and 24 hex digits. Without `text_wanted` no content and no reasoning is
    reported, calls need the format's markers, and while only a guarded marker matters, an id costs one look-up.
    `policy` says what becomes of faulty calls. `formed`: for a generation under `answer_grammar`, whose answer is text
    from its first character on. `hidden`: the ids of special tokens whose text is not shown.
    """
    found = {} if by_text else stand_ins(vocabulary, fmt.markers)
    reader = TokenReader(vocabulary, dict(found.values()), hidden)
    calls = CallEvents(new_id or new_call_ids(), reader.take, policy)
    spelling = spelling_of(frozenset((marker, stand_in) for marker, (_, stand_in) in found.items()))
    machine, cursor = machine_for(
        fmt,
        calls,
        spelling,
        tools,
        prompt_tail=prompt_tail,
        forget=reader.forget,
        formed=formed,
        lookalikes=text_wanted,
    )
    return StreamParser(machine, cursor, reader, text_wanted=text_wanted)


# Text into a whole message in the shape of OpenAI's API: for text without ids, and for tests.
#
# Uses the same machine as for ids, without a vocabulary: markers count by their text. Pieces may be text or bytes and
# may end inside a character.


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
        spelling_of(frozenset[tuple[str, str]]()),
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
