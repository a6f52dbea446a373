"""Pins: the tools that are not as they were first seen, with what changed in each.

Turns the pins and the definitions that were kept with them into differences, line by line. It accepts nothing: the page
names the command that does.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Final, NamedTuple

import anyio.to_thread
from starlette.responses import Response

from gateway.config.masking import mask_text
from gateway.config.model import GatewayConfig
from gateway.config.show import secrets_of
from gateway.engine.left_behind import shared_prefix
from gateway.errors import ConfigError
from gateway.observe.escape import escape_text
from gateway.proxy.upstream.pins import Change, PinFile
from gateway.serve.console.render import Fit
from gateway.serve.console.sources import Sources
from gateway.serve.console.visit import Page, Visit

_SHOWN: Final = 20
"""Tools whose differences are shown."""
_LINES: Final = 300
_WIDTH: Final = 160
"""Characters of a line: a long text is compared in parts."""
_AROUND: Final = 2
_BLOCK: Final = 40
"""Lines of one change that are shown."""
_ALIGNED: Final = 500
"""Lines that are compared one by one."""


class Line(NamedTuple):
    """One line of a difference."""

    kind: str
    """`ins`, `del` or nothing."""
    text: Fit


class ChangedTool(NamedTuple):
    """A tool, and what changed in it."""

    change: Change
    lines: Sequence[Line]
    """Empty where one of the definitions was not kept."""


class Pins:
    """The page."""

    def __init__(self, sources: Sources, render: Callable[..., Response]) -> None:
        self._sources = sources
        self._render = render

    def pages(self) -> Sequence[Page]:
        """Its path."""
        return (Page("/console/pins", self._show),)

    async def _show(self, visit: Visit) -> Response:
        tools, total, problem = await anyio.to_thread.run_sync(_read, self._sources.config)
        return self._render(
            "pins.html", visit, section="/console/servers", tools=tools, more=total - len(tools), problem=problem
        )


def changed_tools(config: GatewayConfig) -> tuple[list[Change], str]:
    """Tools that are not as they were pinned, of servers with pins; and why that can't be told, where it can't."""
    pinned = {each.name for each in config.upstreams if each.pin != "off"}
    try:
        changes = PinFile().changes() if pinned else []
    except ConfigError as error:
        return [], error.message
    return [each for each in changes if each.server in pinned], ""


def _read(config: GatewayConfig) -> tuple[list[ChangedTool], int, str]:
    changes, problem = changed_tools(config)
    kept = PinFile().definitions.read() if changes else {}
    secrets = secrets_of(config)
    tools: list[ChangedTool] = []
    for change in changes[:_SHOWN]:
        was, now = kept.get(change.pinned), kept.get(change.seen)
        lines = () if was is None or now is None else difference(was, now, secrets)
        tools.append(ChangedTool(change, lines))
    return tools, len(changes), problem


def difference(was: Mapping[str, Any], now: Mapping[str, Any], secrets: frozenset[str]) -> list[Line]:
    """What differs between two definitions, with two lines around each difference."""
    before, after = list(_lines(was, secrets)), list(_lines(now, secrets))
    found: list[Line] = []
    for kind, at, end, other, other_end in _changes(before, after):
        if kind == "equal":
            found += _marked("", " ", before[at:end])
        else:
            # Of each side its beginning: a long one must not hide the other.
            found += _marked("del", "-", before[at:end]) + _marked("ins", "+", after[other:other_end])
    left = len(found) - _LINES
    return found if left <= 0 else [*found[:_LINES], Line("", Fit(f"… ({left} more lines)"))]


def _changes(before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[str, int, int, int, int]]:
    """Which lines became which others, and two that stayed around each."""
    start = shared_prefix(before, after)
    stop = shared_prefix(before[start:][::-1], after[start:][::-1])
    end, other_end = len(before) - stop, len(after) - stop
    first = max(start - _AROUND, 0)
    if max(end, other_end) - start > _ALIGNED:
        # What takes long to compare is told as a whole.
        yield "equal", first, start, first, start
        yield "replace", start, end, start, other_end
        yield "equal", end, end + _AROUND, other_end, other_end + _AROUND
        return
    # Lines that are often there count too: else who repeats enough of them chooses what is seen.
    matcher = SequenceMatcher(None, before[first : end + _AROUND], after[first : other_end + _AROUND], autojunk=False)
    for group in matcher.get_grouped_opcodes(_AROUND):
        for kind, at, till, other, other_till in group:
            yield kind, first + at, first + till, first + other, first + other_till


def _marked(kind: str, sign: str, lines: Sequence[str]) -> list[Line]:
    shown = [Line(kind, Fit(escape_text(sign + line))) for line in lines[:_BLOCK]]
    more = len(lines) - _BLOCK
    return shown if more <= 0 else [*shown, Line(kind, Fit(f"{sign}… ({more} more lines)"))]


def _lines(definition: Mapping[str, Any], secrets: frozenset[str]) -> Iterator[str]:
    text = json.dumps(definition, ensure_ascii=False, indent=2, sort_keys=True)
    for line in mask_text(text, secrets).split("\n"):
        yield from (line[at : at + _WIDTH] for at in range(0, max(len(line), 1), _WIDTH))
