"""The coding agents: what starts each, how it is told where the gateway is, and what it calls its tools.

Unmodified programs from npm (`make agents-install`), with allow-lists of tools and never a switch that skips
permissions where one would do. It starts nothing; `running.py` does.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bench.toolchain import CACHE
from tests.agents.task import WORDS, Agent, Call, Started, Turn, greeting, is_mended

HERE: Final = Path(__file__).parent
_MODULES: Final = CACHE / "agents" / "node" / "node_modules"


def _version(package: str) -> str:
    packages = json.loads((HERE / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    return packages[f"node_modules/{package}"]["version"]


def _coding(
    words: str, package: str, api: str, start: Callable[[str], Started], turns: Callable[[Path], Sequence[Turn]]
) -> Agent:
    return Agent(words, _version(package), api, start, lambda folder: turns(greeting(folder)), is_mended)


def _claude(url: str) -> Started:
    command = [
        *(str(_MODULES / "@anthropic-ai" / "claude-code-linux-x64" / "claude"), "-p", WORDS),
        *("--tools", "Read,Edit,Bash", "--allowedTools", "Read", "Edit", "Bash"),
    ]
    env = {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_AUTH_TOKEN": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    return Started(command, env)


def _claude_turns(file: Path) -> list[Turn]:
    return [
        Turn("I look at it.", (Call("Read", {"file_path": str(file)}),)),
        Turn("", (Call("Edit", {"file_path": str(file), "old_string": "helo", "new_string": "hello"}),)),
        Turn("", (Call("Bash", {"command": "python3 greet.py", "description": "Run it"}),)),
        Turn(
            "Two more looks.",
            (
                Call("Bash", {"description": "Count", "command": "wc -c greet.py"}),
                Call("Read", {"file_path": str(file)}),
            ),
        ),
        Turn("It says hello now."),
    ]


_CODEX_SETTINGS: Final = """\
model = "local"
model_provider = "gateway"

[model_providers.gateway]
name = "gateway"
base_url = "{url}/v1"
env_key = "GATEWAY_KEY"
wire_api = "responses"
"""


def _codex(url: str) -> Started:
    program = _MODULES / "@openai" / "codex-linux-x64" / "vendor" / "x86_64-unknown-linux-musl" / "bin" / "codex"
    command = [str(program), "exec", "--skip-git-repo-check", "--sandbox", "workspace-write", WORDS]
    return Started(command, {"GATEWAY_KEY": "none"}, {"~/.codex/config.toml": _CODEX_SETTINGS.format(url=url)})


def _codex_turns(file: Path) -> list[Turn]:
    def run(command: str) -> Call:
        return Call("exec_command", {"cmd": command})

    return [
        Turn("I look at it.", (run("cat greet.py"),)),
        Turn("", (run("sed -i s/helo/hello/ greet.py"),)),
        Turn("", (run("python3 greet.py"),)),
        Turn("Two more looks.", (run("wc -c greet.py"), run("cat greet.py"))),
        Turn("It says hello now."),
    ]


def _opencode(url: str) -> Started:
    model = {"tool_call": True, "reasoning": True, "limit": {"context": 65536, "output": 4096}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{url}/v1", "apiKey": "none"},
        "models": {"local": model},
    }
    settings = {"provider": {"local": provider}, "model": "local/local", "autoupdate": False, "share": "disabled"}
    program = _MODULES / "opencode-linux-x64" / "bin" / "opencode"
    return Started([str(program), "run", WORDS], {}, {"opencode.json": json.dumps(settings)})


def _opencode_turns(file: Path) -> list[Turn]:
    return [
        Turn("I look at it.", (Call("read", {"filePath": str(file)}),)),
        Turn("", (Call("edit", {"filePath": str(file), "oldString": "helo", "newString": "hello"}),)),
        Turn("", (Call("bash", {"command": "python3 greet.py", "description": "Run it"}),)),
        Turn(
            "Two more looks.",
            (
                Call("bash", {"description": "Count", "command": "wc -c greet.py"}),
                Call("read", {"filePath": str(file)}),
            ),
        ),
        Turn("It says hello now."),
    ]


CODING: Final = {
    "claude_code": _coding("Claude Code", "@anthropic-ai/claude-code", "Messages", _claude, _claude_turns),
    "codex": _coding("Codex CLI", "@openai/codex", "Responses", _codex, _codex_turns),
    "opencode": _coding("opencode", "opencode-ai", "chat completions", _opencode, _opencode_turns),
}
