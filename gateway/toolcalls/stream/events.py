"""What a generation says, piece by piece: the only output of this package.

Events of one stream, joined by kind, are the same however its ids are split. A call comes as one `CallStarted`, then
`CallArguments` that form one text, then one `CallClosed`; a call without `CallClosed` broke off, and a `Diagnostic`
says why. Knows nothing of how the model wrote it.
"""

from dataclasses import dataclass, field
from typing import Literal


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
    sends back have arguments that are not JSON; `definition`: the model does not read a tool's definition as it is. The
    parser never reports these three.
    """

    kind: Literal["truncated", "malformed", "repaired", "lookalike", "failed", "loose", "history", "definition"]
    message: str
    index: int | None = None
    cause: Exception | None = field(default=None, compare=False, repr=False)


Event = Content | Reasoning | CallStarted | CallArguments | CallClosed | Diagnostic
