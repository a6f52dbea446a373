"""Claude Code, Codex and Gemini CLI: how each is told of MCP servers and of its model, and run once.

Unmodified programs from npm, at the versions of `tests/agents`, with a stand-in for their model (`model.py`).
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.toolchain import CACHE, node
from tests.exchanges.public.model import Json, Model, standing_in

_MODULES: Final = CACHE / "agents" / "node" / "node_modules"
_TIME: Final = 900.0
_ASK: Final = "Call them all."


@dataclass(frozen=True, slots=True)
class Agent:
    """One of them."""

    words: str
    start: Callable[[Mapping[str, Json], str], tuple[Sequence[str], Mapping[str, str], Mapping[str, str]]]
    """For servers and the model's address: its command, its environment, and its files below its home."""
    also: Mapping[str, Json]
    """Its own tools for resources, which are called, too."""


def _claude(servers: Mapping[str, Json], url: str) -> Any:
    named = {
        name: {"type": "http", **each} if "url" in each else {"type": "stdio", **each} for name, each in servers.items()
    }
    env = {
        "ANTHROPIC_BASE_URL": url, "ANTHROPIC_AUTH_TOKEN": "none", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "ENABLE_TOOL_SEARCH": "false", "MCP_TIMEOUT": "120000", "MCP_CONNECTION_NONBLOCKING": "false",
    }  # fmt: skip
    allowed = [*(f"mcp__{name}" for name in servers), "ListMcpResourcesTool"]
    program = _MODULES / "@anthropic-ai" / "claude-code-linux-x64" / "claude"
    command = [str(program), "-p", _ASK, "--mcp-config", "mcp.json", "--strict-mcp-config", "--tools",
               "ListMcpResourcesTool", "--allowedTools", *allowed]  # fmt: skip
    return command, env, {"mcp.json": json.dumps({"mcpServers": named})}


def _codex(servers: Mapping[str, Json], url: str) -> Any:
    lines = ['model = "local"', 'model_provider = "stand-in"', "", "[model_providers.stand-in]", 'name = "stand-in"',
             f'base_url = "{url}/v1"', 'env_key = "KEY"', 'wire_api = "responses"']  # fmt: skip
    for name, each in servers.items():
        # A string or a list is written in TOML as in JSON.
        lines += ["", f"[mcp_servers.{name}]", *(f"{key} = {json.dumps(each[key])}" for key in each if key != "env")]
        # A required server is waited for: the others are offered to the model when they are ready.
        lines += [
            "required = true",
            "startup_timeout_sec = 120",
            "tool_timeout_sec = 120",
            'default_tools_approval_mode = "approve"',
        ]
        if each.get("env"):
            lines += [
                f"[mcp_servers.{name}.env]",
                *(f"{key} = {json.dumps(text)}" for key, text in each["env"].items()),
            ]
    program = _MODULES / "@openai" / "codex-linux-x64" / "vendor" / "x86_64-unknown-linux-musl" / "bin" / "codex"
    command = [str(program), "exec", "--skip-git-repo-check", _ASK]
    return command, {"KEY": "none"}, {".codex/config.toml": "\n".join(lines) + "\n"}


def _gemini(servers: Mapping[str, Json], url: str) -> Any:
    named = {
        name: {
            "httpUrl" if key == "url" else key: value
            for key, value in {**each, "trust": True, "timeout": 120_000}.items()
        }
        for name, each in servers.items()
    }
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "mcpServers": named,
        "privacy": {"usageStatisticsEnabled": False},
    }
    command = [
        str(node()),
        str(_MODULES / "@google" / "gemini-cli" / "bundle" / "gemini.js"),
        "-m",
        "gemini-2.5-pro",
        "-p",
        _ASK,
    ]
    env = {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": "none"}
    return command, env, {".gemini/settings.json": json.dumps(settings)}


AGENTS: Final = {
    "claude": Agent("Claude Code", _claude, {"ListMcpResourcesTool": {}}),
    "codex": Agent("Codex", _codex, {"list_mcp_resources": {}, "list_mcp_resource_templates": {}}),
    "gemini": Agent("Gemini CLI", _gemini, {}),
}


def run_agent(agent: Agent, servers: Mapping[str, Json], calls: Mapping[str, tuple[str, Json]]) -> tuple[Model, str]:
    """Let it call a tool of each server; give what its model saw, and what it printed."""
    with tempfile.TemporaryDirectory(prefix="public-") as home, standing_in(calls, agent.also) as model:
        command, more, files = agent.start(servers, model.url)
        for name, text in files.items():
            path = Path(home) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        env = {"PATH": os.environ["PATH"], "HOME": home, "LANG": "C.UTF-8", **more}
        done = subprocess.run(
            command, cwd=home, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIME,
            check=False,
        )  # fmt: skip
        # Its folder is one of its roots, and differs from run to run.
        model.results = json.loads(json.dumps(model.results).replace(home, "<home>"))
        return model, done.stderr + done.stdout
