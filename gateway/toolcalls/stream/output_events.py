"""What a generation says, piece by piece: the only output of this package, made of the marks that nodes set.

Events of one stream, joined by kind, are the same however its ids are split. A call comes as one `CallStarted`, then
`CallArguments` that form one text, then one `CallClosed`; a call without `CallClosed` broke off, and a `Diagnostic`
says why. The name comes first and whole, arguments that were written before it are held until it is known, an empty
call has `{}`, indexes are dense, nothing is taken back. Knows nothing of text, markers or buffers; the caller passes a
function that returns a region's ids.
"""

import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, Literal

_NUMBER: Final = 4
"""Hex digits that number the calls of one turn."""
SHOWN_NAME: Final = 80
"""Most characters of a name that a diagnostic shows."""
_SAID: Final = 16
"""Characters of the content that are kept, to tell what a call follows."""
_LENGTH: Final = len("call_") + 24


@dataclass(frozen=True, slots=True)
class Content:
    """Text for the user. Never empty, always whole characters."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text that the model wrote to itself. Never empty, always whole characters."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A call whose whole name is known. `index` counts the calls of this stream from 0; `id` is unique."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """The next piece of a call's arguments, as the model wrote it: JSON only when all pieces are joined."""

    index: int
    fragment: str


@dataclass(frozen=True, slots=True)
class CallClosed:
    """A whole call, with the `id` of its `CallStarted`. `arguments` is valid JSON; `ids` are those of its region, both
    markers included."""

    index: int
    id: str
    name: str
    arguments: str
    ids: tuple[int, ...]
    flaw: str = ""
    """Why the call can't be made, for the model that wrote it: it can't be read, and `arguments` is only its beginning,
    completed to JSON (`Policy.answered`)."""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """What is wrong with a call, or with an attempt at one. `index` is the call's if it had started, else None.

    `truncated`: the stream ended inside it. `malformed`: it broke its format's rules; its text is content or, by the
    policy, dropped. `repaired`: it broke them in a way that leaves one reading, and is a whole call. `lookalike`: it
    may be a call in another format, and is content. `failed`: the parser itself failed, with `cause`; from there on the
    whole stream is content. `loose`: calls of some tools are held only to their names; `history`: calls that a client
    sends back have arguments that are not JSON; `definition`: the model does not read a tool's definition as it is;
    `deferred`: it does not read some definitions until it finds them. The parser never reports these four.
    """

    kind: Literal[
        "truncated", "malformed", "repaired", "lookalike", "failed", "loose", "history", "definition", "deferred"
    ]
    message: str
    index: int | None = None
    cause: Exception | None = field(default=None, compare=False, repr=False)


Event = Content | Reasoning | CallStarted | CallArguments | CallClosed | Diagnostic


# Events to deltas in OpenAI's shape, one by one.
#
# A call's first delta has its index, id, type and whole name; those after it have its index and a piece of its
# arguments. Nothing is repeated: clients append what they get. Knows no chunks and no HTTP. Source: OpenAI's API
# reference, "The chat completion chunk object".


def event_delta(event: Event) -> dict[str, Any] | None:
    """Return an event's delta; None for those that have no place in a stream of deltas (a call's end, a diagnostic)."""
    match event:
        case Content(text):
            return {"content": text}
        case Reasoning(text):
            return {"reasoning_content": text}
        case CallStarted(index, call_id, name):
            function = {"name": name, "arguments": ""}
            return {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}
        case CallArguments(index, fragment):
            return {"tool_calls": [{"index": index, "function": {"arguments": fragment}}]}
        case _:
            return None


# What becomes of faulty calls: the choices that a stream's owner has.
#
# The defaults lose nothing and judge nothing: what can be read as a call is one, what can't is content. Knows nothing
# of how the choices are carried out.


@dataclass(frozen=True, slots=True)
class Policy:
    """The choices for one stream."""

    unknown_tool: Literal["call", "content"] = "call"
    """A call of a tool that the request does not offer: reported like any other, or passed on as content."""
    malformed: Literal["content", "drop"] = "content"
    """The text of a region that breaks its format, from the call that can't be read: passed on as content, or dropped
    up to the region's closing marker (without one, up to the next region). A diagnostic says so either way."""
    truncated: Literal["keep", "drop"] = "keep"
    """A call that the stream's end cuts off: reported as far as it arrived, or dropped, for which every call is held
    until it is whole. A diagnostic says so either way."""
    text_after_call: Literal["content", "drop"] = "content"
    """Content after the first reported call: emitted or dropped."""
    hidden_tool: Callable[[str], bool] | None = None
    """Whether a name that is none of the request's may mean a tool that the model has not been shown: a call of it
    without the format's markers is then a call, too. None: there are no others."""
    answered: Collection[str] = ()
    """Tools whose calls get an answer even where they can't be read: such a call is closed, with its `flaw`, and its
    text is dropped in the same way."""


def new_call_ids() -> Callable[[], str]:
    """Return a function that makes ids for the calls of one turn: `call_` and 24 hex digits, as in OpenAI's API.

    The ids share a random beginning, so that calls that come back one by one can be recognised as one turn's.
    """
    beginning, numbers = f"call_{secrets.token_hex((24 - _NUMBER) // 2)}", count()
    return lambda: f"{beginning}{next(numbers) % 16**_NUMBER:0{_NUMBER}x}"


def is_of_one_turn(one: str, other: str) -> bool:
    """Whether two call ids show that the same turn of the model made both calls."""
    return len(one) == _LENGTH and one.startswith("call_") and one[:-_NUMBER] == other[:-_NUMBER]


@dataclass(slots=True)
class _Call:
    """A call that is being read. `index` is None until its name is known and it has been reported."""

    index: int | None = None
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])
    complete: bool = False
    flaw: str = ""
    """Why it can't be made, where it is closed although it can't be read."""
    repaired: str = ""
    """What was repaired in its text, if anything was."""
    refused: bool = False
    """Whether the policy refuses the call, so that nothing of it is reported."""


class CallEvents:
    """Collects what the nodes find and returns it as events."""

    def __init__(
        self, new_id: Callable[[], str], take_ids: Callable[[int], tuple[int, ...]], policy: Policy | None = None
    ) -> None:
        self.policy = policy or Policy()
        self._new_id = new_id
        self._take_ids = take_ids
        self._events: list[Event] = []
        self._waits = self.policy.truncated == "drop"
        self._waiting: list[Event] = []
        """Events of the current call, where the policy is that only whole calls are reported."""
        self._told = self._waiting if self._waits else self._events
        """The list to which the events of calls are added."""
        self._call: _Call | None = None
        self._started = 0
        self._said = ""
        self._used: set[str] = set()

    def drain(self) -> list[Event]:
        """Return the events since the last call of this method."""
        events = self._events.copy()
        self._events.clear()
        return events

    @property
    def started(self) -> bool:
        """Whether the current call has been reported: from then on its text can't become content again."""
        return self._call is not None and self._call.index is not None

    @property
    def name(self) -> str:
        """The name of the current call; "" while it is not known."""
        return self._call.name if self._call else ""

    @property
    def has_name(self) -> bool:
        """Whether the current call has a name, and can be reported if it was not yet."""
        return self._call is not None and bool(self._call.name)

    @property
    def has_arguments(self) -> bool:
        """Whether a piece of the current call's arguments has arrived."""
        return self._call is not None and bool(self._call.arguments)

    @property
    def arguments(self) -> str:
        """The current call's arguments so far."""
        return "".join(self._call.arguments) if self._call else ""

    @property
    def has_id(self) -> bool:
        """Whether the model gave the current call an id."""
        return self._call is not None and bool(self._call.id)

    def content(self, text: str) -> None:
        """Emit text for the user; an empty text is not an event."""
        if text and not (self._started and self.policy.text_after_call == "drop"):
            self._events.append(Content(text))
            self._said = (self._said + text)[-_SAID:]

    @property
    def spoken(self) -> bool:
        """Whether any content was emitted."""
        return bool(self._said)

    @property
    def said(self) -> str:
        """The last characters of the content."""
        return self._said

    def reasoning(self, text: str) -> None:
        """Emit text that the model wrote to itself; an empty text is not an event."""
        if text:
            self._events.append(Reasoning(text))

    def begin(self, offset: int) -> None:
        """Begin a call at `offset`. A complete call before it, in the same region, ends here."""
        if self._call is not None and self._call.complete:
            self.finish(offset)
        self._call = _Call()

    def identify(self, call_id: str) -> None:
        """Take the model's own id for the call. It counts only before the call is reported."""
        call = self._making()
        if call.index is None:
            call.id = call_id

    def named(self, name: str) -> None:
        """Take the call's name, and keep it until `start`."""
        self._making().name = name

    def start(self) -> None:
        """Report the call, and after it the arguments that arrived before its name."""
        call = self._making()
        call.index, self._started = self._started, self._started + 1
        if not call.id or call.id in self._used:
            # Models that number their calls start again in a second section; an id must still be unique.
            call.id = self._new_id()
        self._used.add(call.id)
        self._told.append(CallStarted(call.index, call.id, call.name))
        for fragment in call.arguments:
            self._told.append(CallArguments(call.index, fragment))

    def refuse(self) -> None:
        """Refuse the current call by the policy: its text will be content."""
        self._making().refused = True

    @property
    def refused(self) -> bool:
        """Whether the current call was refused."""
        return self._call is not None and self._call.refused

    def argue(self, fragment: str) -> None:
        """Emit the next piece of the arguments, or keep it until the call is reported; an empty one is not an event."""
        call = self._call or self._making()
        if fragment:
            call.arguments.append(fragment)
            if call.index is not None:
                self._told.append(CallArguments(call.index, fragment))

    def repair(self, what: str) -> None:
        """Note that the call's text was not as it should be, and was read as what it means; the first note counts."""
        call = self._making()
        call.repaired = call.repaired or what

    @property
    def repaired(self) -> str:
        """What was repaired in the current call's text; "" if nothing was."""
        return self._call.repaired if self._call else ""

    def complete(self) -> None:
        """Mark the call as complete; it ends with its region, or where the next call begins.

        A call without arguments gets `{}`: what a client joins must be JSON.
        """
        call = self._making()
        if not call.arguments:
            self.argue("{}")
        call.complete = True

    def finish(self, offset: int) -> None:
        """End the region, or a call's part of it, at `offset`: the call, if there is one, is whole and is closed."""
        call = self._call
        if call is not None and call.index is not None:
            closed = CallClosed(call.index, call.id, call.name, self.arguments, self._take_ids(offset), call.flaw)
            self._told.append(closed)
            if call.repaired and not call.flaw:
                message = f"the call of {call.name[:SHOWN_NAME]!r} was repaired: {call.repaired}"
                self._told.append(Diagnostic("repaired", message, call.index))
            self._release()
        self._call = None

    @property
    def answered(self) -> bool:
        """Whether the current call was reported and gets an answer even if it can't be read."""
        return self.started and self.name in self.policy.answered

    def spoil(self, rest: str, message: str) -> None:
        """Report that the current call can't be read; `rest` completes what was told of its arguments to JSON."""
        call = self._making()
        self.argue(rest)
        call.flaw = f"the call can't be read: {message}; call again, with valid JSON"
        self._told.append(Diagnostic("malformed", message, call.index))

    def withdraw(self) -> None:
        """Forget the current call: it is not one, and nothing of it was reported."""
        self._call = None

    def abandon(
        self,
        kind: Literal["truncated", "malformed", "lookalike", "failed"],
        message: str,
        cause: Exception | None = None,
    ) -> None:
        """Report a broken region: the current call stays as far as it was reported, and is never closed."""
        index = self._call.index if self._call else None
        if index is not None and self._waits:
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
