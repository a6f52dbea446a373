"""Small servers over stdio, a parent's socket for them, and workers that talk to it, all in one process."""

import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.config.gateway_config import UpstreamConfig
from gateway.observe.logs import get_logger
from gateway.proxy.caller import NOBODY, Exchange
from gateway.proxy.transport.stdio.hosted import open_hosted
from gateway.proxy.transport.transport_interface import Transport
from gateway.workers.stdio.shared_process import StdioHost

SERVERS = Path(__file__).parents[2] / "proxy" / "servers"
BOUND = 100_000
Open = Callable[..., AbstractAsyncContextManager[Transport]]


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """Where servers write what the test shall know."""
    return tmp_path / "notes"


@pytest.fixture
def upstream(notes: Path) -> Callable[..., UpstreamConfig]:
    """Makes the configuration of a server: one of the scripts of the proxy's tests, or a program's text."""

    def make(script: str, *args: str, **settings: Any) -> UpstreamConfig:
        place = ("-c", script) if "\n" in script else (str(SERVERS / f"{script}.py"),)
        env = {"NOTES": str(notes), "PYTHONPATH": str(SERVERS)}
        return UpstreamConfig("up", command=sys.executable, args=(*place, *args), env=env, **settings)

    return make


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    """Where the parent listens."""
    return tmp_path / "servers.sock"


@pytest.fixture
def host(socket: Path) -> Callable[[], AbstractAsyncContextManager[None]]:
    """The parent's part."""
    return lambda: StdioHost().listening(socket)


@pytest.fixture
def opened(socket: Path) -> Open:
    """A worker's connection to a server; `own`: to a process of its own."""

    @asynccontextmanager
    async def open_one(
        config: UpstreamConfig, pushes: Exchange = NOBODY, *, own: bool = False
    ) -> AsyncGenerator[Transport]:
        unclaimed = None if own else NOBODY
        log = get_logger("test")
        async with open_hosted(config, pushes, socket, unclaimed=unclaimed, line_bound=BOUND, log=log) as transport:
            yield transport

    return open_one
