"""Marks that the nodes set, to the events of one stream: the order in which a call may be told.

The rules of the stream stand here and nowhere else: the name comes first and whole, arguments that were written before
it wait for it, an empty call says `{}`, indexes are dense, nothing is taken back. Knows nothing of text, markers or
buffers; where a region's ids come from is a function that the caller gives.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Literal

from gateway.toolcalls.stream.events import (
    CallArguments,
    CallClosed,
    CallStarted,
    Content,
    Diagnostic,
    Event,
    Reasoning,
)
from gateway.toolcalls.stream.policy import Policy

_NUMBER: Final = 4
"""Hex digits that number the calls of one turn."""
_LENGTH: Final = len("call_") + 24


def new_call_ids() -> Callable[[], str]:
    """Give ids for the calls of one turn: `call_` and 24 hex digits, the shape that OpenAI's API gives its call ids.

    They are random and begin alike, so that calls which come back one by one are known as one turn's.
    """
    beginning, numbers = f"call_{secrets.token_hex((24 - _NUMBER) // 2)}", count()
    return lambda: f"{beginning}{next(numbers) % 16**_NUMBER:0{_NUMBER}x}"


def is_of_one_turn(one: str, other: str) -> bool:
    """Whether two ids of calls show that one turn of the model made both."""
    return len(one) == len(other) == _LENGTH and one.startswith("call_") and one[:-_NUMBER] == other[:-_NUMBER]


@dataclass(slots=True)
class _Call:
    """A call in the making. `index` is None until its name is known and it has been told."""

    index: int | None = None
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])
    complete: bool = False
    refused: bool = False
    """The policy wants no call of it: nothing of it is told."""


class CallEvents:
    """Collects what the nodes find and hands it on as events."""

    def __init__(
        self, new_id: Callable[[], str], take_ids: Callable[[int], tuple[int, ...]], policy: Policy | None = None
    ) -> None:
        self.policy = policy or Policy()
        self._new_id = new_id
        self._take_ids = take_ids
        self._events: list[Event] = []
        self._waits = self.policy.truncated == "drop"
        self._waiting: list[Event] = []
        """Events of the call in the making, where the policy is that only whole calls are told."""
        self._told = self._waiting if self._waits else self._events
        """Where the events of a call go."""
        self._call: _Call | None = None
        self._started = 0
        self._spoken = False
        self._used: set[str] = set()

    def drain(self) -> list[Event]:
        """Give the events since the last time."""
        events = self._events.copy()
        self._events.clear()
        return events

    @property
    def started(self) -> bool:
        """Whether the call in the making has been told: from then on its text can't become content again."""
        return self._call is not None and self._call.index is not None

    @property
    def name(self) -> str:
        """The name of the call in the making, "" while it is not known."""
        return self._call.name if self._call else ""

    @property
    def has_name(self) -> bool:
        """Whether the call in the making has a name, and can be told if it was not yet."""
        return self._call is not None and bool(self._call.name)

    @property
    def has_arguments(self) -> bool:
        """Whether a piece of the arguments of the call in the making has come."""
        return self._call is not None and bool(self._call.arguments)

    @property
    def has_id(self) -> bool:
        """Whether the model gave the call in the making an id."""
        return self._call is not None and bool(self._call.id)

    def content(self, text: str) -> None:
        """Tell text for the person who asked; an empty text is not an event."""
        if text and not (self._started and self.policy.text_after_call == "drop"):
            self._events.append(Content(text))
            self._spoken = True

    @property
    def spoken(self) -> bool:
        """Whether any content was told."""
        return self._spoken

    def reasoning(self, text: str) -> None:
        """Tell text that the model wrote to itself; an empty text is not an event."""
        if text:
            self._events.append(Reasoning(text))

    def begin(self, offset: int) -> None:
        """A call begins at `offset`. A complete one before it, in the same region, ends here."""
        if self._call is not None and self._call.complete:
            self.finish(offset)
        self._call = _Call()

    def identify(self, call_id: str) -> None:
        """The model gave the call an id of its own. It counts when it comes before the call is told."""
        call = self._making()
        if call.index is None:
            call.id = call_id

    def named(self, name: str) -> None:
        """The name is known: keep it until `start`."""
        self._making().name = name

    def start(self) -> None:
        """Tell the call, and after it the arguments that came before its name."""
        call = self._making()
        call.index, self._started = self._started, self._started + 1
        if not call.id or call.id in self._used:
            # Models that number their calls begin anew in a second section; an id must still name one call.
            call.id = self._new_id()
        self._used.add(call.id)
        self._told.append(CallStarted(call.index, call.id, call.name))
        for fragment in call.arguments:
            self._told.append(CallArguments(call.index, fragment))

    def refuse(self) -> None:
        """The call in the making is none that the policy wants: its text will be content."""
        self._making().refused = True

    @property
    def refused(self) -> bool:
        """Whether the call in the making was refused."""
        return self._call is not None and self._call.refused

    def argue(self, fragment: str) -> None:
        """Tell, or keep until the call is told, the next piece of the arguments; an empty piece is not an event."""
        call = self._call or self._making()
        if fragment:
            call.arguments.append(fragment)
            if call.index is not None:
                self._told.append(CallArguments(call.index, fragment))

    def complete(self) -> None:
        """The call has said all it has to say; it ends with its region, or where the next call begins.

        A call without arguments says `{}`: what a client joins must be JSON.
        """
        call = self._making()
        if not call.arguments:
            self.argue("{}")
        call.complete = True

    def finish(self, offset: int) -> None:
        """The region, or the part of it that a call fills, ends at `offset`: the call, if there is one, is whole."""
        call = self._call
        if call is not None and call.index is not None:
            closed = CallClosed(call.index, call.id, call.name, "".join(call.arguments), self._take_ids(offset))
            self._told.append(closed)
            self._release()
        self._call = None

    def withdraw(self) -> None:
        """What was begun is no call, and nothing of it was told."""
        self._call = None

    def abandon(
        self, kind: Literal["truncated", "malformed", "failed"], message: str, cause: Exception | None = None
    ) -> None:
        """The region broke: the call in the making stays as far as it was told, and is never closed."""
        index = self._call.index if self._call else None
        if index is not None and kind == "truncated" and self._waits:
            self._waiting.clear()
            self._started, index = index, None
        self._release()
        self._events.append(Diagnostic(kind, message, index, cause))
        self._call = None

    def _release(self) -> None:
        self._events.extend(self._waiting)
        self._waiting.clear()

    def _making(self) -> _Call:
        if self._call is None:
            raise ValueError("a name, an id or arguments stand outside of a Call node; put them inside one")
        return self._call
