"""`python -m bench.mcp`: what an MCP call costs through each gateway, all in one interleaved run.

Starts every target that the chosen rows need, then goes through all rows again and again, a sample each time, so that a
busy moment of the machine affects all alike. Prints a table; a whole run writes `results/mcp.json` with every sample,
and the pages that show it. `rows.py` says what is measured, `site.py` starts it, `load.py` measures, `table.py` shows.
"""

import argparse
import gc
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import uvloop

from bench.mcp import table
from bench.mcp.ids import make_ids
from bench.mcp.load import resident_bytes
from bench.mcp.peers import FASTMCP, HUB, MCP_PROXY, NPM_PROXY
from bench.mcp.rows import MOST, QUICK, Row, rows
from bench.mcp.sample import Sample, sample
from bench.mcp.site import Site, Target
from bench.record import summary, write

_PACKAGES: Final = ("codec-gateway", "uvloop", "httptools", "aiohttp", "uvicorn", "pydantic-core", "starlette")
_WARM: Final = 0.2
"""Seconds for which each row is asked before measuring begins."""

Key = tuple[str, str, str, int]


async def measure(chosen: Sequence[Row], rounds: int, seconds: float, folder: Path) -> dict[str, Any]:
    """Start what the rows need, and take `rounds` samples of each."""
    samples: dict[Row, list[Sample]] = {row: [] for row in chosen}
    async with Site(folder, MOST) as site:
        targets = await _launch(site, chosen)
        for number in range(rounds + 1):
            for row in chosen:
                gc.collect()
                taken = await sample(targets[_key(row)], row.ask, seconds if number else _WARM)
                if number:
                    samples[row].append(taken)
            print(f"round {number} of {rounds}", file=sys.stderr)
        memory = {
            " | ".join(key[:3]): round(resident_bytes(target.pid) / 1e6, 1)
            for key, target in targets.items()
            if target.pid is not None and target.peer.same_as is None
        }
    return {"rows": {str(row): _summed(taken) for row, taken in samples.items()}, "resident_mb": memory}


async def _launch(site: Site, chosen: Sequence[Row]) -> dict[Key, Target]:
    targets: dict[Key, Target] = {}
    for row in chosen:
        if _key(row) not in targets:
            print(f"starting {row.peer.name}, {row.topology}, {row.tools} tools", file=sys.stderr)
            for target in await site.launch(row.peer, row.topology, row.tools):
                targets[target.peer.name, target.topology, target.era, target.tools] = target
    return targets


def _key(row: Row) -> Key:
    return row.peer.name, row.topology, row.era, row.tools


def _summed(taken: Sequence[Sample]) -> dict[str, Any]:
    return {name: summary([sample[name] for sample in taken]) for name in taken[0]}


def show(results: dict[str, Any]) -> None:
    """Print a line for each row: medians, and the least and greatest of the CPU time."""
    print(f"{'row':86} {'calls/s':>8} {'p50 ms':>8} {'p99 ms':>8} {'CPU us a call':>14}  (least, greatest)")
    for name, row in results["rows"].items():
        cpu = row["cpu_us"]
        numbers = (
            f"{row['calls_per_second']['median']:8.0f} {row['p50_ms']['median']:8.2f} {row['p99_ms']['median']:8.2f}"
        )
        print(f"{name:86} {numbers} {cpu['median']:14.0f}  ({cpu['min']:.0f}, {cpu['max']:.0f})")
    for name, megabytes in results["resident_mb"].items():
        print(f"resident: {name:75} {megabytes:8.1f} MB")


def main() -> None:
    """Measure what the command line asks for."""
    chosen = _arguments()
    with tempfile.TemporaryDirectory(prefix="bench-mcp-") as temporary:
        folder = Path(temporary)
        ids = make_ids(folder)
        wanted = [row for row in rows(ids) if all(word in str(row) for word in chosen.only)]
        if chosen.quick:
            wanted = [row for row in wanted if row.ask in QUICK]
        if not wanted:
            raise SystemExit("no row has such a name; --list names all")
        if chosen.list:
            print(*wanted, sep="\n")
            return
        results = uvloop.run(measure(wanted, chosen.rounds, chosen.seconds, folder))
    show(results)
    if not (chosen.only or chosen.quick):
        peers = {"fastmcp": FASTMCP, "mcp-proxy (PyPI)": MCP_PROXY, "mcp-proxy (npm)": NPM_PROXY, "mcp-hub": HUB}
        settings = {"rounds": chosen.rounds, "seconds": chosen.seconds}
        write("mcp", _PACKAGES, {"peers": peers, "settings": settings, **results})
        table.main()
        print(f"written: bench/results/mcp.json, {table.WRITTEN}", file=sys.stderr)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.mcp", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", default=[], help="rows whose names hold this; may be repeated")
    parser.add_argument(
        "--quick", action="store_true", help="few rows, two rounds: a look, of which nothing is written"
    )
    parser.add_argument("--rounds", type=int, help="7, or 2 of a quick look")
    parser.add_argument("--seconds", type=float, default=0.3, help="how long a sample is taken")
    parser.add_argument("--list", action="store_true", help="name the rows and measure nothing")
    chosen = parser.parse_args()
    chosen.rounds = chosen.rounds or (2 if chosen.quick else 7)
    return chosen


if __name__ == "__main__":
    main()
