"""Templates to pages: whatever a template shows is plain, readable text.

Turns values into HTML. Every value is escaped for HTML, and every text that a page has not prepared itself
(`PreparedText`) is stripped of control characters and cut (`gateway/escape.py`). This is automatic: a template
can't forget it.
"""

import shlex
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from gateway.documentation.pages import own_spelling
from gateway.escape import escape_text, mask_text

_FOLDER: Final = Path(__file__).parent
_LONGEST: Final = 65_536
"""Maximum characters shown of a multi-line text."""
_MILLISECOND: Final = 0.001
_EXACT_RATE: Final = 10.0
"""Below this, a rate is shown with one decimal."""


class PreparedText(str):
    """Text that a page may show unchanged, except for escaping it for HTML."""

    __slots__ = ()


def lines(text: str, secrets: Iterable[str] = (), limit: int = _LONGEST) -> PreparedText:
    """Foreign text with its line breaks, without secrets and control characters, cut to a limit."""
    masked = mask_text(text, secrets)
    cut = masked[:limit]
    shown = "\n".join(escape_text(line, limit) for line in cut.split("\n"))
    return PreparedText(shown if len(cut) == len(masked) else f"{shown}… ({len(masked) - len(cut)} more characters)")


class Renderer:
    """The templates of the console."""

    def __init__(self) -> None:
        self._templates = Environment(
            loader=FileSystemLoader(_FOLDER / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_finalize,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        # The library's type for the table allows only its own filters.
        filters = cast("dict[str, Callable[..., object]]", self._templates.filters)
        filters.update(_FILTERS)
        cast("dict[str, object]", self._templates.globals)["program"] = own_spelling().program

    def page(self, template: str, values: Mapping[str, Any], status: int = 200) -> Response:
        """Render a template as a page."""
        return HTMLResponse(self._templates.get_template(template).render(values), status)


def _finalize(value: Any) -> Any:
    """What a template shows for a value: any text that is neither `PreparedText` nor markup is escaped."""
    return escape_text(value) if isinstance(value, str) and not isinstance(value, Markup | PreparedText) else value


def show_seconds(seconds: float) -> str:
    """A duration for people: `0.4 ms`, `12 ms`, `3.1 s`."""
    if seconds < _MILLISECOND:
        return f"{seconds * 1000:.1f} ms"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def show_rate(per_second: float) -> str:
    """A rate for people: `8.4`, `41`."""
    return f"{per_second:.1f}" if per_second < _EXACT_RATE else show_count(round(per_second))


def show_count(number: int) -> str:
    """A number with its digits in groups of three, as the viewer (`static/elements.js`) shows it too."""
    return f"{number:,}"


def show_short(text: object, limit: int) -> PreparedText:
    """The first `limit` characters of a text; empty for what is not a text."""
    return PreparedText(escape_text(text, limit) if isinstance(text, str) else "")


def in_address(text: str) -> PreparedText:
    """A text as a value in the query of a URL."""
    return PreparedText(quote(text.encode("utf-8", "surrogatepass"), safe=""))


def show_time(when: datetime) -> str:
    """A date and time with its zone, that of the gateway's machine: `27 Nov 2026, 14:05:09 CET`."""
    return when.astimezone().strftime("%-d %b %Y, %H:%M:%S %Z")


_FILTERS: Final[Mapping[str, Callable[..., object]]] = {
    "seconds": show_seconds,
    "count": show_count,
    "rate": show_rate,
    "time": show_time,
    "short": show_short,
    "whole": PreparedText,
    "address": in_address,
    "quoted": shlex.quote,
}
