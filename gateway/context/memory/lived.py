"""An answer as the model lived it: its turns with their ids, the results in between, and what its client was shown.

Filled while the answer is made, and kept unchanged afterwards. A turn is cut where its client saw it end: before a stop
string, or where a stream broke. It knows neither engine nor client.
"""

import re
import sys
from array import array
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gateway.context.memory.history import Call, Shown
from gateway.engine.interface import Message
from gateway.observe.trajectories import Span
from gateway.toolcalls.stream.output_events import CallClosed
from leaf_sdk.vocab import TokenMap

MESSAGE_BYTES: Final = 600
"""Bytes that a lived message takes besides its ids and texts, measured."""

_SPAN_BYTES: Final = 160
"""Bytes that a span takes, measured."""
_MARKS: Final = 48
"""Characters that are enough to tell the marks of one format from those of another."""


@dataclass(frozen=True, slots=True)
class LivedTurn:
    """A turn of the model, besides its ids."""

    calls: tuple[CallClosed, ...] = ()
    content: bool = True
    reasoning: bool = False
    ended_by: int | None = None
    """The end-of-turn id that it ended with; None where the model did not end it."""
    broken: bool = False
    """Whether it has a call that broke off; an answer whose client knows of such a call is not remembered."""
    form: str = ""
    """What it wrote around its text (`form_of`): it decides whether a template shows the turn as it was written."""
    start: int | None = None
    """Ids of the context before it; None where another replica made it."""
    model_ids: tuple[str, ...] = ()
    """The ids of its calls as the model and its template know them; `calls` have those that clients know."""

    def end_text(self, token_map: TokenMap) -> str:
        """The text of the token that it ended with; "" where there was none, or the map does not have it."""
        if self.ended_by is None or not token_map.has_id(self.ended_by):
            return ""
        return token_map.token_bytes(self.ended_by).decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Lived:
    """One message as the model lived it, with its ids in the context."""

    message: Message
    """A turn of the model, or the result of a call; a result's content is read from its ids."""
    ids: "array[int]"
    turn: LivedTurn | None = None
    """What kind of turn it was, for a turn of the model; None for a result."""
    spans: tuple[Span, ...] = ()
    """Where the ids came from; () for a turn of the model that was not cut."""

    def formed(self, token_map: TokenMap) -> "Lived":
        """The same message; a turn of the model gets its form."""
        if self.turn is None:
            return self
        reasoning, content = str(self.message.get("reasoning_content") or ""), str(self.message["content"])
        # An id of the engine's padding has no text.
        text = token_map.decode(filter(token_map.has_id, self.ids))
        return replace(self, turn=replace(self.turn, form=form_of(text, reasoning, content)))

    @property
    def own(self) -> int:
        """How many ids of a turn the model wrote: all, unless it was cut inside a token."""
        return self.spans[0].count if self.spans else len(self.ids)

    @property
    def size(self) -> int:
        """Bytes that it takes, approximately."""
        texts = sum(sys.getsizeof(value) for value in self.message.values() if isinstance(value, str))
        calls = sum(
            sys.getsizeof(call["function"]["arguments"]) + MESSAGE_BYTES
            for call in self.message.get("tool_calls") or ()
        )
        spans = len(self.spans) * _SPAN_BYTES
        return MESSAGE_BYTES + len(self.ids) * self.ids.itemsize + texts + calls + spans


@dataclass(slots=True)
class LivedAnswer:
    """The answer that is being made."""

    messages: list[Lived] = field(default_factory=list[Lived])
    content: list[str] = field(default_factory=list[str])
    """Texts that the client was shown."""
    reasoning: list[str] = field(default_factory=list[str])
    calls: list[Call] = field(default_factory=list[Call])
    """Calls that the client was shown."""
    start: int = 0
    """Ids of the context before the last turn."""
    whole: bool = True
    """Whether what the client was shown tells all that its turns hold: not where one of its own calls broke off."""

    @property
    def shown(self) -> Shown:
        """The answer as its client sees it."""
        return Shown("".join(self.content), "".join(self.reasoning), tuple(self.calls))

    @property
    def last(self) -> Lived | None:
        """The last turn of the model."""
        return next((each for each in reversed(self.messages) if each.turn is not None), None)

    def add_turn(self, start: int, ids: Sequence[int], content: str, reasoning: str, turn: LivedTurn, own: int) -> None:
        """Add the turn of a finished generation.

        `start`: ids before it; `content`, `reasoning`: their whole text; `own`: how many of the ids the model wrote.
        """
        self.start = start
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if reasoning:
            message["reasoning_content"] = reasoning
        if turn.calls:
            message["tool_calls"] = [_shown_call(call) for call in turn.calls]
        # The turn's ids include those of its calls.
        calls = tuple(replace(call, ids=()) for call in turn.calls)
        spans = () if own == len(ids) else (Span("model", own), Span("assistant", len(ids) - own))
        self.messages.append(Lived(message, array("I", ids), replace(turn, calls=calls, start=start), spans))

    def add_result(self, call_id: str, name: str, ids: Sequence[int], spans: tuple[Span, ...] = ()) -> None:
        """Add the result of a finished call of the gateway's tools. `spans`: where its ids came from."""
        message = {"role": "tool", "tool_call_id": call_id, "name": name}
        self.messages.append(Lived(message, array("I", ids), spans=spans))


def form_of(text: str, reasoning: str, content: str) -> str:
    """What a turn writes around its reasoning and content, up to where a call begins."""
    marks: list[str] = []
    for words in (reasoning.strip(), content.strip()):
        before, found, after = text.partition(words) if words else ("", "", text)
        if found:
            marks.append(before[-_MARKS:])
            text = after
    return sys.intern("|".join((*marks, *re.findall(r"^\W*\w*\W*", text[:_MARKS]))))


def _shown_call(call: CallClosed) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def cut_turn(
    ids: Sequence[int], content: str, told: str, token_map: TokenMap, hidden: Container[int] = ()
) -> list[int] | None:
    """Return the ids of a turn up to where its client saw it end; None where that place can't be determined.

    `content`: the whole text of the turn; `told`: the beginning of it that was shown; `hidden`: ids of which
    neither has a text.
    """
    pieces = [b"" if token_id in hidden else token_map.token_bytes(token_id) for token_id in ids]
    written, shown = b"".join(pieces), told.encode("utf-8", "replace")
    # The whole content is searched for, since what was shown may occur again after it.
    at = written.rfind(content.encode("utf-8", "replace"))
    if not shown or at < 0:
        return None
    stop = at + len(shown)
    size, kept = len(written), len(ids)
    while kept:
        if size <= stop:
            rest = _text(written[size:stop])
            if rest is not None:
                return [*ids[:kept], *token_map.encode(rest)]
        kept -= 1
        size -= len(pieces[kept])
    return list(token_map.encode(told)) if at == 0 else None


def _text(written: bytes) -> str | None:
    try:
        return written.decode()
    except UnicodeDecodeError:
        return None
