"""Agents of frameworks: one tool of their own and one of the gateway's, three questions, over the newer APIs.

Their programs (`programs/`) are as the frameworks' documents would have them. Chat completions are held by
`tests/clients`. It starts nothing; `running.py` does.
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any, Final

from bench.toolchain import CACHE, node
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
        return Started(_command(program), env)

    return Agent(words, _version(package, program), api, start, lambda _: _TURNS, _faults)


def _command(program: str) -> list[str]:
    source = HERE / "programs" / program
    if source.suffix == ".mjs":
        # Node looks for packages from where a program lies.
        return [str(node()), str(shutil.copy(source, _FOLDER / "node"))]
    return [str(_FOLDER / "venv" / "bin" / "python"), str(source)]


def _version(package: str, program: str) -> str:
    if program.endswith(".mjs"):
        packages = json.loads((HERE / "package-lock.json").read_text(encoding="utf-8"))["packages"]
        return packages[f"node_modules/{package}"]["version"]
    found = re.search(rf"^{package}==(\S+)", (HERE / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None, f"{package} is not in requirements.lock"
    return found[1]


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
)
