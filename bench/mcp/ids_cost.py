"""`python -m bench.mcp.ids_cost`: what token ids add to a call, and what making them takes by itself.

Clients that name a map and clients that do not ask the same process in turns, in many short samples: the difference is
a tenth of a call, less than that between two samples a minute apart. Writes `results/mcp_ids.json` and the pages.
"""

import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import uvloop

from bench.mcp import table
from bench.mcp.ids import make_ids, own_times
from bench.mcp.load import Ask
from bench.mcp.peers import Peer
from bench.mcp.rows import FEW_TOOLS, with_ids
from bench.mcp.sample import sample
from bench.mcp.site import Site
from bench.record import summary, write

_ASK: Final = Ask("call", 100, 32)
_TURNS: Final = 60
_SECONDS: Final = 0.15


async def compare(peers: Sequence[Peer], folder: Path) -> dict[str, Any]:
    """Measure the CPU time of a call with a map named and without, and what naming one adds."""
    added: dict[str, Any] = {}
    async with Site(folder, _ASK.concurrency) as site:
        targets = {peer.name: (await site.launch(peer, "http-http", FEW_TOOLS))[0] for peer in peers}
        for peer in peers:
            if peer.same_as is None:
                continue
            pair = targets[peer.same_as], targets[peer.name]
            samples: list[list[float]] = [[], []]
            for turn in range(_TURNS + 1):
                for side in (0, 1) if turn % 2 else (1, 0):
                    taken = await sample(pair[side], _ASK, _SECONDS)
                    if turn:
                        samples[side].append(taken["cpu_us"])
            added[peer.same_as] = {
                "named_cpu_us": summary(samples[0]),
                "not_named_cpu_us": summary(samples[1]),
                "added_us": summary([named - bare for named, bare in zip(*samples, strict=True)]),
            }
    return added


def main() -> None:
    """Measure and write."""
    with tempfile.TemporaryDirectory(prefix="bench-mcp-") as temporary:
        folder = Path(temporary)
        ids = make_ids(folder)
        cost = uvloop.run(compare(list(with_ids(ids)), folder))
        taken = [own_times(ids, _ASK.size) for _ in range(5)]
    own = {name: round(statistics.median(each[name] for each in taken), 2) for name in taken[0]}
    for name, row in cost.items():
        print(f"{name:40} adds {row['added_us']['median']:.1f} us to {row['not_named_cpu_us']['median']:.1f} us")
    write("mcp_ids", ("codec-gateway", "uvloop", "tokenizers"), {"ids_cost": cost, "own_times": own})
    table.main()
    print(f"written: bench/results/mcp_ids.json, {table.WRITTEN}", file=sys.stderr)


if __name__ == "__main__":
    main()
