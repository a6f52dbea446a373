"""The pages about the speed of MCP calls say what the committed measurements say."""

from pathlib import Path
from typing import Any

import pytest

from bench.mcp.bars import bars
from bench.mcp.chart import picture
from bench.mcp.rows import rows
from bench.mcp.table import measured, page, rows_of

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results" / "mcp.json"
SHOWN = ("docs/mcp-speed.md", "docs/mcp-speed.svg")
OURS = "codec-gateway | http-stdio | modern | 100 B at 16"
GUARDED = "codec-gateway: token, audit log | http-stdio | modern | 100 B at 16"
HUB = "mcp-hub | http-stdio | handshake | 100 B at 16"
WITH_IDS = ("leaf ids, trust", "leaf ids, verify", "shim ids")


def numbers(value: float) -> dict[str, Any]:
    return {"median": value, "min": value, "max": value, "samples": [value]}


def ids_cost(added: float) -> dict[str, Any]:
    return {
        "named_cpu_us": numbers(100 + added),
        "not_named_cpu_us": numbers(100),
        "added_us": numbers(added),
    }


@pytest.fixture
def results() -> dict[str, Any]:
    """Results in which every row costs 100 us and takes a millisecond, and one peer is slower."""
    row = {
        "calls_per_second": numbers(7000),
        "cpu_us": numbers(100),
        "p50_ms": numbers(0.2),
        "p99_ms": numbers(9),
        "calls": numbers(1),
    }
    names = [str(row) for row in rows(None)]
    measured = {name: {field: dict(each) for field, each in row.items()} for name in names}
    measured[HUB]["calls_per_second"] = numbers(5000)
    return {
        "date": "2026-01-02",
        "machine": {"cores": 2, "cpu": "a CPU", "python": "3.11", "load": [0.5]},
        "settings": {"rounds": 5, "seconds": 0.4},
        "peers": {"mcp-hub": "1"},
        "rows": measured,
        "resident_mb": {"codec-gateway: token, audit log | http-stdio | modern": 70.0},
        "ids_cost": {f"codec-gateway: {which}": ids_cost(10) for which in WITH_IDS},
        "own_times": {"encode_us": 8.0, "library_encode_us": 30.0, "decode_us": 10.0},
    }


def held(results: dict[str, Any]) -> dict[str, bool]:
    return {each.what: each.held for each in bars(rows_of(results), results)}


def test_pages_are_those_of_the_committed_results() -> None:
    assert all((ROOT / name).exists() == RESULTS.exists() for name in SHOWN)
    if RESULTS.exists():
        results = measured()
        assert (ROOT / SHOWN[0]).read_text(encoding="utf-8") == page(results)
        assert (ROOT / SHOWN[1]).read_text(encoding="utf-8") == picture(rows_of(results))


def test_every_row_that_is_measured_is_on_the_page(results: dict[str, Any]) -> None:
    text = page(results)
    missing = {row.peer.name for row in rows(None) if row.peer.name not in text}
    assert not missing
    assert text.count("100 (7000)") > 100


def test_bars_are_held_up_to_their_edge(results: dict[str, Any]) -> None:
    assert all(held(results).values())


@pytest.mark.parametrize(
    ("row", "field", "value", "missed"),
    [
        ("codec-gateway | http-http | modern | 100 B at 32", "cpu_us", 151, "HTTP to HTTP"),
        ("codec-gateway | stdio-stdio | modern | 100 B at 32", "cpu_us", 121, "stdio to stdio"),
        (GUARDED, "calls_per_second", 5999, "HTTP to stdio"),
        (HUB, "calls_per_second", 7001, "the same beside mcp-hub"),
        (GUARDED, "p99_ms", 10.1, "the same: 99"),
        (GUARDED.replace("at 16", "at 1"), "p50_ms", 0.46, "the same, one"),
        (GUARDED.replace("100 B", "16384 B"), "calls_per_second", 4499, "the same, 16 KiB"),
    ],
)
def test_a_bar_that_is_missed_is_shown_as_missed(
    results: dict[str, Any], row: str, field: str, value: float, missed: str
) -> None:
    results["rows"][row][field] = numbers(value)

    assert [what for what, is_held in held(results).items() if not is_held] == [
        what for what in held(results) if what.startswith(missed)
    ]
    assert "**no**" in page(results)


@pytest.mark.parametrize(
    ("which", "added", "missed"),
    [
        ("leaf ids, trust", 10.1, ["10 %: 10 us at most"]),
        ("leaf ids, verify", 20.1, ["10 % and what decoding takes: 20 us at most"]),
        ("shim ids", 18.1, ["10 % and what our own encoding takes: 18 us at most"]),
        (
            "shim ids",
            40.1,
            [
                "10 % and what encoding with `tokenizers` takes: 40 us at most",
                "10 % and what our own encoding takes: 18 us at most",
            ],
        ),
    ],
)
def test_ids_that_cost_more_than_their_bar_are_shown_as_missed(
    results: dict[str, Any], which: str, added: float, missed: list[str]
) -> None:
    results["ids_cost"][f"codec-gateway: {which}"] = ids_cost(added)
    assert [bar.bar for bar in bars(rows_of(results), results) if not bar.held] == missed


def test_memory_over_its_bar_is_shown_as_missed(results: dict[str, Any]) -> None:
    results["resident_mb"]["codec-gateway: token, audit log | http-stdio | modern"] = 80.1
    assert [what for what, is_held in held(results).items() if not is_held] == ["the same: resident memory at the end"]


def test_picture_has_the_cheapest_first_and_a_peer_once(results: dict[str, Any]) -> None:
    results["rows"][OURS]["cpu_us"] = numbers(50)
    shown = picture(rows_of(results))
    assert shown.index(">codec-gateway<") < shown.index(">mcp-hub<")
    assert shown.count(">codec-gateway<") == 1
    assert "50 (7,000)" in shown
