"""What replicas share through a store, as the packages above see it.

Every caller can go on without an answer: None means that the store is down, slow or at fault. Only the operator is
told. Values come back from their bytes as they were, lone surrogates included. Kept apart from the implementation, so
that a gateway without a store loads none of it.
"""

from asyncio import Task
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, Self, cast

import msgpack

_packb, _unpackb = cast("Any", msgpack.packb), cast("Any", msgpack.unpackb)

StoreLimit = Literal["rate", "tries"]
"""What is limited: a principal's requests a minute, an address's wrong guesses."""

StoreKind = Literal["response", "memory", "event", "pending"]
"""What is kept: stored responses, answers of conversations, events of sessions, and sign-ins that have begun."""

WHOLE: Final = 1 << 20
"""A depth without a limit: all the records of a chain, or none if it has more than 2048."""


@dataclass(frozen=True, slots=True)
class StoreRecord:
    """Something that is kept for its owner, and what it follows. It never changes, and ids are not reused."""

    id: str
    before: str | None
    """The id of the record that it follows."""
    value: bytes
    aliases: tuple[str, ...] = ()
    """Other names by which it is found. An alias that is used again names the newer record."""


@dataclass(frozen=True, slots=True)
class StoreBounds:
    """How much of one kind of record all replicas together keep in a store."""

    most: int
    """Bytes in all."""
    share: int
    """Bytes for one owner, once there are several."""
    ttl: float
    """Seconds for which an unused record is kept."""

    @classmethod
    def of(cls, most: int, share: float, ttl: float) -> Self:
        """Make bounds. `share`: the part of `most` that one owner may have."""
        return cls(most, int(most * share), ttl)


@dataclass(frozen=True, slots=True)
class SharedStatus:
    """Whether the store answers."""

    up: bool
    reason: str | None
    """Why it does not answer; None: it does."""
    replicas: int
    """How many replicas use the store, as it last said; at least 1."""


class Shared(Protocol):
    """One store, asked by all replicas."""

    @property
    def status(self) -> SharedStatus:
        """Whether the store answers, and why not."""
        ...

    async def take(self, limit: StoreLimit, who: str, size: float, a_second: float) -> float | None:
        """Take a token from a bucket that all replicas share. Returns 0, or the seconds until there is a token.

        `size`: the tokens of a full bucket; `a_second`: how many come back each second.
        """
        ...

    async def wait(self, limit: StoreLimit, who: str, size: float, a_second: float) -> float | None:
        """The seconds until there is a token, without taking one."""
        ...

    async def find(
        self, kind: StoreKind, owner: str, record: str, bounds: StoreBounds, *, depth: int = WHOLE
    ) -> list[StoreRecord]:
        """A record of an owner and all that it follows, oldest first, without aliases; [] if there is none.

        `depth`: the most records to give.
        """
        ...

    async def find_alias(
        self, kind: StoreKind, owner: str, aliases: Sequence[str], bounds: StoreBounds, *, depth: int = WHOLE
    ) -> list[StoreRecord]:
        """Like `find`, by the first of several aliases that names a record."""
        ...

    def keep(
        self,
        kind: StoreKind,
        owner: str,
        record: StoreRecord,
        bounds: StoreBounds,
        before: Callable[[], Sequence[StoreRecord]] = tuple,
    ) -> Awaitable[object]:
        """Keep a record, without making the caller wait. The result may be awaited, whether or not the record is kept.

        What it follows is kept as long. `before`: returns all of that, oldest first, in case the store has lost it;
        () if it is not known here.
        """
        ...

    def keep_last(self, kind: StoreKind, owner: str, record: StoreRecord, bounds: StoreBounds) -> Awaitable[object]:
        """Like `keep`, for a record that is useful even when what it follows has expired."""
        ...

    def run_in_background(self, work: Coroutine[Any, Any, object]) -> Task[object]:
        """Run this in the background. Closing the store waits for it, for up to 2 s."""
        ...

    async def drop(self, kind: StoreKind, owner: str, record: str) -> bool | None:
        """Delete an owner's record. Returns whether it existed; None: the store did not answer."""
        ...

    async def newest(self, owner: str, name: str, version: int, value: bytes, ttl: float) -> bytes | None:
        """The value of a sign-in, if its version is higher than this one; else empty, and this value is stored.

        None: the store did not answer. `value`: empty: there is none here. `ttl`: seconds for which it is kept.
        """
        ...

    async def acquire(self, owner: str, name: str, seconds: float) -> bool | None:
        """Take the lease of a sign-in, which ends by itself after these seconds.

        False: another replica has it, or may have had it when the store went away, less than these seconds ago.
        """
        ...

    async def release(self, owner: str, name: str) -> None:
        """End a lease that was taken here."""
        ...


def packed(value: object) -> bytes:
    """Lists, strings, bytes and numbers, as bytes."""
    data: bytes = _packb(value, unicode_errors="surrogatepass")
    return data


def unpacked(data: bytes) -> Any:
    """The value that `packed` turned into bytes."""
    return _unpackb(data, unicode_errors="surrogatepass", strict_map_key=False)
