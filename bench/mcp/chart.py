"""The committed measurements as a picture: `docs/mcp-speed.svg`, bars of CPU time per call.

Pure: turns rows into SVG. It shows the figure that matters, the CPU time of the program in the middle, in the topology
that most peers can serve.
"""

from collections.abc import Mapping
from html import escape
from typing import Any, Final

from bench.svg import framed

_TOPOLOGY: Final = "http-stdio"
_ASK: Final = "100 B at 16"
_WIDTH: Final = 720
_LEFT: Final = 190
_LINE: Final = 26
_TOP: Final = 56
_OURS: Final = "codec-gateway"


def picture(rows: Mapping[tuple[str, str, str, str], Mapping[str, Any]]) -> str:
    """Return the SVG: a bar for each peer, in the era in which it does best, shortest first."""
    best: dict[str, Mapping[str, Any]] = {}
    for (peer, topology, _, ask), row in rows.items():
        mine = topology == _TOPOLOGY and ask == _ASK and row["cpu_us"]["median"] > 0
        if mine and (peer not in best or row["cpu_us"]["median"] < best[peer]["cpu_us"]["median"]):
            best[peer] = row
    bars = sorted(best.items(), key=lambda pair: pair[1]["cpu_us"]["median"])
    longest = bars[-1][1]["cpu_us"]["median"]
    height = _TOP + _LINE * len(bars) + 12
    title = "CPU time a call, in microseconds (calls a second)"
    lines = [
        '<text x="8" y="40">HTTP before, stdio behind, results of 100 bytes, 16 calls at a time; least is best</text>',
    ]
    for number, (peer, row) in enumerate(bars):
        lines += _bar(peer, row, _TOP + _LINE * number, longest)
    return framed(_WIDTH, height, title, lines, bold="ours")


def _bar(peer: str, row: Mapping[str, Any], top: int, longest: float) -> list[str]:
    cpu, rate = row["cpu_us"]["median"], row["calls_per_second"]["median"]
    length = max(2, round(cpu / longest * (_WIDTH - _LEFT - 130)))
    ours = peer.startswith(_OURS)
    color, style = ("#2a7", ' class="ours"') if ours else ("#89a", "")
    name = "with token, audit log" if ours and ":" in peer else peer
    return [
        f'<text x="{_LEFT - 8}" y="{top + 15}" text-anchor="end"{style}>{escape(name)}</text>',
        f'<rect x="{_LEFT}" y="{top + 2}" width="{length}" height="18" fill="{color}"/>',
        f'<text x="{_LEFT + length + 6}" y="{top + 15}"{style}>{cpu:,.0f} ({rate:,.0f})</text>',
    ]
