"""Claude Code and Codex with an MCP server of 40 tools, all of them deferred: each finds two, one after the other.

Their own searches find them; the gateway defines what was found. It starts nothing; `running.py` does.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.agents.agents import CODING
from tests.agents.task import Agent, Call, Started, Turn, greeting

_SERVER: Final = Path(__file__).parents[1] / "e2e" / "servers" / "greetings.py"
SERVER_NAME: Final = "greetings"
LATER, _EARLIER = "greet_in_welsh", "greet_in_basque"
"""The tools that are found: one that stands last in its server's list, then one that stands before it."""
_MEND: Final = "sed -i s/helo/hello/ greet.py"


def _claude(url: str) -> Started:
    started = CODING["claude_code"].start(url)
    program, *_ = started.command
    servers = {SERVER_NAME: {"command": sys.executable, "args": [str(_SERVER)]}}
    command = [
        *(program, "-p", "Mend the greeting.", "--mcp-config", "mcp.json", "--strict-mcp-config"),
        *("--tools", "Bash,ToolSearch", "--allowedTools", "Bash", "ToolSearch", f"mcp__{SERVER_NAME}"),
    ]
    env = {**started.env, "ENABLE_TOOL_SEARCH": "true", "MCP_CONNECTION_NONBLOCKING": "false"}
    return Started(command, env, {"mcp.json": json.dumps({"mcpServers": servers})})


def _codex(url: str) -> Started:
    started = CODING["codex"].start(url)
    (path, settings), *_ = started.files.items()
    # Codex has a search for tools with models that its catalogue says can use one.
    server = (
        f"[mcp_servers.{SERVER_NAME}]\ncommand = {json.dumps(sys.executable)}\nargs = {json.dumps([str(_SERVER)])}\n"
    )
    server += 'required = true\ndefault_tools_approval_mode = "approve"\n'
    return replace(started, files={path: f"{settings.replace('local', 'gpt-5.5', 1)}\n{server}"})


def _claude_turns() -> list[Turn]:
    return [
        Turn(
            "I look for it.", (Call("ToolSearch", {"query": f"select:mcp__{SERVER_NAME}__{LATER}", "max_results": 5}),)
        ),
        Turn("", (Call(f"mcp__{SERVER_NAME}__{LATER}", {"polite": True}),)),
        Turn("And another.", (Call("ToolSearch", {"query": "greeting in Basque", "max_results": 1}),)),
        Turn("", (Call(f"mcp__{SERVER_NAME}__{_EARLIER}", {"polite": False}),)),
        Turn("", (Call("Bash", {"command": _MEND, "description": "Mend it"}),)),
        Turn("It says hello now."),
    ]


def _codex_turns() -> list[Turn]:
    return [
        Turn("I look for it.", (Call("tool_search", {"query": "greeting in Welsh", "limit": 1}),)),
        Turn("", (Call(f"*{LATER}", {"polite": True}),)),
        Turn("And another.", (Call("tool_search", {"query": "greeting in Basque", "limit": 1}),)),
        Turn("", (Call(f"*{_EARLIER}", {"polite": False}),)),
        Turn("", (Call("exec_command", {"cmd": f"{_MEND}; seq 1000"}),)),
        Turn("It says hello now."),
    ]


def _searching(name: str, turns: list[Turn]) -> Agent:
    def begin(folder: Path) -> list[Turn]:
        greeting(folder)
        return turns

    agent, start = CODING[name], {"claude_code": _claude, "codex": _codex}[name]
    results = (f"{LATER}: ok", f"{_EARLIER}: ok")
    return replace(
        agent, words=f"{agent.words}, tool search", start=start, begin=begin, requests=len(turns), results=results
    )


SEARCHING: Final = {
    "claude_code_tool_search": _searching("claude_code", _claude_turns()),
    "codex_tool_search": _searching("codex", _codex_turns()),
}
