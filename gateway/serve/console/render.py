"""Templates to pages: whatever a template shows is text, for HTML and for eyes.

Turns values into HTML. Every value is escaped, and every text that a page did not make fit itself (`Fit`) loses its
control characters and its length (`observe/escape.py`), by construction: a template can't forget it.
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

from gateway.config.masking import mask_text
from gateway.observe.escape import escape_text

_FOLDER: Final = Path(__file__).parent
_LONGEST: Final = 65_536
"""Characters of a text of several lines that are shown."""
_MILLISECOND: Final = 0.001


class Fit(str):
    """Text that may stand on a page as it is, once it is escaped for HTML."""

    __slots__ = ()


def lines(text: str, secrets: Iterable[str] = (), limit: int = _LONGEST) -> Fit:
    """Text of others in its own lines, without secrets and control characters, cut to a limit."""
    masked = mask_text(text, secrets)
    cut = masked[:limit]
    shown = "\n".join(escape_text(line, limit) for line in cut.split("\n"))
    return Fit(shown if len(cut) == len(masked) else f"{shown}… ({len(masked) - len(cut)} more characters)")


class Renderer:
    """The templates of the console."""

    def __init__(self) -> None:
        """They are read when they are first used."""
        self._templates = Environment(
            loader=FileSystemLoader(_FOLDER / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_finalize,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        # The library types the table by the filters that it has itself.
        filters = cast("dict[str, Callable[..., object]]", self._templates.filters)
        filters.update(_FILTERS)

    def page(self, template: str, values: Mapping[str, Any], status: int = 200) -> Response:
        """A template's page."""
        return HTMLResponse(self._templates.get_template(template).render(values), status)


def _finalize(value: Any) -> Any:
    """What a template shows in place of a value."""
    return escape_text(value) if isinstance(value, str) and not isinstance(value, Markup | Fit) else value


def show_seconds(seconds: float) -> str:
    """A time as a person reads it: `0.4 ms`, `12 ms`, `3.1 s`."""
    if seconds < _MILLISECOND:
        return f"{seconds * 1000:.1f} ms"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def show_count(number: int) -> str:
    """A number in groups of three, with narrow blanks that don't break."""
    return Fit(f"{number:,}".replace(",", "\u202f"))


def show_short(text: object, limit: int) -> Fit:
    """So many characters of what should be a text."""
    return Fit(escape_text(text, limit) if isinstance(text, str) else "")


def in_address(text: str) -> Fit:
    """A text as a value in the query of an address."""
    return Fit(quote(text.encode("utf-8", "surrogatepass"), safe=""))


def show_clock(when: datetime) -> str:
    """The time of day (UTC)."""
    return when.strftime("%H:%M:%S")


_FILTERS: Final[Mapping[str, Callable[..., object]]] = {
    "seconds": show_seconds,
    "count": show_count,
    "clock": show_clock,
    "short": show_short,
    "whole": Fit,
    "address": in_address,
    "quoted": shlex.quote,
}
