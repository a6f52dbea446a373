"""A report as a picture: for each figure the servers below each other, median as a bar, 90 and 99 in 100 as a line.

Pure: the report in, SVG out, which any viewer shows, in light and in dark, without a script or another file. Addresses
are escaped, and cut to what fits.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

from gateway.observe.escape import escape_text

_WIDTH: Final = 760
_LEFT: Final = 250
_LONGEST: Final = 360
_LINE: Final = 24
_HEAD: Final = 34
_TOP: Final = 66
_NAME: Final = 34
_COLOURS: Final = ("#2a7", "#89a", "#b3541e", "#75c", "#c93", "#379", "#a46", "#666")
_PANELS: Final[Mapping[str, tuple[str, str]]] = {
    "first_ms": ("first token", "ms"),
    "between_ms": ("between tokens", "ms"),
    "whole_ms": ("whole answer", "ms"),
    "bytes_a_token": ("received for a token", "bytes"),
}


def draw(report: Mapping[str, Any]) -> str:
    """Give the SVG."""
    servers: Sequence[Mapping[str, Any]] = report["servers"]
    panels = [key for key in _PANELS if any(server[key] for server in servers)]
    height = _TOP + len(panels) * (_HEAD + _LINE * len(servers)) + 12
    title = "What servers take for an answer"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{title}">',
        "<style>text{font:13px sans-serif;fill:#444}.title{font-weight:bold}line{stroke:#444}"
        "@media(prefers-color-scheme:dark){text{fill:#ccc}line{stroke:#ccc}}</style>",
        f'<text x="8" y="22" class="title">{title}</text>',
        f'<text x="8" y="42">{_text(_about(report), 110)}</text>',
    ]
    top = _TOP
    for key in panels:
        lines += _panel(key, servers, top)
        top += _HEAD + _LINE * len(servers)
    return "\n".join([*lines, "</svg>", ""])


def _about(report: Mapping[str, Any]) -> str:
    answered = " and ".join(str(server["answered"]) for server in report["servers"])
    return f"{answered} answers; median as a bar (and 99 in 100 as a line, mark at 90); less is better"


def _panel(key: str, servers: Sequence[Mapping[str, Any]], top: int) -> Iterator[str]:
    title, unit = _PANELS[key]
    yield f'<text x="8" y="{top + 16}" class="title">{title}, {unit}</text>'
    longest = max((server[key]["p99"] for server in servers if server[key]), default=0.0) or 1.0
    for place, server in enumerate(servers):
        y, colour = top + _HEAD - 8 + _LINE * place, _COLOURS[place % len(_COLOURS)]
        yield f'<text x="{_LEFT - 8}" y="{y + 13}" text-anchor="end">{_text(_short(server["url"]), _NAME)}</text>'
        yield from _bar(server[key], longest, y, colour)


def _short(url: str) -> str:
    return url.partition("://")[2].removesuffix("/v1")


def _bar(figures: Mapping[str, Any] | None, longest: float, top: int, colour: str) -> Iterator[str]:
    if figures is None:
        yield f'<text x="{_LEFT}" y="{top + 13}">none</text>'
        return
    p50, p90, p99 = (_LEFT + round(figures[key] / longest * _LONGEST) for key in ("p50", "p90", "p99"))
    yield f'<rect x="{_LEFT}" y="{top + 2}" width="{max(2, p50 - _LEFT)}" height="14" fill="{colour}"/>'
    yield f'<line x1="{p50}" x2="{p99}" y1="{top + 9}" y2="{top + 9}"/>'
    for x in (p90, p99):
        yield f'<line x1="{x}" x2="{x}" y1="{top + 4}" y2="{top + 14}"/>'
    words = f"{number(figures['p50'])} ({number(figures['p99'])})"
    yield f'<text x="{_LEFT + _LONGEST + 10}" y="{top + 13}">{words}</text>'


def number(value: float) -> str:
    """Three digits that say something."""
    if value >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def _text(text: str, most: int) -> str:
    plain = escape_text(text, 10 * most)
    return escape(plain if len(plain) <= most else f"{plain[: most - 1]}…")
