"""The shared store in the tests' own process: the gateway's own code over a Redis in memory, without a wire."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from redis.exceptions import NoScriptError, ResponseError

from gateway.observe.metrics import Metrics
from gateway.shared.redis_store import RedisStore
from gateway.shared.shared_store import SharedStore
from gateway.shared.store_records import StoreKeys
from tests.standins.redis_in_memory import Memory, Refused

SECRET = os.urandom(32)


class Direct:
    """A client without a connection; it can be away."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.is_there = True
        self.refused = 0
        """Commands that got no answer."""
        self.asked = 0
        """All commands."""

    async def execute_command(self, *args: bytes | str | float) -> Any:
        self.asked += 1
        if not self.is_there:
            self.refused += 1
            raise ConnectionError("away")
        try:
            return self._memory.command(*(each if isinstance(each, bytes) else str(each).encode() for each in args))
        except Refused as error:
            raise (NoScriptError if "NOSCRIPT" in str(error) else ResponseError)(str(error)) from None

    async def aclose(self) -> None:
        return


@asynccontextmanager
async def shared_in_memory(
    client: Direct, *secrets: bytes, metrics: Metrics | None = None
) -> AsyncGenerator[SharedStore]:
    """One replica's store."""
    told = (metrics or Metrics()).shared
    store = SharedStore(RedisStore(client, 5.0, told), StoreKeys(secrets or [SECRET], "t:"), told, 5.0)
    async with store.running():
        yield store
