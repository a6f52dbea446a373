"""The table "Works with" of docs/index.md: results of runs and what was run in, text out.

A line of configuration is taken from the program or the page that was run, so that none can be told that was not.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.agents import command_lines
from tests.agents.mcp_agents import ADDRESS, text_of
from tests.agents.page import Page
from tests.agents.table import FILE, between

_ROOT: Final = Path(__file__).parents[2]
PAGE: Final = _ROOT / "docs" / "index.md"
CLIENTS: Final = _ROOT / "tests" / "clients" / "results.json"
_BEGIN: Final = "<!-- measured: works with -->\n"
_HEAD: Final = """\
| client | version | model at `/v1` | tools from `/mcp` | configuration |
|---|---|---|---|---|
"""
_PAGE: Final = "the entry of [its page](clients/{}.md), without the application"
_NO: Final = "–"
_CODING: Final = {"Claude Code": "claude_code", "Codex CLI": "codex", "opencode": "opencode", "Qwen Code": "qwen_code"}
STDIO: Final = "codec-gateway stdio --config /path/to/servers.json"
"""What an entry of the pages of applications starts."""


@dataclass(frozen=True, slots=True)
class Row:
    """A client; `run`: its name among the results, none if the client itself was not run."""

    words: str
    run: str | None
    api: str
    mcp: str
    lines: tuple[str, ...]


def _line(text: str, end: str) -> str:
    """Give the line that has the gateway's address with this end."""
    line = next(line for line in text.splitlines() if f"{ADDRESS}{end}" in line)
    return line.strip().rstrip(",").removeprefix("- ")


def _page(name: str) -> str:
    return (_ROOT / "docs" / name).read_text(encoding="utf-8")


def _library(words: str, run: str, program: str) -> Row:
    text = text_of(program)
    return Row(words, run, "chat completions", "yes", (_line(text, "/v1"), _line(text, "/mcp")))


def _own_page(words: str, run: str, api: str, name: str, mcp: str = _NO, end: str = "/v1") -> Row:
    return Row(f"[{words}](agents/{name}.md)", run, api, mcp, (_line(_page(f"agents/{name}.md"), end),))


def _application(words: str, name: str) -> Row:
    return Row(f"[{words}](clients/{name}.md)", None, _NO, _PAGE.format(name), (STDIO,))


def rows() -> Iterator[Row]:
    """Give the rows of the table."""
    qwen = " ".join(f"{name}={value}" for name, value in command_lines.QWEN_API.items())
    every = "Responses, Messages, chat completions"
    yield _own_page("Claude Code", "claude_code", "Messages", "claude-code", _PAGE.format("claude-code"), "")
    yield _own_page("Codex CLI", "codex", "Responses", "codex")
    yield _own_page("opencode", "opencode", "chat completions", "opencode")
    settings = json.dumps({"mcpServers": command_lines.QWEN["mcpServers"]})
    lines = (f"{qwen} qwen", f"~/.qwen/settings.json: {settings}")
    yield Row("Qwen Code", "qwen_code", "chat completions", "yes", lines)
    text = command_lines.CONTINUE
    lines = (
        f"~/.continue/config.yaml: models: [{_line(text, '/v1')}]",
        f"~/.continue/config.yaml: mcpServers: [{_line(text, '/mcp')}]",
    )
    yield Row("Continue (`cn`)", "continue", "chat completions", "yes", lines)
    yield Row("aider", "aider", "chat completions, no calls", _NO, (" ".join(("aider", *command_lines.AIDER)),))
    gemini = _line(text_of("gemini_call.py"), "/mcp").replace("True", "true")
    yield Row(
        "Gemini CLI", "gemini_cli", "no: it speaks Google's API only", "yes", (f"~/.gemini/settings.json: {gemini}",)
    )
    for words, name in (("Claude Desktop", "claude-desktop"), ("VS Code", "vscode"), ("Cursor", "cursor")):
        yield _application(words, name)
    text = "\n".join(Page("open-webui", ADDRESS).blocks("sh"))
    lines = (_line(text, "/v1"), _line(text, "/mcp"))
    yield Row("[Open WebUI](agents/open-webui.md)", "open_webui", "chat completions", "yes", lines)
    mcpo = " ".join(_line(text_of("mcpo_call.py"), "/mcp").split('"')[1::2])
    yield Row("mcpo", "mcpo", _NO, "yes", (f"mcpo {mcpo}",))
    yield _own_page("openai-agents", "openai_agents_responses", "Responses, chat completions", "openai-agents")
    yield _own_page("pydantic-ai", "pydantic_ai_responses", every, "pydantic-ai")
    yield _own_page("LangChain, LangGraph", "langchain_its_page_responses", every, "langchain")
    earlier = f"Responses, Messages, chat completions (at {results()['ai_sdk']['version']})"
    yield _own_page("Vercel AI SDK", "vercel_ai_sdk_responses", earlier, "ai-sdk")
    yield _library("smolagents", "smolagents", "smolagents_agent.py")
    yield _library("CrewAI", "crewai", "crewai_agent.py")
    yield _library("AutoGen", "autogen", "autogen_agent.py")
    yield _library("agno", "agno", "agno_agent.py")
    yield _library("Strands Agents", "strands", "strands_agent.py")
    yield _library("LlamaIndex", "llama_index", "llama_index_agent.py")
    yield _library("Google ADK", "google_adk", "google_adk_agent.py")
    yield _library("LiteLLM", "litellm", "litellm_loop.py")
    yield _library("DSPy", "dspy", "dspy_agent.py")
    line = _line(text_of("instructor_object.py"), "/v1")
    yield Row("instructor", "instructor", "chat completions", _NO, (line,))
    apps = _page("openai-apps.md")
    yield Row("openai (Python)", "openai_python", "chat completions", _NO, (_line(apps, "/v1"),))
    yield Row("openai (Node)", "openai_node", "chat completions", _NO, (f"OPENAI_BASE_URL={ADDRESS}/v1",))


def results() -> dict[str, dict[str, Any]]:
    """Give what was kept of runs, by name."""
    return {**json.loads(CLIENTS.read_text(encoding="utf-8")), **json.loads(FILE.read_text(encoding="utf-8"))}


def filled(page: str, kept: dict[str, dict[str, Any]]) -> str:
    """Give the page with these results in it."""
    return between(page, _BEGIN, _HEAD + "".join(_cells(row, kept) for row in rows()) + _sizes(kept))


def _sizes(kept: dict[str, dict[str, Any]]) -> str:
    """Say how long the prompts of coding agents were: what was cached of each conversation, over its later requests."""
    means = {words: round(kept[run]["held"] / kept[run]["later"], -2) for words, run in _CODING.items()}
    listed = [f"{words} {mean:,.0f}" for words, mean in sorted(means.items(), key=lambda each: each[1])]
    head = "Tokens in a conversation of these runs, on average, before the agent's next request:"
    return f"\n{head}\n{', '.join(listed)}.\n"


def _cells(row: Row, kept: dict[str, dict[str, Any]]) -> str:
    version = _NO if row.run is None else kept[row.run]["version"]
    codes = [f"`{line.replace('|', chr(92) + '|')}`" for line in row.lines]
    if len(codes) > 1:
        codes = [f"{label}: {code}" for label, code in zip(("model", "tools"), codes, strict=True)]
    lines = "<br>".join(codes)
    return f"| {' | '.join((row.words, version, row.api, row.mcp, lines))} |\n"
