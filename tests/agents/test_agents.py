"""A page's program does its task on a real engine; the page of all agents says what was measured."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.cache.tiny import tiny_model
from gateway.engine.embedded.packaged_model import packaged_model
from tests.agents import works_with
from tests.agents.agents import CODING
from tests.agents.command_lines import COMMAND_LINES
from tests.agents.mcp_agents import LIBRARIES
from tests.agents.page import Page
from tests.agents.running import do_task
from tests.agents.table import AGENTS, FILE, PAGE, filled
from tests.agents.task import Started
from tests.cases import each_of
from tests.clients.clients import CLIENTS

RESULTS: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))


@pytest.mark.engine
def test_program_of_the_openai_agents_page_does_its_task_and_nothing_is_lost(tmp_path: Path) -> None:
    def start(url: str) -> Started:
        ((kind, program), *_) = Page("openai-agents", url).programs()
        file = tmp_path / f"page.{kind}"
        file.write_text(program, encoding="utf-8")
        return Started([sys.executable, str(file)], {})

    model = tmp_path / "model.gguf"
    model.write_bytes(tiny_model(packaged_model().read_bytes()))
    done = do_task(replace(AGENTS["openai_agents_its_page_responses"], start=start), model)

    assert done.faults == ()
    assert (done.whole, done.lost) == (done.later, 0)
    assert done.generations > 1


def test_page_states_what_was_measured() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert filled(page, RESULTS) == page, "docs/agents/README.md is stale: run python -m tests.agents --write"


def test_table_of_clients_states_what_was_measured_at_the_versions_that_are_locked() -> None:
    page = works_with.PAGE.read_text(encoding="utf-8")

    assert works_with.filled(page, works_with.results()) == page, (
        "docs/index.md is stale: run python -m tests.agents --write"
    )
    assert "| 0.0.1 |" in works_with.filled(page, {**works_with.results(), "aider": {"version": "0.0.1"}})


def test_table_of_clients_has_each_agent_whose_tools_come_from_mcp_and_no_run_that_failed() -> None:
    named = {row.run for row in works_with.rows()} - {None}
    kept = works_with.results()

    assert {*LIBRARIES, *COMMAND_LINES, *CODING, *CLIENTS} - named == {
        "langchain_agent",
        "pydantic_agent",
        "openai_agents",
        "ai_sdk",
    }
    assert [name for name in named if kept[name].get("faults")] == []


@pytest.mark.parametrize("name", ["claude-desktop", "vscode", "cursor"])
def test_command_in_the_table_of_clients_is_that_of_the_page(name: str) -> None:
    page = (works_with.PAGE.parent / "clients" / f"{name}.md").read_text(encoding="utf-8")
    _, *arguments = works_with.STDIO.split()

    assert json.dumps(arguments) in page


def test_page_changes_with_the_results() -> None:
    changed = json.loads(json.dumps(RESULTS))
    changed["codex"] |= {"held": 4711, "faults": 1}

    assert "| Codex CLI, then it broke |" in filled(PAGE.read_text(encoding="utf-8"), changed)


@each_of("name", AGENTS)
def test_each_agent_was_measured_at_the_version_that_is_locked_and_lost_nothing_that_it_kept(name: str) -> None:
    result = RESULTS[name]

    assert result["version"] == AGENTS[name].version
    assert result["generations"] >= AGENTS[name].requests
    assert result["faults"] == 0
    assert AGENTS[name].rewrites or (result["whole"], result["lost"]) == (result["later"], 0)
