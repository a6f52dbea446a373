"""The client that the suite's client mode runs: `python -m conformance.client URL`.

Speaks to the suite's test server through `codec-gateway stdio`, which is the client that the suite sees. It uses
everything that the gateway offers: calls each tool, gets each prompt, reads each resource, answers each question with
its defaults. Tools are listed unfiltered: the SDK's own client would leave out the invalid ones, which is the gateway's
task here. `suite.py` names this module in the suite's command line.
"""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from mcp import Client, MCPError, StdioServerParameters
from mcp.client.session import ClientRequestContext
from mcp.types import (
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    ListToolsRequest,
    ListToolsResult,
    Tool,
)
from pydantic import ValidationError

from bench.processes import write_config

if TYPE_CHECKING:
    from mcp.client.client import ConnectMode

_SETTINGS: Final = '[engine]\nkind = "none"\n\n[tokens]\nmap = "none"\n'
_SAMPLES: Final[Mapping[str, Any]] = {"string": "text", "integer": 5, "number": 3, "boolean": True, "array": []}
_FOCAL, _ECHO = "json_schema_2020_12_tool", "json_schema_echo"
"""A tool whose schema the client must send back as the argument of another one."""


async def main() -> None:
    """Use everything that the server at the URL offers, in the era that the suite asks for."""
    modern = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "").startswith("2026")
    with tempfile.TemporaryDirectory(prefix="conformance-client-") as folder:
        server = _gateway(Path(folder), sys.argv[1])
        mode: ConnectMode = "auto" if modern else "legacy"
        async with Client(server, mode=mode, elicitation_callback=_answer) as client:
            await _use(client, await _tools(client))


def _gateway(folder: Path, url: str) -> StdioServerParameters:
    """Return the gateway in front of the suite's server; it finds out that server's era by itself."""
    path = write_config(folder, {"suite": {"url": url}}, _SETTINGS)
    return StdioServerParameters(command=sys.executable, args=["-m", "gateway", "stdio", "--config", str(path)])


async def _tools(client: Client) -> list[Tool]:
    if not client.server_capabilities.tools:
        return []
    return (await client.session.send_request(ListToolsRequest(), ListToolsResult)).tools


async def _use(client: Client, tools: list[Tool]) -> None:
    offered = client.server_capabilities
    context: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    calls: list[dict[str, Any]] = context.get("toolCalls") or [
        {"name": tool.name, "arguments": _arguments(tool, tools)} for tool in tools if tool.name != _FOCAL
    ]
    for call in calls:
        await client.call_tool(call["name"], call["arguments"])
    for prompt in (await client.list_prompts()).prompts if offered.prompts else []:
        await client.get_prompt(prompt.name, {each.name: "text" for each in prompt.arguments or []})
    for resource in (await client.list_resources()).resources if offered.resources else []:
        await client.read_resource(resource.uri)


def _arguments(tool: Tool, tools: list[Tool]) -> dict[str, Any]:
    if tool.name == _ECHO:
        return {"schema": next(each.input_schema for each in tools if each.name == _FOCAL)}
    properties = cast("dict[str, dict[str, Any]]", tool.input_schema.get("properties") or {})
    return {name: _SAMPLES.get(schema.get("type", ""), {}) for name, schema in properties.items()}


async def _answer(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
    """Accept every question, with the defaults of its fields."""
    if not isinstance(params, ElicitRequestFormParams):
        return ElicitResult(action="accept")
    asked = cast("dict[str, dict[str, Any]]", params.requested_schema.get("properties") or {})
    return ElicitResult(
        action="accept",
        content={name: schema.get("default", _SAMPLES.get(schema["type"])) for name, schema in asked.items()},
    )


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except* (MCPError, ValidationError) as errors:
        # Some servers refuse requests or leave out fields on purpose; only the suite's checks count.
        print(*errors.exceptions, sep="\n", file=sys.stderr)
