"""What replicas share, under names and values that the store can't read.

Turns questions of the packages above into scripts for one store (`redis_store.py`), and their results into answers. A
result that makes no sense counts as no answer.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, get_args

import anyio

from gateway.config.replicas import SharedConfig
from gateway.observe.backend_metrics import SharedMetrics
from gateway.shared.redis_store import RedisStore, open_client
from gateway.shared.scripts import ABSENT, ACQUIRE, BUCKET, DROP, FIND, KEEP, NEWEST, PRESENT, RELEASE
from gateway.shared.store_interface import WHOLE, SharedStatus, StoreBounds, StoreKind, StoreLimit, StoreRecord
from gateway.shared.store_records import RecordSeal, StoreKeys, Unreadable

Before = Callable[[], Sequence[StoreRecord]]

_PRESENT: Final = 15.0
"""Seconds for which a replica counts as present after it last said so."""
_MOST: Final = 100_000
"""Replicas at most: a store that counts more is not believed."""
_LARGEST: Final = 4 * 1024 * 1024
"""Bytes that are asked for or written at a time: more would not be transferred in time."""
_LAST: Final = 2.0
"""Seconds that unfinished writes may take when the store is closed."""
_SIGN_IN: Final = "sign-in"
_LEASE: Final = "lease"
_WRITING: Final = 32 * 1024 * 1024
"""Bytes that may be on their way to the store at a time."""


class SharedStore:
    """Implements `Shared` over one Redis store."""

    def __init__(self, store: RedisStore, keys: StoreKeys, metrics: SharedMetrics, timeout: float) -> None:
        """Ask nothing yet. `timeout`: the seconds for which anybody waits for a write."""
        self._store = store
        self._keys = keys
        self._metrics = metrics
        self._timeout = timeout
        self._seals: dict[StoreKind, RecordSeal] = {kind: RecordSeal(keys, kind) for kind in get_args(StoreKind)}
        self._writes: set[asyncio.Task[object]] = set()
        self._writing = 0
        """Bytes that are on their way."""
        self._me = secrets.token_hex(8)
        self._present = [keys.plain_name("replicas")]
        self._replicas = 1

    @property
    def status(self) -> SharedStatus:
        """See `Shared`."""
        reason = self._store.reason
        return SharedStatus(reason is None, reason, self._replicas)

    async def take(self, limit: StoreLimit, who: str, size: float, a_second: float) -> float | None:
        """See `Shared.take`."""
        return await self._bucket(limit, who, size, a_second, 1)

    async def wait(self, limit: StoreLimit, who: str, size: float, a_second: float) -> float | None:
        """See `Shared.wait`."""
        return await self._bucket(limit, who, size, a_second, 0)

    async def find(
        self, kind: StoreKind, owner: str, record: str, bounds: StoreBounds, *, depth: int = WHOLE
    ) -> list[StoreRecord]:
        """See `Shared.find`."""
        found = await self._found(kind, owner, self._seals[kind].names(owner, record), bounds, depth)
        if found and found[-1].id != record:
            # Somebody has made the record's key lead to another one.
            self._metrics.asked(kind, "unreadable")
            return []
        return found

    async def find_alias(
        self, kind: StoreKind, owner: str, aliases: Sequence[str], bounds: StoreBounds, *, depth: int = WHOLE
    ) -> list[StoreRecord]:
        """See `Shared.find_alias`."""
        names = [name for alias in aliases for name in self._seals[kind].aliases(owner, alias)]
        return await self._found(kind, owner, names, bounds, depth)

    async def _found(
        self, kind: StoreKind, owner: str, names: Sequence[bytes], bounds: StoreBounds, depth: int
    ) -> list[StoreRecord]:
        sealed = self._seals[kind]
        args = [_LARGEST, depth, bounds.ttl, sealed.owner(owner)]
        given = await self._store.run(kind, FIND, [sealed.place, *names], args)
        if given is None:
            return []
        try:
            found = sealed.opened(owner, given, depth)
        except Unreadable:
            self._metrics.asked(kind, "unreadable")
            return []
        if not found:
            self._metrics.asked(kind, "nothing")
        return found

    def keep(
        self, kind: StoreKind, owner: str, record: StoreRecord, bounds: StoreBounds, before: Before = tuple
    ) -> Awaitable[object]:
        """See `Shared.keep`."""
        return self._write_in_background(kind, record, lambda: self._keep(kind, owner, record, bounds, before), bounds)

    def keep_last(self, kind: StoreKind, owner: str, record: StoreRecord, bounds: StoreBounds) -> Awaitable[object]:
        """See `Shared.keep_last`."""
        return self._write_in_background(
            kind, record, lambda: self._put(kind, owner, record, bounds, whole=False), bounds
        )

    def _write_in_background(
        self,
        kind: StoreKind,
        record: StoreRecord,
        write: Callable[[], Coroutine[Any, Any, object]],
        bounds: StoreBounds,
    ) -> Awaitable[object]:
        size = len(record.value)
        if self._store.reason is not None or size > min(bounds.share, _LARGEST) or self._writing + size > _WRITING:
            self._metrics.asked(kind, "away" if self._store.reason is not None else "dropped")
            return _NOTHING
        self._writing += size
        task = self.run_in_background(write())

        def over(_: asyncio.Task[object]) -> None:
            self._writing -= size

        task.add_done_callback(over)
        return _Written(task, self._timeout)

    def run_in_background(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
        """See `Shared.run_in_background`."""
        task = asyncio.get_running_loop().create_task(work)
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        return task

    async def _keep(
        self, kind: StoreKind, owner: str, record: StoreRecord, bounds: StoreBounds, before: Before
    ) -> None:
        if await self._put(kind, owner, record, bounds) == 0 and (earlier := before()):
            # What it follows was written while the store was away, or has given way there.
            for each in (*earlier, record):
                if not await self._put(kind, owner, each, bounds):
                    return

    async def _put(
        self, kind: StoreKind, owner: str, record: StoreRecord, bounds: StoreBounds, *, whole: bool = True
    ) -> object:
        sealed = self._seals[kind]
        keys, value, before = sealed.sealed(owner, record)
        args = [value, before, bounds.ttl, sealed.owner(owner), bounds.most, bounds.share, int(whole)]
        return await self._store.run(kind, KEEP, [sealed.place, *keys], args)

    async def drop(self, kind: StoreKind, owner: str, record: str) -> bool | None:
        """See `Shared.drop`."""
        sealed = self._seals[kind]
        keys = [sealed.place, *sealed.names(owner, record)]
        dropped: object = await self._store.run(kind, DROP, keys, [sealed.owner(owner)])
        return None if dropped is None else bool(dropped)

    async def newest(self, owner: str, name: str, version: int, value: bytes, ttl: float) -> bytes | None:
        """See `Shared.newest`."""
        names = self._keys.names(_SIGN_IN, owner, name)
        sealed = self._keys.seal(_SIGN_IN, owner, names[0], value) if value else b""
        found: object = await self._store.run(_SIGN_IN, NEWEST, names, [version, sealed, int(ttl * 1000)])
        match found:
            case []:
                return b""
            case [bytes(at), bytes(stored)]:
                opened = self._keys.opened(_SIGN_IN, owner, at, stored)
                if opened is None:
                    self._metrics.asked(_SIGN_IN, "unreadable")
                return opened or b""
            case _:
                return None

    async def acquire(self, owner: str, name: str, seconds: float) -> bool | None:
        """See `Shared.acquire`."""
        if self._store.reason is None and self._store.back_for < seconds:
            # Whoever took the lease before may have no time left in the store, or the store may have forgotten it.
            return False
        names = self._keys.names(_LEASE, owner, name)
        taken: object = await self._store.run(_SIGN_IN, ACQUIRE, names, [self._me, int(seconds * 1000)])
        return None if taken not in (0, 1) else taken == 1

    async def release(self, owner: str, name: str) -> None:
        """See `Shared.release`."""
        await self._store.run(_SIGN_IN, RELEASE, self._keys.names(_LEASE, owner, name), [self._me])

    async def _bucket(self, limit: StoreLimit, who: str, size: float, a_second: float, take: int) -> float | None:
        keys = self._keys.names(limit, who)[:1]
        said = await self._store.run("limit", BUCKET, keys, [repr(float(size)), repr(float(a_second)), take])
        # An empty bucket has its next token after this time at most; more is not believed.
        return _seconds(said, 1.001 / a_second)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Use the store for as long as the context lasts."""
        async with self._store.running(self._beat):
            try:
                yield
            finally:
                with anyio.move_on_after(_LAST, shield=True):
                    while self._writes:
                        await asyncio.wait(self._writes)
                for each in self._writes:
                    each.cancel()
                # So that the shares of the other replicas grow at once.
                with anyio.CancelScope(shield=True):
                    await self._store.run("limit", ABSENT, self._present, [self._me])

    async def _beat(self) -> None:
        found: object = await self._store.ask(PRESENT, self._present, [self._me, _PRESENT])
        if not isinstance(found, int) or not 1 <= found <= _MOST:
            raise ValueError("it does not answer like Redis")
        self._replicas = found


class _Written:
    def __init__(self, task: "asyncio.Task[object] | None", timeout: float) -> None:
        self._task = task
        self._timeout = timeout

    def __await__(self) -> Generator[Any, None, None]:
        if self._task is not None:
            yield from asyncio.wait({self._task}, timeout=self._timeout).__await__()


_NOTHING: Final = _Written(None, 0)


def store_of(config: SharedConfig, secret_keys: Sequence[bytes], metrics: SharedMetrics) -> SharedStore:
    """The store that the settings name. Raises `ConfigError`."""
    client = open_client(config.url or "", config.timeout)
    keys = StoreKeys(secret_keys, config.prefix)
    return SharedStore(RedisStore(client, config.timeout, metrics), keys, metrics, config.timeout)


def _seconds(said: Any, most: float) -> float | None:
    """The seconds that the store returned as text; None if they can't be right."""
    try:
        seconds = float(said)
    except (TypeError, ValueError):
        return None
    return max(seconds, 0.0) if -most <= seconds <= most else None
