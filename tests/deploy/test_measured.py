"""What docs/deploy.md says of sizes and times is what a run of the deployment check measured, and within its bars."""

import json
from typing import Any

import pytest

from deploy.check.alone import BARS
from deploy.check.images import LARGEST
from deploy.check.page import FILE, PAGE, filled

RESULTS: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))


def test_page_states_what_was_measured() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert page.count("<!-- measured: ") == page.count("<!-- end -->") == 2
    assert filled(page, RESULTS) == page, "docs/deploy.md is stale: run make deploy-check RECORD=1"


def test_page_changes_with_the_results() -> None:
    changed = json.loads(json.dumps(RESULTS))
    changed["images"]["leaf"] = 4711
    changed["runs"] = {"cold": {"seconds": 815, "load": 7.6}}
    page = filled(PAGE.read_text(encoding="utf-8"), changed)

    assert "| 4711 MB |" in page
    assert "took 815 s from nothing (load 8), on 2 cores." in page


@pytest.mark.parametrize("bar", BARS, ids=lambda bar: bar.words)
def test_start_and_memory_are_within_their_bars(bar: Any) -> None:
    start = RESULTS["starts"][bar.words]

    assert min(start["best"], start["cpu"] if start["busy"] else start["best"]) <= bar.seconds
    assert bar.megabytes is None or start["megabytes"] <= bar.megabytes


def test_image_and_whole_runs_are_within_their_bars() -> None:
    assert {name: size for name, size in RESULTS["images"].items() if size > LARGEST.get(name, size)} == {}
    runs = RESULTS["runs"]
    assert runs["warm"]["seconds"] < 600
    # Where more wants to run than there are cores, the clock tells of the others.
    assert all(run["seconds"] < 600 or run["load"] > RESULTS["machine"]["cores"] for run in runs.values())
    assert "modern failed" not in RESULTS["rolling"]["calls"]
