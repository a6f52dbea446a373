"""The official Python SDK's client at an odd server: what it gets, directly or through the gateway.

Turns a transport of the SDK into an outcome: the answer to a call of the server's first tool, the error it was answered
with, or nothing.
"""

import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, cast

import anyio
import httpx2
from mcp import ClientSession, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.odd_servers.behaviours import TABLES
from tests.odd_servers.http_server import OddHttp

SCRIPT = str(Path(__file__).with_name("stdio_server.py"))
_AT_ONCE = 24


@dataclass(frozen=True)
class Outcome:
    """What a client got."""

    verdict: str
    """`answer`, `error CODE`, or `nothing`."""
    value: Any = None
    """The result or the error, without what every client adds; why there is none."""


def arguments_of(says: dict[str, Any]) -> list[str]:
    """The command of an odd server on standard input and output."""
    # Without site-packages it starts in half the time.
    return [sys.executable, "-S", "-E", SCRIPT, json.dumps(says)]


@asynccontextmanager
async def over_stdio(says: dict[str, Any]) -> AsyncGenerator[Any]:
    """The SDK's transport to an odd server's process."""
    command, *arguments = arguments_of(says)
    async with stdio_client(
        StdioServerParameters(command=command, args=arguments), errlog=cast("TextIO", subprocess.DEVNULL)
    ) as streams:
        yield streams


@asynccontextmanager
async def over_http(url: str) -> AsyncGenerator[Any]:
    """The SDK's transport to an odd server's address."""
    # Without a look at the machine's certificates, which costs more than all that the client then does.
    async with (
        httpx2.AsyncClient(timeout=60, verify=False) as http,
        streamable_http_client(url, http_client=http) as streams,
    ):
        yield streams


async def call(session: ClientSession, tool: str, says: dict[str, Any]) -> Outcome:
    """What a call of this tool gives. An error counts only if the server answers with one: the SDK makes some up."""
    try:
        result = await session.call_tool(tool, {"word": "x"})
    except MCPError as error:
        sent = says.get("call_outcome", {}).get("error")
        is_the_servers = isinstance(sent, dict) and sent.get("code") == error.error.code
        return Outcome(f"error {error.error.code}" if is_the_servers else "nothing", error.error.message)
    except (ValueError, RuntimeError) as error:
        return Outcome("nothing", repr(error))
    return Outcome("answer", result.model_dump(mode="json", by_alias=True, exclude_none=True))


async def try_out(says: dict[str, Any], transport: AbstractAsyncContextManager[Any], seconds: float) -> Outcome:
    """What the client gets from a server of its own: initialize, tools/list, one call."""
    outcome = Outcome("nothing", "no answer in time")
    try:
        with anyio.move_on_after(seconds):
            async with transport as (read, write), ClientSession(read, write) as session:
                await session.initialize()
                tools = (await session.list_tools()).tools
                outcome = await call(session, tools[0].name, says)
    except Exception as error:
        if outcome.verdict == "nothing":
            outcome = Outcome("nothing", repr(error))
    return outcome


async def try_all(
    servers: OddHttp, seconds: Callable[[str, str], float], wanted: Collection[tuple[str, str]] | None = None
) -> dict[tuple[str, str], Outcome]:
    """What the client gets from odd servers directly, from all or those of `wanted`: transports and names. `seconds`:
    how long it waits for one."""
    found: dict[tuple[str, str], Outcome] = {}
    limit = anyio.CapacityLimiter(_AT_ONCE)

    async def one(transport: str, number: int, name: str, says: dict[str, Any]) -> None:
        async with limit:
            opened = over_stdio(says) if transport == "stdio" else over_http(servers.url(number))
            found[transport, name] = await try_out(says, opened, seconds(transport, name))

    async with anyio.create_task_group() as tasks:
        for transport, table in TABLES.items():
            for number, (name, says) in enumerate(table.items()):
                if wanted is None or (transport, name) in wanted:
                    tasks.start_soon(one, transport, number, name, says)
    return found
