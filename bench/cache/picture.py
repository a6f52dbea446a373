"""The committed measurements of the cache as a picture: what 40 conversations on 4 slots find in it.

Pure: results in, SVG out. A row is a shape and a memory; bars are the gateway and the stock server, the mark is the
best policy that knows the order.
"""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

from bench.cache.bars import PARTS, named
from bench.svg import framed

_WIDTH: Final = 760
_LEFT: Final = 300
_LONGEST: Final = 380
_LINE: Final = 40
_TOP: Final = 62
_SIDES: Final = {"ours": ("#2a7", "gateway"), "stock": ("#89a", "stock server")}
_CROWD: Final = "40 on 4"


def draw(results: Mapping[str, Any]) -> str:
    """Return the SVG."""
    rows = {name: row for name, row in results["scenes"].items() if name.startswith(_CROWD)}
    height = _TOP + _LINE * len(rows) + 12
    title = "Ids found again of conversations that come back"
    lines = [
        '<text x="8" y="42">40 conversations on 4 slots, the same memory and order; the line is the best policy</text>',
        *_legend(),
    ]
    for number, (name, row) in enumerate(rows.items()):
        lines += _row(name, row, _TOP + _LINE * number)
    return framed(_WIDTH, height, title, lines)


def _legend() -> Iterator[str]:
    for number, (colour, words) in enumerate(_SIDES.values()):
        x = _WIDTH - 230 + number * 100
        yield f'<rect x="{x}" y="12" width="12" height="12" fill="{colour}"/><text x="{x + 18}" y="22">{words}</text>'


def _row(name: str, row: Mapping[str, Any], top: int) -> Iterator[str]:
    what, part = named(name)
    shape = what.partition(", ")[2].partition(", ")[2]
    yield f'<text x="{_LEFT - 8}" y="{top + 20}" text-anchor="end">{escape(shape)}; {PARTS[part]}</text>'
    for number, (side, (colour, _)) in enumerate(_SIDES.items()):
        reuse, y = row[side]["reuse"]["median"], top + 2 + 15 * number
        yield f'<rect x="{_LEFT}" y="{y}" width="{_length(reuse)}" height="13" fill="{colour}"/>'
        yield f'<text x="{_LEFT + _LONGEST + 10}" y="{y + 11}">{reuse:.1%}</text>'
    x = _LEFT + _length(row["best"])
    yield f'<line x1="{x}" x2="{x}" y1="{top}" y2="{top + 32}" stroke="#b3541e" stroke-width="2"/>'


def _length(part: float) -> int:
    return max(2, round(part * _LONGEST))
