"""What replicas share through a store, as the packages above see it.

Whoever asks goes on without an answer: None says that the store is away, slow or at fault, which nobody is told but who
runs the gateway. Apart from what does it: a gateway without a store loads nothing of that.
"""

from asyncio import Task
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, Self

Limit = Literal["rate", "tries"]
"""What is limited: a principal's requests a minute, an address's wrong guesses."""

Room = Literal["response", "memory", "event"]
"""What is kept: stored responses, answers of conversations, and events of sessions."""

WHOLE: Final = 1 << 20
"""Records of which as many as there are, since no more than 2048 that follow each other are ever given: all or none."""


@dataclass(frozen=True, slots=True)
class Record:
    """Something that is kept for its owner, and what it follows. It never changes: an id is never used twice."""

    id: str
    before: str | None
    """The id of the record that it follows."""
    value: bytes
    aliases: tuple[str, ...] = ()
    """By which it is found as well; one that is given again names the newer record."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much of one kind is kept in a store, for all replicas."""

    most: int
    """Bytes in all."""
    share: int
    """Bytes of one owner, once there are several."""
    ttl: float
    """Seconds for which something is kept that nobody uses."""

    @classmethod
    def of(cls, most: int, share: float, ttl: float) -> Self:
        """`share`: of one owner, as a part of all."""
        return cls(most, int(most * share), ttl)


@dataclass(frozen=True, slots=True)
class SharedStatus:
    """How the store stands."""

    up: bool
    reason: str | None
    """Why not."""
    replicas: int
    """How many use it, as it was last told: 1 at least."""


class Shared(Protocol):
    """One store, asked by all replicas."""

    @property
    def status(self) -> SharedStatus:
        """How it stands."""
        ...

    async def take(self, limit: Limit, who: str, size: float, a_second: float) -> float | None:
        """Take a token of the bucket that all replicas have for somebody: 0, or the seconds until there is one.

        `size`: tokens of a full bucket; `a_second`: how many come back.
        """
        ...

    async def wait(self, limit: Limit, who: str, size: float, a_second: float) -> float | None:
        """The same, and take nothing."""
        ...

    async def find(self, room: Room, owner: str, record: str, bounds: Bounds, *, depth: int = WHOLE) -> list[Record]:
        """A record of this owner's and all that it follows, the first one first, without aliases; [] for nothing.

        `depth`: records at most.
        """
        ...

    async def find_alias(
        self, room: Room, owner: str, aliases: Sequence[str], bounds: Bounds, *, depth: int = WHOLE
    ) -> list[Record]:
        """The same of the first of several aliases that names one, whatever it is that it names."""
        ...

    def keep(
        self, room: Room, owner: str, record: Record, bounds: Bounds, before: Callable[[], Sequence[Record]] = tuple
    ) -> Awaitable[object]:
        """Keep a record, behind whoever asks for it. Gives what can be waited for, be it kept or not.

        What it follows is there then, and kept as long. `before`: all of that, the first one first, asked for if the
        store has lost it; () where it is not known here.
        """
        ...

    def keep_last(self, room: Room, owner: str, record: Record, bounds: Bounds) -> Awaitable[object]:
        """The same of a record that is worth something without what it follows, which goes when its time is over."""
        ...

    def behind(self, work: Coroutine[Any, Any, object]) -> Task[object]:
        """Have something done behind whoever asks for it, and before the store is left."""
        ...

    async def drop(self, room: Room, owner: str, record: str) -> bool | None:
        """Forget a record of this owner's. Gives whether it was there."""
        ...
