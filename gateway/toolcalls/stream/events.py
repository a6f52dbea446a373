"""What a generation turns out to say, piece by piece: the only thing that leaves this package.

Events of one stream, joined by kind, are the same for every way to split its ids. A call comes as one `CallStarted`,
then `CallArguments` that are read as one text, then one `CallClosed`; a call without `CallClosed` broke off, and a
`Diagnostic` says why. Knows nothing of how the model wrote it.
"""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Content:
    """Text for the person who asked. Never empty, always whole characters."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text that the model wrote to itself. Never empty, always whole characters."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A call whose name is known as a whole. `index` counts the calls of this stream from 0; `id` is unique."""

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
    """A whole call, `id` as it was started. `arguments` is valid JSON, verbatim; `ids` are those of its region, both
    markers included."""

    index: int
    id: str
    name: str
    arguments: str
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """What is wrong with a call, or with what was meant as one. `index` is the call's if it had started, else None.

    `truncated`: the stream ended inside it. `malformed`: it broke its format's rules; what could not be read is
    content. `failed`: the parser itself did, with `cause`; from there on the whole stream is content. `loose`: calls of
    some tools are held to their names alone; the parser says nothing of it.
    """

    kind: Literal["truncated", "malformed", "failed", "loose"]
    message: str
    index: int | None = None
    cause: Exception | None = field(default=None, compare=False, repr=False)


Event = Content | Reasoning | CallStarted | CallArguments | CallClosed | Diagnostic
