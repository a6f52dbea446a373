"""The parser for one generation: token ids in, events out.

Joins three steps of the packages below: ids to guarded text (`tokens`), text to marks (the format's nodes), marks to
events (`calls`). Nothing that a model writes makes it raise. It holds back at most a marker's beginning, half a
character, or a word; a region beyond its bound becomes content. For text without ids see `message`.
"""

from collections.abc import Callable, Container, Sequence

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.nodes.lookalikes import MAX_TRIED
from gateway.toolcalls.nodes.regions import RegionTooLong
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.cursor import Cursor
from gateway.toolcalls.stream.output_events import CallEvents, Content, Event, Policy, Reasoning, new_call_ids
from gateway.toolcalls.stream.spelling import Spelling, TokenReader, Vocabulary, stand_ins

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
    spelling = Spelling({marker: stand_in for marker, (_, stand_in) in found.items()})
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
