"""The bars that the gateway must meet: each one, what was measured, and whether it is held or missed.

Pure: reads what `table.py` read. A bar that is missed is shown as missed.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

Rows = Mapping[tuple[str, str, str, str], Mapping[str, Any]]
_OURS = "codec-gateway"
_GUARDED = "codec-gateway: token, audit log"


class Bar(NamedTuple):
    """One bar."""

    what: str
    bar: str
    measured: str
    held: bool


def bars(rows: Rows, results: Mapping[str, Any]) -> Iterator[Bar]:
    """Yield all bars that the results have rows for. CPU and rates are medians of the modern era."""

    def value(peer: str, side: str, ask: str, field: str) -> float:
        return rows[peer, side, "modern", ask][field]["median"]

    for side, name, most in (("http-http", "HTTP to HTTP", 150), ("stdio-stdio", "stdio to stdio", 120)):
        cpu = value(_OURS, side, "100 B at 32", "cpu_us")
        yield Bar(f"{name}, 100 B, 32 at a time: CPU per call", f"{most} us at most", f"{cpu:.0f} us", cpu <= most)
    yield from _guarded(value, rows)
    memory = max(size for name, size in results["resident_mb"].items() if name.startswith(f"{_GUARDED} | http-stdio"))
    yield Bar("the same: resident memory at the end", "80 MB at most", f"{memory:.0f} MB", memory <= 80)
    yield from _with_ids(results["ids_cost"], results["own_times"])


def _guarded(value: Callable[[str, str, str, str], float], rows: Rows) -> Iterator[Bar]:
    what = "HTTP to stdio with token, audit log and metrics"
    rate = value(_GUARDED, "http-stdio", "100 B at 16", "calls_per_second")
    yield Bar(f"{what}, 100 B, 16 at a time", "6,000 calls/s at least", f"{rate:,.0f} calls/s", rate >= 6000)
    hub = rows["mcp-hub", "http-stdio", "handshake", "100 B at 16"]["calls_per_second"]["median"]
    yield Bar(
        "the same beside mcp-hub, which does none of this, in this run (6,011 calls/s when the limits were set)",
        "as many calls/s at least",
        f"{rate / hub:.1f} times {hub:,.0f} calls/s",
        rate >= hub,
    )
    p99 = value(_GUARDED, "http-stdio", "100 B at 16", "p99_ms")
    yield Bar("the same: 99 of 100 calls take", "10 ms at most", f"{p99:.1f} ms", p99 <= 10)
    alone = rows["direct", "stdio-stdio", "handshake", "100 B at 1"]["p50_ms"]["median"]
    added = value(_GUARDED, "http-stdio", "100 B at 1", "p50_ms") - alone
    yield Bar(
        "the same, one at a time: added to the server's own time", "0.25 ms at most", f"{added:.2f} ms", added <= 0.25
    )
    rate = value(_GUARDED, "http-stdio", "16384 B at 16", "calls_per_second")
    yield Bar("the same, 16 KiB, 16 at a time", "4,500 calls/s at least", f"{rate:,.0f} calls/s", rate >= 4500)


def _with_ids(cost: Mapping[str, Any], own: Mapping[str, float]) -> Iterator[Bar]:
    """Yield the bars on what naming a map may add: medians of samples taken in turns, in one process."""
    for which, what, allowed in (
        ("leaf ids, trust", "", 0.0),
        ("leaf ids, verify", " and what decoding takes", own["decode_us"]),
        ("shim ids", " and what encoding with `tokenizers` takes", own["library_encode_us"]),
        ("shim ids", " and what our own encoding takes", own["encode_us"]),
    ):
        row = cost[f"{_OURS}: {which}"]
        without, added = row["not_named_cpu_us"]["median"], row["added_us"]["median"]
        most = without * 0.1 + allowed
        yield Bar(
            f"{which}, 100 B, 32 at a time: CPU added to the {without:.0f} us of a call that names no map",
            f"10 %{what}: {most:.0f} us at most",
            f"{added:.0f} us ({added / without:.1%})",
            added <= most,
        )
