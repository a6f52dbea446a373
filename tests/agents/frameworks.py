"""Agents of frameworks: one tool of their own and one of the gateway's, three questions, over the newer APIs.

Their programs (`programs/`) are as the frameworks' documents would have them. Chat completions are held by
`tests/clients`. It starts nothing; `running.py` does.
"""

import json
import re
from pathlib import Path
from typing import Any, Final

from bench.toolchain import CACHE, node
from tests.agents.page import Page
from tests.agents.task import Agent, Call, Started, Turn

HERE: Final = Path(__file__).parent
_FOLDER: Final = CACHE / "agents"
_QUESTIONS: Final = (
    "How is the weather in Zürich and Kraków?",
    "What time is it in Tokyo?",
    "Both for Zürich, please.",
)


def _own(city: str, days: int = 1) -> Call:
    return Call("forecast", {"days": days, "city": city})


def _gateway_s(city: str) -> Call:
    return Call("clock", {"city": city})


_TURNS: Final = (
    Turn("I look.", (_own("Zürich"), _own("Kraków", 3))),
    Turn("Fine in both."),
    Turn("", (_gateway_s("Tokyo"),)),
    Turn("Nine o'clock."),
    Turn("", (_gateway_s("Zürich"), _own("Zürich"))),
    Turn("Nine, and fine."),
)
_OWN_CALLS: Final = 3
_GATEWAY_CALLS: Final = 2
_ANSWERS: Final = ["Fine in both.", "Nine o'clock.", "Nine, and fine."]


def _framework(words: str, package: str, program: str, api: str) -> Agent:
    def start(url: str) -> Started:
        env = {
            "API": api.lower(),
            "QUESTIONS": json.dumps(_QUESTIONS),
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_API_KEY": "none",
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "none",
        }
        return Started(_command(program, (HERE / "programs" / program).read_text(encoding="utf-8")), env)

    return Agent(words, _version(package), api, start, lambda _: _TURNS, _faults, 5)


_PAGE_TURNS: Final = (
    Turn("I look.", (Call("forecast", {"city": "Zürich"}),)),
    Turn("", (_gateway_s("Zürich"),)),
    Turn("Fine, and nine o'clock."),
)


def _page(words: str, package: str, name: str) -> Agent:
    """The program that a page shows, as it stands there."""

    def start(url: str) -> Started:
        (kind, program), *_ = Page(name, url).programs()
        file = f"page_{package}.{kind}"
        return Started(_command(file, program), {})

    def faults(_: Path, printed: str) -> list[str]:
        return [] if printed.strip().endswith(_PAGE_TURNS[-1].words) else [f"it printed {printed[-2000:]!r}"]

    return Agent(f"{words}, its page", _version(package), "Responses", start, lambda _: _PAGE_TURNS, faults, 2)


def _command(name: str, program: str) -> list[str]:
    """Give what runs a program with the packages that were installed for it: Node looks for them from where it lies."""
    folder = _FOLDER / ("node" if name.endswith(".mjs") else "venv")
    (folder / name).write_text(program, encoding="utf-8")
    return [str(node() if name.endswith(".mjs") else folder / "bin" / "python"), str(folder / name)]


def _version(package: str) -> str:
    found = re.search(rf"^{package}==(\S+)", (HERE / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE)
    if found is not None:
        return found[1]
    packages = json.loads((HERE / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    return packages[f"node_modules/{package}"]["version"]


def _faults(folder: Path, printed: str) -> list[str]:
    try:
        told: dict[str, Any] = json.loads(printed.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return [f"it printed {printed[-2000:]!r}"]
    calls = folder / "calls"
    ran = len(calls.read_text(encoding="utf-8").splitlines()) if calls.exists() else 0
    expected = {"ran": _OWN_CALLS, "answers": _ANSWERS}
    found = [] if told == expected else [f"it told {told}"]
    return found if ran == _GATEWAY_CALLS else [*found, f"the gateway's tool ran {ran} times, not {_GATEWAY_CALLS}"]


def _named(*agents: Agent) -> dict[str, Agent]:
    return {re.sub(r"\W+", "_", f"{agent.words} {agent.api}".lower()): agent for agent in agents}


FRAMEWORKS: Final = _named(
    _framework("openai-agents", "openai-agents", "openai_agents.py", "Responses"),
    _framework("pydantic-ai", "pydantic-ai-slim", "pydantic_agent.py", "Responses"),
    _framework("pydantic-ai", "pydantic-ai-slim", "pydantic_agent.py", "Messages"),
    _framework("LangGraph", "langgraph", "langgraph_agent.py", "Responses"),
    _framework("LangGraph", "langgraph", "langgraph_agent.py", "Messages"),
    _framework("Vercel AI SDK", "ai", "ai_sdk.mjs", "Responses"),
    _framework("Vercel AI SDK", "ai", "ai_sdk.mjs", "Messages"),
    _page("openai-agents", "openai-agents", "openai-agents"),
    _page("pydantic-ai", "pydantic-ai-slim", "pydantic-ai"),
    _page("LangChain", "langchain", "langchain"),
    _page("Vercel AI SDK", "ai", "ai-sdk"),
)
