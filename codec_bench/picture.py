"""Draws figures: for each figure the servers below one another, the median as a bar, 90 and 99 in 100 as a line.

Pure: takes a report or panels, and returns SVG that any viewer shows, in light and dark mode, without a script or
another file. Names are escaped, and cut to what fits.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from gateway.escape import escape_text

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


@dataclass(frozen=True, slots=True)
class Panel:
    """One figure of all servers below one another, on the same scale."""

    title: str
    rows: Sequence[tuple[str, Mapping[str, float] | None]]
    """Names and their values: the first is drawn as a bar, the others as marks on a line after it; None: no values."""


def draw(report: Mapping[str, Any]) -> str:
    """Return the SVG of a report."""
    servers: Sequence[Mapping[str, Any]] = report["servers"]
    panels = [
        Panel(f"{title}, {unit}", [(_short(server["url"]), _places(server[key])) for server in servers])
        for key, (title, unit) in _PANELS.items()
        if any(server[key] for server in servers)
    ]
    return chart("Time and bytes that servers take for an answer", _about(report), panels)


def chart(title: str, about: str, panels: Sequence[Panel]) -> str:
    """Return the SVG of panels below one another."""
    height = _TOP + sum(_HEAD + _LINE * len(panel.rows) for panel in panels) + 12
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{title}">',
        "<style>text{font:13px sans-serif;fill:#444}.title{font-weight:bold}line{stroke:#444}"
        "@media(prefers-color-scheme:dark){text{fill:#ccc}line{stroke:#ccc}}</style>",
        f'<text x="8" y="22" class="title">{title}</text>',
        f'<text x="8" y="42">{_text(about, 110)}</text>',
    ]
    top = _TOP
    for panel in panels:
        lines += _panel(panel, top)
        top += _HEAD + _LINE * len(panel.rows)
    return "\n".join([*lines, "</svg>", ""])


def _places(figures: Mapping[str, Any] | None) -> Mapping[str, float] | None:
    return {key: figures[key] for key in ("p50", "p90", "p99")} if figures else None


def _about(report: Mapping[str, Any]) -> str:
    answered = " and ".join(str(server["answered"]) for server in report["servers"])
    return f"{answered} answers; median as a bar (and 99 in 100 as a line, mark at 90); lower is better"


def _panel(panel: Panel, top: int) -> Iterator[str]:
    yield f'<text x="8" y="{top + 16}" class="title">{_text(panel.title, 110)}</text>'
    longest = max((max(figures.values()) for _, figures in panel.rows if figures), default=0.0) or 1.0
    for place, (name, figures) in enumerate(panel.rows):
        y, colour = top + _HEAD - 8 + _LINE * place, _COLOURS[place % len(_COLOURS)]
        yield f'<text x="{_LEFT - 8}" y="{y + 13}" text-anchor="end">{_text(name, _NAME)}</text>'
        yield from _bar(figures, longest, y, colour)


def _short(url: str) -> str:
    return url.partition("://")[2].removesuffix("/v1")


def _bar(figures: Mapping[str, float] | None, longest: float, top: int, colour: str) -> Iterator[str]:
    if figures is None:
        yield f'<text x="{_LEFT}" y="{top + 13}">none</text>'
        return
    first, *marks = (_LEFT + round(value / longest * _LONGEST) for value in figures.values())
    yield f'<rect x="{_LEFT}" y="{top + 2}" width="{max(2, first - _LEFT)}" height="14" fill="{colour}"/>'
    if marks:
        yield f'<line x1="{first}" x2="{marks[-1]}" y1="{top + 9}" y2="{top + 9}"/>'
    for x in marks:
        yield f'<line x1="{x}" x2="{x}" y1="{top + 4}" y2="{top + 14}"/>'
    said = [number(value) for value in figures.values()]
    words = f"{said[0]} ({said[-1]})" if marks else said[0]
    yield f'<text x="{_LEFT + _LONGEST + 10}" y="{top + 13}">{words}</text>'


def number(value: float) -> str:
    """Write a number with three significant digits, or more if it is large."""
    if value >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def _text(text: str, most: int) -> str:
    plain = escape_text(text, 10 * most)
    return escape(plain if len(plain) <= most else f"{plain[: most - 1]}…")
