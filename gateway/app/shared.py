"""The store that replicas share, opened for the life of one gateway, where one is configured."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from gateway.config.replicas import SharedConfig
from gateway.errors import ConfigError
from gateway.observe.shared_metrics import SharedMetrics
from gateway.replicas import Replicas
from gateway.shared import Shared


@asynccontextmanager
async def open_shared(
    config: SharedConfig, replicas: Replicas, metrics: SharedMetrics
) -> AsyncGenerator[Shared | None]:
    """Open the store; yields None if none is configured. Nothing waits for a store that is unreachable.

    Raises:
        ConfigError: its address is invalid, or the extra `shared` is not installed.
    """
    if config.url is None:
        yield None
        return
    try:
        from gateway.shared.store import store_of
    except ImportError:
        raise ConfigError(
            "shared.url is set, but the package 'redis' is not installed: pip install 'codec-gateway[shared]'"
        ) from None
    store = store_of(config, replicas.shared_keys("store"), metrics)
    async with store.running():
        yield store
