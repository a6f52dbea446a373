"""The official Python SDK's client: `python -m tests.exchanges.public.sdk_client < SERVERS`.

Reads servers by name, each with its call; writes what each listed, and what came of the call, as JSON.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, TextIO, cast

import httpx2
from mcp import ClientSession, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import BaseModel

_SECONDS = 120


@asynccontextmanager
async def _opened(server: dict[str, Any]) -> AsyncGenerator[Any]:
    if "url" in server:
        async with (
            httpx2.AsyncClient(timeout=_SECONDS) as http,
            streamable_http_client(server["url"], http_client=http) as streams,
        ):
            yield streams
        return
    env = {"HOME": os.environ["HOME"], "PATH": os.environ["PATH"], **server["env"]}
    parameters = StdioServerParameters(command=server["command"], args=server["args"], env=env)
    async with stdio_client(parameters, errlog=cast("TextIO", subprocess.DEVNULL)) as streams:
        yield streams


def _plain(model: BaseModel) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


async def _listed(listing: Any, items: str) -> Any:
    try:
        return [_plain(item) for item in getattr(await listing(), items)]
    except MCPError as error:
        return {"error": error.error.code}


async def _tried(name: str, server: dict[str, Any]) -> dict[str, Any]:
    async with _opened(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        said = {
            "tools": await _listed(session.list_tools, "tools"),
            "prompts": await _listed(session.list_prompts, "prompts"),
            "resources": await _listed(session.list_resources, "resources"),
            "templates": await _listed(session.list_resource_templates, "resource_templates"),
        }
        wanted = (server["tool"], f"{name}__{server['tool']}")
        tool = next(each["name"] for each in said["tools"] if each["name"] in wanted)
        try:
            said["call"] = _plain(await session.call_tool(tool, server["arguments"]))
        except MCPError as error:
            said["call"] = {"error": {"code": error.error.code, "message": error.error.message}}
        return said


async def _main() -> None:
    servers: dict[str, dict[str, Any]] = json.load(sys.stdin)
    said: dict[str, Any] = {}
    for name, server in servers.items():
        try:
            async with asyncio.timeout(_SECONDS):
                said[name] = await _tried(name, server)
        except Exception as error:
            said[name] = {"failed": repr(error)}
    json.dump(said, sys.stdout)


if __name__ == "__main__":
    asyncio.run(_main())
