"""README's picture of what the gateway saves is that of the committed results."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bench.gain import PICTURE, draw
from bench.record import RESULTS

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    found = json.loads((RESULTS / "gain.json").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def test_picture_is_that_of_the_committed_results(results: dict[str, Any]) -> None:
    assert PICTURE.read_text(encoding="utf-8") == draw(results)


def test_readme_shows_the_picture_and_its_figures_are_those_of_the_results(results: dict[str, Any]) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"<!-- gain: .*?-->\n(.*?)<!-- /gain -->", readme, re.DOTALL)
    assert shown is not None
    (again,) = {sum(row["recomputed"] for row in run["plain"]) for run in results["runs"]}
    (ours,) = {sum(row["recomputed"] for row in run["gateway"]) for run in results["runs"]}

    made = {
        side: {sum(bool(row["calls"]) for row in run[side]) for run in results["runs"]} for side in ("gateway", "plain")
    }
    (required,) = {sum(row["call_required"] for row in run["plain"]) for run in results["runs"]}

    assert "(docs/demo-gain.svg)" in shown[1]
    assert made == {"gateway": {required}, "plain": {0}}
    assert f"Of the {required} calls that the agent required, this small model made {required} behind" in shown[1]
    assert f"{again:,} tokens" in shown[1]
    assert f"{ours:,} behind the gateway" in shown[1]


def test_picture_is_text_that_any_viewer_shows() -> None:
    picture = PICTURE.read_text(encoding="utf-8")

    assert "<script" not in picture
    assert set(re.findall(r"https?://[^\s\"]+", picture)) == {"http://www.w3.org/2000/svg"}
