"""The coding agents: what starts each, how it is told where the gateway is, and what it calls its tools.

Unmodified programs from npm (`make agents-install`), set up and started as the pages of `docs/agents` say, with
allow-lists of tools and no switch that skips permissions. It starts nothing; `running.py` does.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bench.toolchain import CACHE
from tests.agents.page import Page
from tests.agents.task import Agent, Call, Started, Turn, greeting, is_mended

HERE: Final = Path(__file__).parent
_MODULES: Final = CACHE / "agents" / "node" / "node_modules"


def version_of(package: str) -> str:
    """Give the version of an npm package that is locked."""
    packages = json.loads((HERE / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    return packages[f"node_modules/{package}"]["version"]


def _coding(
    words: str, package: str, api: str, start: Callable[[str], Started], turns: Callable[[Path], Sequence[Turn]]
) -> Agent:
    return Agent(words, version_of(package), api, start, lambda folder: turns(greeting(folder)), is_mended, 5)


def _claude(url: str) -> Started:
    page = Page("claude-code", url)
    return Started(page.command(_MODULES / "@anthropic-ai" / "claude-code-linux-x64" / "claude"), page.environment())


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


def _codex(url: str) -> Started:
    page = Page("codex", url)
    program = _MODULES / "@openai" / "codex-linux-x64" / "vendor" / "x86_64-unknown-linux-musl" / "bin" / "codex"
    return Started(page.command(program), page.environment(), {"~/.codex/config.toml": page.blocks("toml")[0]})


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
    page = Page("opencode", url)
    program = _MODULES / "opencode-linux-x64" / "bin" / "opencode"
    return Started(page.command(program), {}, {"opencode.json": page.blocks("json")[0]})


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
    "opencode": _coding("opencode", "opencode-linux-x64", "chat completions", _opencode, _opencode_turns),
}
