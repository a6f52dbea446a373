"""The committed measurements of the wire as one picture: bytes per token for each form, coding and flush policy.

Pure: results in, SVG out. A row is a form in a coding; a dot is a flush policy, whose colour says how long a token may
be held; its title gives the figures. Two columns: greedy output, which repeats itself, and prose. The axes are
logarithmic.
"""

import math
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, Final

_WIDTH: Final = 900
_LEFT: Final = 190
_GAP: Final = 40
_PANEL: Final = (_WIDTH - _LEFT - _GAP - 30) // 2
_TOP: Final = 84
_ROW: Final = 19
_GROUP_GAP: Final = 10
_SIZES: Final = (0.1, 500.0)
_POLICIES: Final = {
    "at once": ("#b3541e", "at once"),
    "40 ms": ("#2166ac", "held for up to 40 ms"),
    "50 ms": ("#7fb2dd", "up to 50 ms"),
    "batch": ("#1b7837", "one batch at the end"),
    "never": ("#999999", "never flushed"),
}
_STREAMS: Final = {"greedy | 1024 | 100": "greedy output", "prose | 1024 | 100": "prose"}
_CODINGS: Final = {"identity": "plain", "zstd+dict": "zstd, dictionary"}


def draw(results: Mapping[str, Any]) -> str:
    """Return the picture."""
    heights = dict(_heights(next(iter(results["rows"].values()))))
    bottom = max(heights.values()) + _ROW
    lines = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {bottom + 50}' "
        "font-family='sans-serif' font-size='12'>",
        "<title>Bytes a token, by form, coding and flush policy</title>",
        f"<rect width='{_WIDTH}' height='{bottom + 50}' fill='white'/>",
        *_legend(),
        *_names(heights),
    ]
    for number, (stream, words) in enumerate(_STREAMS.items()):
        left = _LEFT + number * (_PANEL + _GAP)
        lines += _axis(left, bottom, words)
        for name, row in results["rows"][stream].items():
            lines += _dot(name, words, row, left, heights[_form(name)])
    return "\n".join([*lines, "</svg>"]) + "\n"


def _form(name: str) -> str:
    """Return the form and the coding of a variant, without its flush policy."""
    return name.rpartition(" | ")[0]


def _heights(variants: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield each form in each coding, with the height of its row; there is a gap between forms."""
    y = _TOP
    for _, group in groupby(dict.fromkeys(map(_form, variants)), key=lambda form: form.partition(" | ")[0]):
        for form in group:
            yield form, y
            y += _ROW
        y += _GROUP_GAP


def _names(heights: Mapping[str, int]) -> Iterator[str]:
    for form, y in heights.items():
        kind, _, coding = form.partition(" | ")
        yield f"<text x='{_LEFT - 12}' y='{y + 4}' text-anchor='end'>{kind}, {_CODINGS.get(coding, coding)}</text>"
        for left in (_LEFT, _LEFT + _PANEL + _GAP):
            yield f"<line x1='{left}' x2='{left + _PANEL}' y1='{y}' y2='{y}' stroke='#eeeeee'/>"


def _axis(left: int, bottom: int, words: str) -> Iterator[str]:
    yield f"<text x='{left}' y='{_TOP - 22}' font-weight='bold'>{words}</text>"
    for size in (0.1, 1, 10, 100):
        x = left + _share(size)
        yield f"<line x1='{x:.1f}' x2='{x:.1f}' y1='{_TOP - 12}' y2='{bottom}' stroke='#dddddd'/>"
        yield f"<text x='{x:.1f}' y='{bottom + 16}' text-anchor='middle'>{size:g}</text>"
    yield f"<text x='{left + _PANEL / 2:.0f}' y='{bottom + 36}' text-anchor='middle'>bytes a token</text>"


def _dot(name: str, stream: str, row: Mapping[str, Any], left: int, y: int) -> Iterator[str]:
    colour, _ = _POLICIES[name.rpartition(" | ")[2]]
    said = f"{name.replace(' | ', ', ')} ({stream}): {row['bytes_per_token']} B/token, p99 {row['p99_ms']} ms"
    x = left + _share(row["bytes_per_token"])
    yield (
        f"<circle cx='{x:.1f}' cy='{y}' r='4.5' fill='{colour}' stroke='white' stroke-width='0.8'>"
        f"<title>{said}</title></circle>"
    )


def _legend() -> Iterator[str]:
    x = 24
    for colour, words in _POLICIES.values():
        yield f"<circle cx='{x}' cy='24' r='4.5' fill='{colour}'/><text x='{x + 10}' y='28'>{words}</text>"
        x += 44 + 7 * len(words)


def _share(size: float) -> float:
    """Return how far along its axis a number of bytes is, in pixels."""
    least, most = _SIZES
    return math.log(min(max(size, least), most) / least) / math.log(most / least) * _PANEL
