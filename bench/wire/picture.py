"""The committed measurements of the wire as one picture: bytes a token against the delay of a token, every variant.

Pure: results in, SVG out. Both axes are logarithmic; delays under a millisecond stand at its left edge. A dot is a
variant of greedy output, a ring the same variant of prose; its title names it.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

_WIDTH, _HEIGHT = 860, 520
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 200, 30, 60
_DELAYS: Final = (1.0, 20_000.0)
_SIZES: Final = (0.1, 500.0)
_COLOURS: Final = {"json-sse": "#b3541e", "msgpack": "#2166ac", "protobuf": "#1b7837", "msgpack-delta": "#888888"}
_STREAMS: Final = {"greedy | 1024 | 100": True, "prose | 1024 | 100": False}
_LABELS: Final = {
    "json-sse | identity | at once": "JSON events",
    "json-sse | gzip | at once": "JSON, gzip; below it plain protobuf",
    "protobuf | gzip | 40 ms": "protobuf, gzip, 40 ms",
    "protobuf | zstd+dict | batch": "zstd with a dictionary, batch",
    "protobuf | gzip | never": "gzip, never flushed",
}


def draw(results: Mapping[str, Any]) -> str:
    """Give the picture."""
    style = "font-family='sans-serif' font-size='12'"
    lines = [f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {_HEIGHT}' {style}>"]
    lines += ["<title>Bytes a token against the delay of a token</title>"]
    lines += [f"<rect width='{_WIDTH}' height='{_HEIGHT}' fill='white'/>", *_axes(), *_legend()]
    for stream, filled in _STREAMS.items():
        for name, row in results["rows"][stream].items():
            lines += _mark(name, stream.split(" | ")[0], row, filled=filled)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _mark(name: str, stream: str, row: Mapping[str, Any], *, filled: bool) -> Iterator[str]:
    colour = _COLOURS[name.split(" | ")[0]]
    x, y = _x(row["p99_ms"]), _y(row["bytes_per_token"])
    paint = f"fill='{colour}'" if filled else f"fill='none' stroke='{colour}'"
    said = f"{name.replace(' | ', ', ')} ({stream}): {row['bytes_per_token']} B/token, p99 {row['p99_ms']} ms"
    yield f"<circle cx='{x:.1f}' cy='{y:.1f}' r='4' {paint}><title>{said}</title></circle>"
    if filled and name in _LABELS:
        yield f"<text x='{x + 7:.1f}' y='{y + 4:.1f}'>{_LABELS[name]}</text>"


def _axes() -> Iterator[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    for delay in (1, 10, 100, 1000, 10_000):
        words = "≤ 1" if delay == 1 else f"{delay:,}"
        yield f"<line x1='{_x(delay):.1f}' x2='{_x(delay):.1f}' y1='{_TOP}' y2='{bottom}' stroke='#dddddd'/>"
        yield f"<text x='{_x(delay):.1f}' y='{bottom + 18}' text-anchor='middle'>{words}</text>"
    for size in (0.1, 1, 10, 100):
        yield f"<line x1='{_LEFT}' x2='{right}' y1='{_y(size):.1f}' y2='{_y(size):.1f}' stroke='#dddddd'/>"
        yield f"<text x='{_LEFT - 8}' y='{_y(size) + 4:.1f}' text-anchor='end'>{size:g}</text>"
    centre, middle = (_LEFT + right) / 2, (_TOP + bottom) / 2
    yield f"<text x='{centre:.0f}' y='{_HEIGHT - 16}' text-anchor='middle'>ms that a token is held, p99</text>"
    yield f"<text transform='translate(20 {middle:.0f}) rotate(-90)' text-anchor='middle'>bytes a token</text>"


def _legend() -> Iterator[str]:
    x = _WIDTH - _RIGHT + 40
    for number, (shape, colour) in enumerate(_COLOURS.items()):
        y = _TOP + 20 + number * 20
        yield f"<circle cx='{x}' cy='{y}' r='4' fill='{colour}'/><text x='{x + 10}' y='{y + 4}'>{shape}</text>"
    yield f"<text x='{x - 4}' y='{_TOP + 116}'>● greedy output  ○ prose</text>"


def _x(delay: float) -> float:
    return _LEFT + _share(delay, *_DELAYS) * (_WIDTH - _RIGHT - _LEFT)


def _y(size: float) -> float:
    return _HEIGHT - _BOTTOM - _share(size, *_SIZES) * (_HEIGHT - _BOTTOM - _TOP)


def _share(value: float, least: float, most: float) -> float:
    return math.log(min(max(value, least), most) / least) / math.log(most / least)
