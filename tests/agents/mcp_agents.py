"""Agents of libraries that use the gateway twice: their model is at /v1, their tools come from /mcp.

Each has a tool of its own beside the gateway's, which it lists and calls itself, as an MCP client. Their programs
(`programs/`) have the addresses of a gateway's defaults, so that a line can be copied. It starts nothing; `running.py`
does.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bench.toolchain import CACHE
from tests.agents.task import Agent, Call, Started, Turn

HERE: Final = Path(__file__).parent
ADDRESS: Final = "http://127.0.0.1:8600"
_ANSWER: Final = "Fine, and nine."
RESULTS: Final = ("Zürich: fine, 20", "rich it is 9 o'clock")
_CITY: Final = {"city": "Zürich"}
_END: Final = Turn(_ANSWER)


def _both(words: str = "I look.", name: str = "clock", end: Turn = _END) -> tuple[Turn, ...]:
    """`words`: before the first call. `name`: what the library calls the gateway's tool."""
    return Turn(words, (Call("forecast", _CITY),)), Turn("", (Call(name, _CITY),)), end


def _react() -> tuple[Turn, ...]:
    """As DSPy has its steps written."""

    def fields(**texts: str) -> Turn:
        return Turn("\n\n".join(f"[[ ## {name} ## ]]\n{text}" for name, text in {**texts, "completed": ""}.items()))

    def step(name: str, arguments: str) -> Turn:
        return fields(next_thought="I look.", next_tool_name=name, next_tool_args=arguments)

    city = json.dumps(_CITY)
    end = fields(reasoning="Looked.", answer=_ANSWER)
    return step("forecast", city), step("clock", city), step("finish", "{}"), end


def _library(words: str, package: str, program: str, environment: str, **differs: Any) -> Agent:
    """`differs`: fields of its `Agent` that are not as with most of them."""

    def start(url: str) -> Started:
        folder = CACHE / "agents" / environment
        (folder / program).write_text(text_of(program).replace(ADDRESS, url), encoding="utf-8")
        env = {"OTEL_SDK_DISABLED": "true", "LITELLM_LOCAL_MODEL_COST_MAP": "true"}
        return Started([str(folder / "bin" / "python"), str(folder / program)], env)

    turns: tuple[Turn, ...] = differs.pop("turns", _both())
    fields: dict[str, Any] = {"requests": len(turns), "results": RESULTS, "faults": faults_of(_ANSWER, 1), **differs}
    version = locked(package, environment)
    return Agent(words, version, "chat completions", start, lambda _: turns, **fields)


def faults_of(answer: str, calls: int) -> Callable[[Path, str], list[str]]:
    """`answer`: what it must print. `calls`: how often the gateway's tool must run."""

    def faults(folder: Path, printed: str) -> list[str]:
        ran = len((folder / "calls").read_text(encoding="utf-8").splitlines()) if (folder / "calls").exists() else 0
        found = [] if answer in printed else [f"it printed {printed[-2000:]!r}"]
        return found if ran == calls else [*found, f"the gateway's tool ran {ran} times, not {calls}"]

    return faults


def text_of(program: str) -> str:
    """Give a program as it stands."""
    return (HERE / "programs" / program).read_text(encoding="utf-8")


def locked(package: str, environment: str) -> str:
    """Give the version that is locked."""
    lock = (HERE / f"requirements-{environment}.lock").read_text(encoding="utf-8")
    found = re.search(rf"^{re.escape(package)}==(\S+)", lock, re.MULTILINE)
    assert found is not None, f"{package} is not in the lock of {environment}"
    return found[1]


LIBRARIES: Final = {
    "smolagents": _library(
        "smolagents",
        "smolagents",
        "smolagents_agent.py",
        "mcp1",
        turns=_both(end=Turn("", (Call("final_answer", {"answer": _ANSWER}),))),
        rewrites="it sends calls back as text of its own",
    ),
    "crewai": _library("CrewAI", "crewai", "crewai_agent.py", "mcp1", turns=_both("")),
    "autogen": _library("AutoGen", "autogen-agentchat", "autogen_agent.py", "mcp1"),
    "agno": _library("agno", "agno", "agno_agent.py", "mcp2"),
    "strands": _library("Strands Agents", "strands-agents", "strands_agent.py", "mcp2"),
    "llama_index": _library("LlamaIndex", "llama-index-core", "llama_index_agent.py", "mcp2"),
    "google_adk": _library("Google ADK", "google-adk", "google_adk_agent.py", "mcp2"),
    "litellm": _library("LiteLLM", "litellm", "litellm_loop.py", "mcp2"),
    "dspy": _library(
        "DSPy",
        "dspy",
        "dspy_agent.py",
        "mcp2",
        turns=_react(),
        mark="[[ ## question ## ]]",
        step="[[ ## observation_",
        continues=False,
        rewrites="each step is a prompt of its own",
    ),
    "instructor": _library(
        "instructor",
        "instructor",
        "instructor_object.py",
        "mcp2",
        turns=(Turn("", (Call("PartialWeather", {"city": "Zürich", "degrees": 20}),)),),
        continues=False,
        results=(),
        faults=faults_of("city='Zürich' degrees=20", 0),
    ),
}
