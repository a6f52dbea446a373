"""What replicas share, by names and values that the store can't read.

Turns questions of the rooms above into scripts of one store (`redis_store.py`), and what these give into answers; what
can't be one is no answer.
"""

import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from math import isfinite
from typing import Any, Final

import anyio

from gateway.config.shared import SharedConfig
from gateway.observe.shared_metrics import SharedMetrics
from gateway.shared.interface import Limit, SharedStatus
from gateway.shared.keys import StoreKeys
from gateway.shared.redis_store import RedisStore, open_client
from gateway.shared.scripts import ABSENT, BUCKET, PRESENT

_PRESENT: Final = 15.0
"""Seconds for which a replica counts as there."""
_MOST: Final = 100_000
"""More replicas than that are none."""


class SharedStore:
    """One store, asked by all replicas."""

    def __init__(self, store: RedisStore, keys: StoreKeys) -> None:
        """Nothing is asked yet."""
        self._store = store
        self._keys = keys
        self._me = secrets.token_hex(8)
        self._present = [keys.plain_name("replicas")]
        self._replicas = 1

    @property
    def status(self) -> SharedStatus:
        """How it stands."""
        reason = self._store.reason
        return SharedStatus(reason is None, reason, self._replicas)

    async def take(self, limit: Limit, who: str, size: float, a_second: float) -> float | None:
        """Take a token: 0, or the seconds until there is one."""
        return await self._bucket(limit, who, size, a_second, 1)

    async def wait(self, limit: Limit, who: str, size: float, a_second: float) -> float | None:
        """The same, and take nothing."""
        return await self._bucket(limit, who, size, a_second, 0)

    async def _bucket(self, limit: Limit, who: str, size: float, a_second: float, take: int) -> float | None:
        keys = self._keys.names(limit, who)[:1]
        return _seconds(await self._store.run("limit", BUCKET, keys, [repr(float(size)), repr(float(a_second)), take]))

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Ask it from now on, for as long as the context lasts."""
        async with self._store.running(self._beat):
            try:
                yield
            finally:
                # The others' shares grow at once.
                with anyio.CancelScope(shield=True):
                    await self._store.run("limit", ABSENT, self._present, [self._me])

    async def _beat(self) -> None:
        found: object = await self._store.ask(PRESENT, self._present, [self._me, _PRESENT])
        if not isinstance(found, int) or not 1 <= found <= _MOST:
            raise ValueError("it does not answer as Redis does")
        self._replicas = found


def store_of(config: SharedConfig, secret_keys: Sequence[bytes], metrics: SharedMetrics) -> SharedStore:
    """The store that the settings name. Raises `ConfigError`."""
    client = open_client(config.url or "", config.timeout)
    return SharedStore(RedisStore(client, config.timeout, metrics), StoreKeys(secret_keys, config.prefix))


def _seconds(said: Any) -> float | None:
    """A number that the store gave as text."""
    try:
        seconds = float(said)
    except (TypeError, ValueError):
        return None
    return max(seconds, 0.0) if isfinite(seconds) else None
