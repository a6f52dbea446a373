"""Two of the clients hold a shorter conversation with the embedded engine; a page says what all did."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.processes import serving_gateway
from tests.clients.clients import CLIENTS, OPENAI, OPENAI_AGENTS, Client
from tests.clients.conversation import through_gateway
from tests.clients.page import FILE, PAGE, README, filled, with_gains

CLOCK = Path(__file__).parents[1] / "e2e" / "servers" / "clock.py"
RESULTS: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A gateway with the embedded engine and a tool, and where that tool writes down that it ran."""
    folder = tmp_path_factory.mktemp("clients")
    calls = folder / "calls"
    clock = {"command": sys.executable, "args": [str(CLOCK), str(calls)]}
    with serving_gateway(folder / "gateway", {"clock": clock}, settings='[engine]\nkind = "embedded"\n') as gateway:
        yield gateway.url, calls


@pytest.mark.engine
@pytest.mark.parametrize("client", [OPENAI, OPENAI_AGENTS], ids=lambda client: client.package)
def test_client_with_its_own_tool_finds_all_that_the_engine_held(client: Client, site: tuple[str, Path]) -> None:
    held = through_gateway(client.command_here(), *site, steps=3, temperature=0.8, seed=1)

    assert held.faults == ()
    assert held.is_whole, held
    assert held.called > 0
    assert held.requests > 4


def test_page_states_what_was_measured() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert filled(page, RESULTS) == page, "docs/openai-apps.md is stale: run python -m tests.clients --write"


def test_readme_sums_what_was_measured() -> None:
    page = README.read_text(encoding="utf-8")
    changed = json.loads(json.dumps(RESULTS))
    changed["ai_sdk"]["alone"]["processed"] += 1_000_000

    assert with_gains(page, RESULTS) == page, "README.md is stale: run python -m tests.clients --write"
    assert re.search(r" of 1,\d{3},\d{3} prompt tokens recomputed", with_gains(page, changed))


def test_page_changes_with_the_results() -> None:
    changed = json.loads(json.dumps(RESULTS))
    changed["ai_sdk"]["alone"] |= {"whole": 4711, "processed": 123456, "faults": 1}

    page = filled(PAGE.read_text(encoding="utf-8"), changed)

    assert re.search(r"\| 4711 of \d+, then it broke \| 123,456, \d+ again \|", page)


@pytest.mark.parametrize("name", CLIENTS)
def test_each_client_was_measured_at_the_version_that_is_locked(name: str) -> None:
    assert RESULTS[name]["version"] == CLIENTS[name].version


@pytest.mark.parametrize("name", CLIENTS)
def test_each_client_found_all_that_the_engine_held_in_ten_requests_or_more(name: str) -> None:
    for where in ("embedded", "gateway"):
        held = RESULTS[name][where]

        assert held["whole"] == held["turns"] >= held["requests"] - 1 >= 9
        assert (held["drift"], held["again"], held["faults"]) == (0, 0, 0)
        assert held["called"] > 0
