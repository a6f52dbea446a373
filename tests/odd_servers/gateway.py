"""A gateway in front of odd servers, and what the official Python SDK's client gets through it.

Many servers are behind one gateway, and one client lists them together: so what one server does to others shows, too.
"""

import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import httpx2
import uvicorn
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from gateway.config.gateway_config import GatewayConfig, LimitsConfig, UpstreamConfig
from gateway.observe.metrics import Metrics
from gateway.proxy.caller import NOBODY
from gateway.proxy.proxy import Proxy
from gateway.serve.mcp import McpEndpoint
from tests.odd_servers.behaviours import TABLES
from tests.odd_servers.clients import Outcome, arguments_of, call
from tests.odd_servers.http_server import OddHttp

AT_ONCE = 16
"""Calls at a time."""


Names = dict[str, tuple[str, str]]
"""The names under which a gateway knows servers: transport and behaviour of each."""


def names_of() -> Names:
    """The names of all servers."""
    return {
        f"{transport}{number}": (transport, name)
        for transport, table in TABLES.items()
        for number, name in enumerate(table)
    }


def config_of(servers: OddHttp, names: Names) -> GatewayConfig:
    """The configuration with these servers."""
    pipes = [
        UpstreamConfig(name=f"stdio{number}", command=arguments_of(says)[0], args=tuple(arguments_of(says)[1:]))
        for number, says in enumerate(TABLES["stdio"].values())
        if f"stdio{number}" in names
    ]
    addresses = [
        # Hundreds of tools would be written anew with every other server's, once they are pinned.
        UpstreamConfig(name=f"http{number}", url=servers.url(number), pin="off" if "more_tools" in says else "warn")
        for number, says in enumerate(TABLES["http"].values())
        if f"http{number}" in names
    ]
    return GatewayConfig(
        upstreams=(*pipes, *addresses),
        prefix="always",
        limits=LimitsConfig(restart_backoff=1.0, restart_backoff_max=300.0),
    )


@asynccontextmanager
async def gateway_of(config: GatewayConfig) -> AsyncGenerator[tuple[Proxy, ClientSession]]:
    """A running gateway, and a client that is connected to it."""
    async with (
        serving(config) as (proxy, url),
        httpx2.AsyncClient(timeout=120) as http,
        streamable_http_client(url, http_client=http) as (read, write),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        yield proxy, session


@asynccontextmanager
async def serving(config: GatewayConfig) -> AsyncGenerator[tuple[Proxy, str]]:
    """A running gateway, and its address."""
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(Proxy(config, Metrics()))
        endpoint = McpEndpoint(proxy, config, tokens=None, maps={})
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        settings = uvicorn.Config(
            endpoint,
            interface="asgi3",
            lifespan="off",
            log_level="critical",
            ws="none",
            # The client is idle until all servers are up, and its next request must not meet the end of its connection.
            timeout_keep_alive=600,
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(settings)
        await stack.enter_async_context(endpoint.running())
        tasks = await stack.enter_async_context(anyio.create_task_group())
        tasks.start_soon(server.serve, [listener])
        stack.callback(lambda: setattr(server, "should_exit", True))
        yield proxy, f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"


async def until_up(proxy: Proxy, wanted: set[str]) -> None:
    """Wait until these servers are up."""
    changed = anyio.Event()

    def note() -> None:
        changed.set()

    proxy.on_tools_changed(note)
    while not wanted <= {each.name for each in proxy.statuses() if each.state == "up"}:
        await changed.wait()
        changed = anyio.Event()


async def first_tools(session: ClientSession) -> dict[str, str]:
    """The first tool of each server, as the client is shown them."""
    tools: dict[str, str] = {}
    for tool in (await session.list_tools()).tools:
        tools.setdefault(tool.name.partition("__")[0], tool.name)
    return tools


async def raw_result(proxy: Proxy, tool: str) -> dict[str, Any]:
    """The result of a call, as JSON."""
    return await proxy.handle("tools/call", {"name": tool, "arguments": {"word": "x"}}, NOBODY)


async def outcomes(
    session: ClientSession, tools: Mapping[str, str], names: Mapping[str, tuple[str, str]]
) -> dict[str, Outcome]:
    """What the client gets from each server."""
    found: dict[str, Outcome] = {}
    limit = anyio.CapacityLimiter(AT_ONCE)

    async def one(server: str, tool: str) -> None:
        transport, name = names[server]
        async with limit:
            found[server] = await call(session, tool, TABLES[transport][name])

    async with anyio.create_task_group() as tasks:
        for server, tool in tools.items():
            tasks.start_soon(one, server, tool)
    return found
