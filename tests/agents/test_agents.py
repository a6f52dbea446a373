"""A page's program does its task on a real engine; the page of all agents says what was measured."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.engine.packaged_model import packaged_model
from tests.agents.page import Page
from tests.agents.running import do_task
from tests.agents.table import AGENTS, FILE, PAGE, filled
from tests.agents.task import Started

RESULTS: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))


@pytest.mark.engine
def test_program_of_the_openai_agents_page_does_its_task_and_nothing_is_lost(tmp_path: Path) -> None:
    def start(url: str) -> Started:
        ((kind, program), *_) = Page("openai-agents", url).programs()
        file = tmp_path / f"page.{kind}"
        file.write_text(program, encoding="utf-8")
        return Started([sys.executable, str(file)], {})

    done = do_task(replace(AGENTS["openai_agents_its_page_responses"], start=start), packaged_model())

    assert done.faults == ()
    assert (done.whole, done.lost) == (done.later, 0)
    assert done.generations > 1


def test_page_states_what_was_measured() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert filled(page, RESULTS) == page, "docs/agents/README.md is stale: run python -m tests.agents --write"


def test_page_changes_with_the_results() -> None:
    changed = json.loads(json.dumps(RESULTS))
    changed["codex"] |= {"held": 4711, "faults": 1}

    assert "| Codex CLI, then it broke |" in filled(PAGE.read_text(encoding="utf-8"), changed)


@pytest.mark.parametrize("name", AGENTS)
def test_each_agent_was_measured_at_the_version_that_is_locked_and_lost_nothing(name: str) -> None:
    result = RESULTS[name]

    assert result["version"] == AGENTS[name].version
    assert result["generations"] >= AGENTS[name].requests
    assert (result["whole"], result["lost"], result["faults"]) == (result["later"], 0, 0)
