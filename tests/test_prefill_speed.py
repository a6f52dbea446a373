"""The page says of ids processed ahead of time what was measured, and the measurement counted what it should."""

import json
from pathlib import Path

import pytest

from bench.prefill import PAGE, RESULT, SCAFFOLDS, TABLE, table

RESULTS = json.loads((Path(__file__).parents[1] / "bench" / "results" / "prefill.json").read_text())


def test_the_page_shows_the_committed_results() -> None:
    assert TABLE.findall(PAGE.read_text()) == [table(RESULTS["rows"])]


@pytest.mark.parametrize("size", SCAFFOLDS)
def test_every_sample_processed_the_ids_of_the_result_alone(size: int) -> None:
    row = RESULTS["rows"][f"hidden, {size} ids"]
    assert set(row["ahead"]["processed"]["samples"]) == {RESULT}
    assert set(row["plain"]["processed"]["samples"]) == {RESULT + size}
    (ahead,), (plain,) = (set(row[kind]["cached"]["samples"]) for kind in ("ahead", "plain"))
    assert ahead == plain + size
