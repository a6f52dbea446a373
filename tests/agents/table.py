"""The table of docs/agents/README.md: which agents did their task, and what was found again. Results in, text out."""

import json
from typing import Any, Final

from bench.record import on_lines
from tests.agents.agents import CODING, HERE
from tests.agents.command_lines import COMMAND_LINES
from tests.agents.compacting import COMPACTING
from tests.agents.frameworks import FRAMEWORKS
from tests.agents.mcp_agents import LIBRARIES
from tests.agents.running import Done
from tests.agents.task import Agent
from tests.agents.tool_search import SEARCHING

AGENTS: Final[dict[str, Agent]] = {**CODING, **SEARCHING, **COMPACTING, **FRAMEWORKS, **LIBRARIES, **COMMAND_LINES}
FILE: Final = HERE / "results.json"
PAGE: Final = HERE.parents[1] / "docs" / "agents" / "README.md"
_BEGIN: Final = "<!-- measured: agents -->\n"
_END: Final = "<!-- end -->"
_HEAD: Final = """\
| agent | version | API | generations | requests that went on | found again whole | ids held | lost |
|---|---|---|---|---|---|---|---|
"""


def result_of(agent: Agent, done: Done) -> dict[str, Any]:
    """Give what is kept of a run. Faults name files of this machine: their number stands for them."""
    counts = {name: getattr(done, name) for name in ("generations", "later", "whole", "held", "lost")}
    return {"version": agent.version, **counts, "faults": len(done.faults)}


def filled(page: str, results: dict[str, Any]) -> str:
    """Give the page with these results in it."""
    rows = "".join(_row(name, result) for name, result in results.items() if AGENTS[name].api)
    return between(page, _BEGIN, f"{_HEAD}{rows}")


def between(page: str, begin: str, text: str) -> str:
    """Give the page with this text between a mark and the next end."""
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(_END)
    return f"{before}{begin}{text}{_END}{after}"


def _row(name: str, result: dict[str, Any]) -> str:
    agent = AGENTS[name]
    words = agent.words + (", then it broke" if result["faults"] else "")
    counts = (result[key] for key in ("generations", "later", "whole"))
    cells = [words, result["version"], agent.api, *counts, f"{result['held']:,}", result["lost"]]
    return f"| {' | '.join(map(str, cells))} |\n"


def write(results: dict[str, Any]) -> None:
    """Keep the results, with those kept before of agents that were left out, and fill the page."""
    kept = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    every = {**kept, **results}
    ordered = {name: every[name] for name in AGENTS if name in every}
    FILE.write_text(on_lines(ordered), encoding="utf-8")
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), ordered), encoding="utf-8")
