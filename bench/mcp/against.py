"""`python -m bench.mcp.against COMMIT`: what a call costs compared with an earlier commit of this gateway.

Both run at the same time, each in front of its own server, and are asked in turns, alternating which is first;
everything is started several times, since where a process lies in memory makes its cost differ by some hundredths.
Writes `results/against.json`; `--short` prints instead. Method: README.md.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import uvloop

from bench.commit import code_of
from bench.mcp.load import Ask
from bench.mcp.peers import TOPOLOGIES, Peer
from bench.mcp.rows import FEW_TOOLS
from bench.mcp.sample import sample
from bench.mcp.site import Site
from bench.record import summary, write

_ASK: Final = Ask("call", 100, 32)
_WARM: Final = 0.5
_SECONDS: Final = 1.5
_STARTS: Final = 4
_PAIRS: Final = 4
"""Pairs of samples in each era and topology, for each start."""

Taken = dict[str, tuple[list[float], list[float]]]


async def measure(peers: tuple[Peer, Peer], topology: str, folder: Path, pairs: int, taken: Taken) -> None:
    """Start the earlier gateway and this one, and take samples of both, in each era."""
    async with Site(folder, _ASK.concurrency) as site:
        before, now = [await site.launch(peer, topology, FEW_TOOLS) for peer in peers]
        for pair in zip(before, now, strict=True):
            figures = taken.setdefault(f"{topology}, {pair[0].era}", ([], []))
            for target in pair:
                await sample(target, _ASK, _WARM)
            for turn in range(pairs):
                for side in (0, 1) if turn % 2 else (1, 0):
                    figures[side].append((await sample(pair[side], _ASK, _SECONDS))["cpu_us"])


def run(commit: str, topologies: list[str], starts: int, pairs: int) -> dict[str, Any]:
    """Measure the CPU time of a call, by topology and era: of the commit, of this code, and the ratios of the pairs."""
    taken: Taken = {}
    with code_of(commit) as code, tempfile.TemporaryDirectory(prefix="bench-mcp-") as temporary:
        peers = Peer(f"codec-gateway at {commit}", commit, code=code), Peer("codec-gateway", "now")
        for start in range(starts):
            for topology in topologies:
                folder = Path(temporary) / f"{start} {topology}"
                uvloop.run(measure(peers, topology, folder, pairs, taken))
    return {
        row: {
            "before_cpu_us": summary(before),
            "now_cpu_us": summary(now),
            "ratio": summary([after / earlier for earlier, after in zip(before, now, strict=True)]),
        }
        for row, (before, now) in taken.items()
    }


def main(arguments: list[str]) -> None:
    """Measure, print, and write, unless only a part was asked for."""
    if not arguments or arguments[0].startswith("-"):
        raise SystemExit("usage: python -m bench.mcp.against COMMIT [--short] [TOPOLOGY ...]")
    commit, *rest = arguments
    short = "--short" in rest
    topologies = [name for name in TOPOLOGIES if name in rest] or list(TOPOLOGIES)
    rows = run(commit, topologies, 1 if short else _STARTS, 2 if short else _PAIRS)
    for name, row in rows.items():
        medians = [row[side]["median"] for side in ("before_cpu_us", "now_cpu_us")]
        ratio = row["ratio"]
        print(
            f"{name:24} {medians[0]:6.1f} {medians[1]:6.1f} us a call, of medians {medians[1] / medians[0]:.3f}, ",
            end="",
        )
        print(f"pairs {ratio['median']:.3f} ({ratio['min']:.3f} to {ratio['max']:.3f})")
    if not short and len(topologies) == len(TOPOLOGIES):
        write("against", ("codec-gateway", "uvloop", "uvicorn"), {"commit": commit, "rows": rows})


if __name__ == "__main__":
    main(sys.argv[1:])
