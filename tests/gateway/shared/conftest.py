import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

import anyio
import pytest

from gateway.config.replicas import SharedConfig
from gateway.observe.metrics import Metrics
from gateway.shared.shared_store import SharedStore, store_of
from tests.standins.stores import REAL, Store, running_store

collect_ignore = [] if REAL else ["test_real_redis.py"]
SECRET = os.urandom(32)


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with running_store() as store:
        yield store


@asynccontextmanager
async def open_store(
    url: str,
    metrics: Metrics | None = None,
    secrets: tuple[bytes, ...] = (SECRET,),
    prefix: str = "t:",
    *,
    timeout: float = 30.0,
    up: bool = True,
) -> AsyncGenerator[SharedStore]:
    """One replica's store. `up`: wait until it answers."""
    shared = store_of(SharedConfig(url, prefix, timeout=timeout), secrets, (metrics or Metrics()).shared)
    async with shared.running():
        if up:
            await until_up(shared)
        yield shared


async def until_up(shared: SharedStore, up: bool = True) -> None:
    with anyio.fail_after(30):
        while shared.status.up is not up:  # noqa: ASYNC110 - it says nothing when it is
            await anyio.sleep(0.02)


def asked(metrics: Metrics, kind: str, result: str) -> float:
    labels = {"kind": kind, "result": result}
    return metrics.registry.get_sample_value("codec_shared_operations_total", labels) or 0.0
