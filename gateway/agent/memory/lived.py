"""An answer as the model lived it: its turns with their ids, the results in between, and what its client was shown.

Filled while the answer is made, and kept as it is afterwards. It knows neither engine nor client.
"""

import re
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gateway.agent.memory.history import Call, Shown
from gateway.engine.interface import Message
from gateway.observe.trajectories import Span
from gateway.toolcalls import CallClosed
from leaf_sdk.vocab import TokenMap

MESSAGE_BYTES: Final = 600
"""What a lived message takes beside its ids and texts, measured."""

_MARKS: Final = 48
"""Characters that tell the marks of one format from another's."""


@dataclass(frozen=True, slots=True)
class LivedTurn:
    """A turn of the model, besides its ids."""

    calls: tuple[CallClosed, ...] = ()
    content: bool = True
    reasoning: bool = False
    ended_by: int | None = None
    """The end-of-turn id that it ended with."""
    broken: bool = False
    """Whether it has a call that broke off, of which its client has not heard."""
    form: str = ""
    """What it wrote around its words (`form_of`): whether a template shows it so depends on that."""
    start: int | None = None
    """Ids of the context before it; None where another replica has told of it."""

    def end_text(self, token_map: TokenMap) -> str:
        """The text of the token that it ended with; "" where there was none, or the map does not have it."""
        if self.ended_by is None or not token_map.has_id(self.ended_by):
            return ""
        return token_map.token_bytes(self.ended_by).decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Lived:
    """One message as the model lived it, with the ids that it stands with in the context."""

    message: Message
    """A turn of the model, or the result of a call; a result's content is read from its ids."""
    ids: "array[int]"
    turn: LivedTurn | None = None
    """Of a turn of the model, how it was."""
    spans: tuple[Span, ...] = ()
    """Where the ids came from; () for a turn of the model that was not cut, and where nobody asks."""

    def formed(self, token_map: TokenMap) -> "Lived":
        """The same, with the form of a turn of the model."""
        if self.turn is None:
            return self
        reasoning, content = str(self.message.get("reasoning_content") or ""), str(self.message["content"])
        return replace(self, turn=replace(self.turn, form=form_of(token_map.decode(self.ids), reasoning, content)))

    @property
    def own(self) -> int:
        """Ids of a turn of the model that it wrote: all, unless it was cut inside a token."""
        return self.spans[0].count if self.spans else len(self.ids)

    @property
    def size(self) -> int:
        """Bytes that it takes, roughly."""
        texts = sum(sys.getsizeof(value) for value in self.message.values() if isinstance(value, str))
        calls = sum(
            sys.getsizeof(call["function"]["arguments"]) + MESSAGE_BYTES
            for call in self.message.get("tool_calls") or ()
        )
        return MESSAGE_BYTES + len(self.ids) * self.ids.itemsize + texts + calls


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
    """Whether what the client was shown says all that its turns hold: not where a call of its own broke off."""

    @property
    def shown(self) -> Shown:
        """The answer as its client sees it."""
        return Shown("".join(self.content), "".join(self.reasoning), tuple(self.calls))

    @property
    def last(self) -> Lived | None:
        """The last turn of the model."""
        return next((each for each in reversed(self.messages) if each.turn is not None), None)

    def add_turn(self, start: int, ids: Sequence[int], content: str, reasoning: str, turn: LivedTurn, own: int) -> None:
        """A generation is over.

        `start`: ids before it; `content`, `reasoning`: all that it said; `own`: how many of the ids the model wrote.
        """
        self.start = start
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if reasoning:
            message["reasoning_content"] = reasoning
        if turn.calls:
            message["tool_calls"] = [_shown_call(call) for call in turn.calls]
        # The ids of its calls are part of its own.
        calls = tuple(replace(call, ids=()) for call in turn.calls)
        spans = () if own == len(ids) else (Span("model", own), Span("assistant", len(ids) - own))
        self.messages.append(Lived(message, array("I", ids), replace(turn, calls=calls, start=start), spans))

    def add_result(self, call_id: str, name: str, ids: Sequence[int], spans: tuple[Span, ...] = ()) -> None:
        """A call of the gateway's tools is over. `spans`: where its ids came from."""
        message = {"role": "tool", "tool_call_id": call_id, "name": name}
        self.messages.append(Lived(message, array("I", ids), spans=spans))


def form_of(text: str, reasoning: str, content: str) -> str:
    """What a turn writes around what it thinks and says, up to where a call begins."""
    marks: list[str] = []
    for words in (reasoning.strip(), content.strip()):
        before, found, after = text.partition(words) if words else ("", "", text)
        if found:
            marks.append(before[-_MARKS:])
            text = after
    return sys.intern("|".join((*marks, *re.findall(r"^\W*\w*\W*", text[:_MARKS]))))


def _shown_call(call: CallClosed) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
