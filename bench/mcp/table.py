"""The committed measurements as a page and a picture: `python -m bench.mcp.table`; a test compares.

Reads `results/mcp.json` and `results/mcp_ids.json`, writes `docs/mcp-speed.md` and `docs/mcp-speed.svg`. Medians only;
the samples stay in the files.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from bench.mcp.bars import Rows, bars
from bench.mcp.chart import picture
from bench.mcp.rows import SHOWN
from bench.record import RESULTS

ROOT: Final = Path(__file__).parents[2]

_HEAD: Final = """# What an MCP call costs

How fast MCP calls go through the gateway, through comparable programs and through a bare relay of bytes, all in one
interleaved run. `make bench-mcp` takes the measurements and writes this page from `bench/results/mcp.json` and
`mcp_ids.json`, which hold every sample; a test checks that the page matches them. [bench/README.md](../bench/README.md)
describes the method.

![CPU time per call of the gateway and of comparable programs](mcp-speed.svg)
"""
_SIDES: Final = {
    "stdio-stdio": "stdio client, stdio server",
    "http-stdio": "HTTP client, stdio server",
    "http-http": "HTTP client, HTTP server",
    "stdio-http": "stdio client, HTTP server",
    "http-none": "HTTP client, no server: the floor of the HTTP server that the gateway is built on",
}


WRITTEN: Final = "docs/mcp-speed.md, docs/mcp-speed.svg"


def page(results: Mapping[str, Any]) -> str:
    """Return the whole page."""
    rows = rows_of(results)
    parts = [*_machine(results), *_bars(rows, results), *_tables(rows), *_ours(rows, results), *_memory(results)]
    return "\n".join([_HEAD, *parts]).rstrip("\n") + "\n"


def rows_of(results: Mapping[str, Any]) -> Rows:
    """Return the rows by peer, topology, era and ask."""
    rows: dict[tuple[str, str, str, str], Mapping[str, Any]] = {}
    for name, row in results["rows"].items():
        peer, topology, era, ask = name.split(" | ")
        rows[peer, topology, era, ask] = row
    return rows


def _machine(results: Mapping[str, Any]) -> Iterator[str]:
    machine, settings = results["machine"], results["settings"]
    peers = ", ".join(f"{name} {version}" for name, version in results["peers"].items())
    yield (
        f"Measured on {results['date']}: {machine['cores']} cores ({machine['cpu']}), Python {machine['python']}, load "
        f"{machine['load'][0]} at the end; {settings['rounds']} rounds of {settings['seconds']} s per row. {peers}."
    )
    yield ""
    yield (
        "`at 16` means sixteen calls at a time; `list of 200` is `tools/list` of a server with that many tools, and "
        "all other columns are calls with a result of the given size."
    )
    yield ""


def _bars(rows: Rows, results: Mapping[str, Any]) -> Iterator[str]:
    yield "## Our own limits"
    yield ""
    lines = [[each.what, each.bar, each.measured, "yes" if each.held else "**no**"] for each in bars(rows, results)]
    yield from _table(["", "limit", "measured", "met"], lines)


def _tables(rows: Rows) -> Iterator[str]:
    for topology, title in _SIDES.items():
        here = list(dict.fromkeys((peer, era) for peer, side, era, _ in rows if side == topology and ":" not in peer))
        yield f"## {title}"
        yield ""
        yield "CPU time of the program in the middle, in microseconds per call (calls per second in brackets)."
        yield ""
        yield from _table(["", *SHOWN], [_line(rows, topology, *who) for who in here])


def _line(rows: Rows, topology: str, peer: str, era: str) -> list[str]:
    return [f"{peer}, {era}", *(_cell(rows.get((peer, topology, era, ask))) for ask in SHOWN)]


def _cell(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "-"
    cpu, rate = row["cpu_us"]["median"], row["calls_per_second"]["median"]
    return f"{cpu:.0f} ({rate:.0f})" if cpu > 0 else f"({rate:.0f})"


def _ours(rows: Rows, results: Mapping[str, Any]) -> Iterator[str]:
    own = results["own_times"]
    yield "## With more work per call"
    yield ""
    yield (
        f"Texts of 100 bytes. Encoding one takes {own['encode_us']:.0f} us with our own encoder and "
        f"{own['library_encode_us']:.0f} us with `tokenizers` alone; decoding its ids takes {own['decode_us']:.0f} us."
    )
    yield ""
    special = list(dict.fromkeys(key[:3] for key in rows if ":" in key[0]))
    asks = ("100 B at 1", "100 B at 16", "100 B at 32")
    lines = [
        [f"{peer}, {_SIDES[side]}, {era}", *(_cell(rows.get((peer, side, era, a))) for a in asks)]
        for peer, side, era in special
    ]
    yield from _table(["", *asks], lines)


def _memory(results: Mapping[str, Any]) -> Iterator[str]:
    yield "## Resident memory at the end"
    yield ""
    seen = {" | ".join(name.split(" | ")[:2]): size for name, size in results["resident_mb"].items()}
    yield from _table(["", "MB"], [[name.replace(" | ", ", "), f"{size:.0f}"] for name, size in seen.items()])


def _table(head: list[str], lines: list[list[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for line in lines:
        yield "| " + " | ".join(line) + " |"
    yield ""


def measured() -> dict[str, Any]:
    """Return the committed results of both measurements."""
    whole, ids = (json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")) for name in ("mcp", "mcp_ids"))
    return {**whole, "ids_cost": ids["ids_cost"], "own_times": ids["own_times"]}


def main() -> None:
    """Write the page and the picture."""
    results = measured()
    (ROOT / "docs" / "mcp-speed.md").write_text(page(results), encoding="utf-8")
    (ROOT / "docs" / "mcp-speed.svg").write_text(picture(rows_of(results)), encoding="utf-8")


if __name__ == "__main__":
    main()
