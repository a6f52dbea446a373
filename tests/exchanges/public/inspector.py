"""The MCP Inspector on the command line: one run of it for each list, and one for the call."""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench.toolchain import node
from tests.exchanges.public.catalog import FOLDER

_PROGRAM: Final = FOLDER / "node/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
_LISTS: Final = {
    "tools": "tools/list",
    "prompts": "prompts/list",
    "resources": "resources/list",
    "templates": "resources/templates/list",
}


def inspect(servers: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Give what it shows of each server's lists and of its call."""
    with tempfile.TemporaryDirectory(prefix="public-") as home:
        config = Path(home) / "mcp.json"
        named = {
            name: {"type": "streamable-http" if "url" in each else "stdio", **each} for name, each in servers.items()
        }
        config.write_text(json.dumps({"mcpServers": named}), encoding="utf-8")
        return {name: _inspected(name, each, Path(home)) for name, each in servers.items()}


def _inspected(name: str, server: Mapping[str, Any], home: Path) -> dict[str, Any]:
    said = {kind: _run(name, home, "--method", method) for kind, method in _LISTS.items()}
    tools: list[Any] = said["tools"].get("tools", [])
    wanted = (server["tool"], f"{name}__{server['tool']}")
    tool = next((each["name"] for each in tools if each["name"] in wanted), server["tool"])
    arguments = json.dumps(server["arguments"])
    return {
        **said,
        "call": _run(name, home, "--method", "tools/call", "--tool-name", tool, "--tool-args-json", arguments),
    }


def _run(name: str, home: Path, *words: str) -> dict[str, Any]:
    command = [
        str(node()),
        str(_PROGRAM),
        "--cli",
        "--quiet",
        "--format",
        "json",
        "--config",
        str(home / "mcp.json"),
        "--server",
        name,
        *words,
    ]
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}
    done = subprocess.run(
        command, cwd=home, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    try:
        said: dict[str, Any] = json.loads(done.stdout)
        return said["result"]
    except (ValueError, KeyError):
        return {"ended": done.returncode, "said": done.stdout[-2000:] + done.stderr[-2000:]}
