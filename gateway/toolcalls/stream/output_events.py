"""What a generation says, piece by piece: the only output of this package, and its form in OpenAI's API."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Literal

# What a generation says, piece by piece: the only output of this package.
#
# Events of one stream, joined by kind, are the same however its ids are split. A call comes as one `CallStarted`, then
# `CallArguments` that form one text, then one `CallClosed`; a call without `CallClosed` broke off, and a `Diagnostic`
# says why. Knows nothing of how the model wrote it.


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
