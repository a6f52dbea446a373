"""Transports over HTTP, on both event loops."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import pytest

from gateway.config.gateway_config import UpstreamConfig
from gateway.errors import RpcError
from gateway.observe.logs import get_logger
from gateway.proxy.transport.http.http_transport import HttpClient, open_http, open_http_client
from gateway.proxy.transport.oauth.grants import GrantStore
from gateway.proxy.transport.oauth.token_renewal import authorizer_for
from gateway.proxy.transport.transport_interface import Transport

BOUND = 100_000


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": request.param}


class Listener:
    """Hears what a server pushes, and answers what it asks."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self.release = asyncio.Event()
        self.release.set()
        self._changed = asyncio.Event()

    def notified(self, method: str, params: dict[str, Any]) -> None:
        self.heard.append((method, params))
        self._changed.set()

    async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "roots/list":
            raise RpcError({"code": -32601, "message": "no roots"})
        await self.release.wait()
        return {"method": method, **params}

    async def until(self, condition: Callable[[], bool]) -> None:
        with anyio.fail_after(20):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def make_listener() -> Callable[[], Listener]:
    return Listener


@pytest.fixture
def opened(listener: Listener) -> Callable[..., AbstractAsyncContextManager[Transport]]:
    """Opens a transport to a URL, by a client of its own unless one is given."""

    @asynccontextmanager
    async def open_one(
        url: str,
        *,
        client: HttpClient | None = None,
        bound: int = BOUND,
        store: GrantStore | None = None,
        **settings: Any,
    ) -> Any:
        config = UpstreamConfig(name="web", url=url, **settings)
        log = get_logger("test")
        async with open_http_client() as own:
            shared = client or own
            authorizer = authorizer_for(config, shared, store or GrantStore(), log)
            async with open_http(
                config, listener, bound=bound, log=log, client=shared, authorizer=authorizer
            ) as transport:
                yield transport

    return open_one
