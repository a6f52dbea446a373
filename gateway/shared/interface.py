"""What replicas share through a store, as the packages above see it.

Every caller can go on without an answer: None says that the store is down, slow or at fault. Only the operator is told.
Kept apart from the implementation, so that a gateway without a store loads nothing of it.
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
    """Something that is kept for its owner, and what it follows. It never changes, and no id is used twice."""

    id: str
    before: str | None
    """The id of the record that it follows."""
    value: bytes
    aliases: tuple[str, ...] = ()
    """By which it is found as well; one that is given again names the newer record."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much of one kind all replicas together keep in a store."""

    most: int
    """Bytes in all."""
    share: int
    """Bytes of one owner, once there are several."""
    ttl: float
    """Seconds for which something is kept that nobody uses."""

    @classmethod
    def of(cls, most: int, share: float, ttl: float) -> Self:
        """`share`: the part of all that one owner may have."""
        return cls(most, int(most * share), ttl)


@dataclass(frozen=True, slots=True)
class SharedStatus:
    """Whether the store answers."""

    up: bool
    reason: str | None
    """Why not."""
    replicas: int
    """How many use it, as it was last told: 1 at least."""


class Shared(Protocol):
    """One store, asked by all replicas."""

    @property
    def status(self) -> SharedStatus:
        """Whether the store answers, and why not."""
        ...

    async def take(self, limit: Limit, who: str, size: float, a_second: float) -> float | None:
        """Take a token from somebody's bucket, which all replicas share. Gives 0, or the seconds until there is one.

        `size`: the tokens of a full bucket; `a_second`: how many come back each second.
        """
        ...

    async def wait(self, limit: Limit, who: str, size: float, a_second: float) -> float | None:
        """The seconds until there is a token, taking none."""
        ...

    async def find(self, room: Room, owner: str, record: str, bounds: Bounds, *, depth: int = WHOLE) -> list[Record]:
        """An owner's record and all that it follows, oldest first, without aliases; [] if there is none.

        `depth`: the most records to give.
        """
        ...

    async def find_alias(
        self, room: Room, owner: str, aliases: Sequence[str], bounds: Bounds, *, depth: int = WHOLE
    ) -> list[Record]:
        """As `find`, by the first of several aliases that names any record."""
        ...

    def keep(
        self, room: Room, owner: str, record: Record, bounds: Bounds, before: Callable[[], Sequence[Record]] = tuple
    ) -> Awaitable[object]:
        """Keep a record, without making the caller wait. The result may be awaited, whether or not the record is kept.

        What it follows is kept with it, and as long. `before`: gives all of that, oldest first, if the store has lost
        it; () if it is not known here.
        """
        ...

    def keep_last(self, room: Room, owner: str, record: Record, bounds: Bounds) -> Awaitable[object]:
        """As `keep`, for a record that is of use even when what it follows has expired."""
        ...

    def behind(self, work: Coroutine[Any, Any, object]) -> Task[object]:
        """Run this in the background. It is finished before the store is left."""
        ...

    async def drop(self, room: Room, owner: str, record: str) -> bool | None:
        """Forget an owner's record. Gives whether it was there; None: the store did not answer."""
        ...
