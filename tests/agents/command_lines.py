"""Programs of a command line that use the gateway twice, as `mcp_agents.py`, or in one of both ways; and Open WebUI.

Their settings have the addresses of a gateway's defaults, so that a line can be copied. It starts nothing; `running.py`
does.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from bench.toolchain import CACHE, node
from tests.agents.agents import version_of
from tests.agents.mcp_agents import ADDRESS, RESULTS, faults_of, locked, text_of
from tests.agents.page import Page
from tests.agents.task import Agent, Call, Started, Turn, greeting, is_mended

_FOLDER: Final = CACHE / "agents"
_TASK: Final = "Mend the greeting in greet.py: it must say hello. And what time is it in Zürich?"
_ANSWER: Final = "It says hello now, and it is nine."

QWEN: Final = {
    "security": {"auth": {"selectedType": "openai"}},
    "mcpServers": {"codec": {"httpUrl": f"{ADDRESS}/mcp", "trust": True}},
    "general": {"enableAutoUpdate": False},
    "privacy": {"usageStatisticsEnabled": False},
}
QWEN_API: Final = {"OPENAI_BASE_URL": f"{ADDRESS}/v1", "OPENAI_API_KEY": "none", "OPENAI_MODEL": "any"}
CONTINUE: Final = f"""\
name: local
version: 0.0.1
schema: v1
models:
  - {{ name: any, provider: openai, model: any, apiBase: "{ADDRESS}/v1", apiKey: none, capabilities: [tool_use] }}
mcpServers:
  - {{ name: codec, type: streamable-http, url: "{ADDRESS}/mcp" }}
"""
AIDER: Final = ("--model", "openai/any", "--openai-api-base", f"{ADDRESS}/v1", "--openai-api-key", "none")


def _at(url: str, text: str) -> str:
    return text.replace(ADDRESS, url)


def _both(folder: Path, printed: str) -> list[str]:
    return [*is_mended(folder, printed), *faults_of(_ANSWER, 1)(folder, printed)]


def _qwen(url: str) -> Started:
    tools = ("read_file", "edit", "tool_search", "tool_call")
    program = _FOLDER / "node" / "node_modules" / "@qwen-code" / "qwen-code" / "cli.js"
    env = {name: _at(url, value) for name, value in QWEN_API.items()}
    command = [
        str(node()),
        str(program),
        "-p",
        _TASK,
        "--system-prompt",
        "You mend files.",
        "--core-tools",
        *tools,
        "--allowed-tools",
        *tools,
    ]
    return Started(command, env, {"~/.qwen/settings.json": _at(url, json.dumps(QWEN))})


def _qwen_turns(folder: Path) -> list[Turn]:
    file = str(greeting(folder))
    edit = {"file_path": file, "old_string": "helo", "new_string": "hello"}
    return [
        Turn("I look at it.", (Call("read_file", {"file_path": file}),)),
        Turn(
            "", (Call("edit", edit), Call("tool_call", {"name": "mcp__codec__clock", "arguments": {"city": "Zürich"}}))
        ),
        Turn(_ANSWER),
    ]


def _continue(url: str) -> Started:
    program = _FOLDER / "node" / "node_modules" / "@continuedev" / "cli" / "dist" / "cn.js"
    command = [str(node()), str(program), "-p", _TASK, "--config", "config.yaml"]
    allowed = [word for name in ("Read", "Edit", "clock") for word in ("--allow", name)]
    return Started([*command, *allowed], {"CONTINUE_CLI_ENABLE_TELEMETRY": "0"}, {"config.yaml": _at(url, CONTINUE)})


def _continue_turns(folder: Path) -> list[Turn]:
    file = str(greeting(folder))
    edit = {"file_path": file, "old_string": "helo", "new_string": "hello"}
    return [
        Turn("I look at it.", (Call("Read", {"filepath": file}),)),
        Turn("", (Call("Edit", edit), Call("clock", {"city": "Zürich"}))),
        Turn(_ANSWER),
    ]


def _aider(url: str) -> Started:
    quiet = ("--no-git", "--yes-always", "--no-check-update", "--analytics-disable", "--no-show-model-warnings")
    program = _FOLDER / "aider" / "bin" / "aider"
    where = [_at(url, word) for word in AIDER]
    command = [str(program), *where, *quiet, "--edit-format", "diff", "--message", _TASK, "greet.py"]
    # It would fetch prices of models, and complains where there is no network.
    prices = {"~/.aider/caches/model_prices_and_context_window.json": '{"none": {}}'}
    return Started(command, {}, prices)


def _aider_turns(folder: Path) -> list[Turn]:
    old = greeting(folder).read_text(encoding="utf-8")
    new = old.replace("helo", "hello")
    return [Turn(f"greet.py\n```python\n<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n```\n")]


_OPEN_WEBUI: Final = (
    Turn("I look.", (Call("forecast", {"city": "Zürich"}),)),
    Turn("", (Call("codec_clock", {"city": "Zürich"}),)),
    Turn("Fine, and nine."),
    Turn("Fine too."),
)


def _program(name: str, environment: str, *arguments: str) -> Any:
    def start(url: str) -> Started:
        folder = _FOLDER / environment
        (folder / name).write_text(_at(url, text_of(name)), encoding="utf-8")
        return Started([str(folder / "bin" / "python"), str(folder / name), *arguments], {})

    return start


def _open_webui(url: str) -> Started:
    started: Started = _program("open_webui_chat.py", "webui")(url)
    return replace(started, env=Page("open-webui", url).environment())


COMMAND_LINES: Final = {
    "qwen_code": Agent(
        "Qwen Code", version_of("@qwen-code/qwen-code"), "chat completions", _qwen, _qwen_turns, _both, 3, RESULTS[1:]
    ),
    "continue": Agent(
        "Continue (`cn`)", version_of("@continuedev/cli"), "chat completions", _continue, _continue_turns, _both, 3,
        RESULTS[1:],
    ),
    "aider": Agent(
        "aider", locked("aider-chat", "aider"), "chat completions", _aider, _aider_turns, is_mended, 1, mark="greet.py"
    ),
    "mcpo": Agent(
        "mcpo", locked("mcpo", "mcp1"), "", _program("mcpo_call.py", "mcp1"), lambda _: (), faults_of("9 o'clock", 1), 0
    ),
    "gemini_cli": Agent(
        "Gemini CLI", version_of("@google/gemini-cli"), "", _program(
            "gemini_call.py", "venv", str(node()), str(_FOLDER / "node" / "node_modules" / "@google" / "gemini-cli")
        ), lambda _: (), faults_of("Nine, then.", 1), 0,
    ),
    "open_webui": Agent(
        "Open WebUI", locked("open-webui", "webui"), "chat completions", _open_webui, lambda _: _OPEN_WEBUI,
        faults_of("Fine, and nine.", 1), 4, RESULTS,
    ),
}  # fmt: skip
