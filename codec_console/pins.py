"""Pins: the tools whose definition differs from the pinned one, with what changed in each.

Turns the pins and the definitions that were kept with them into line-by-line differences. Changes can't be accepted
here: the page names the command that accepts them.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import anyio.to_thread
from starlette.responses import Response

from codec_console.visit import Page, PageGroup, Visit
from gateway.config.gateway_config import GatewayConfig
from gateway.config.show import secrets_of
from gateway.errors import ConfigError
from gateway.proxy.upstream.items.tool_pins import PinChange, PinFile, changed_tools
from gateway.serve.admin.definition_difference import Line, difference

_SHOWN: Final = 20
"""Maximum number of tools whose differences are shown."""


class ChangedTool(NamedTuple):
    """A tool, and what changed in it."""

    change: PinChange
    lines: Sequence[Line]
    """Empty where one of the definitions was not kept."""


class Pins(PageGroup):
    """The page of pins."""

    def pages(self) -> Sequence[Page]:
        """The page and its path."""
        return (Page("/console/pins", self._show),)

    async def _show(self, visit: Visit) -> Response:
        tools, total, problem = await anyio.to_thread.run_sync(_read, self._sources.config)
        return self._render(
            "pins.html", visit, section="/console/servers", tools=tools, more=total - len(tools), problem=problem
        )


def changes_or_problem(config: GatewayConfig) -> tuple[list[PinChange], str]:
    """The tools that differ from their pins; or none, and the reason why the pins can't be read."""
    try:
        return changed_tools(config), ""
    except ConfigError as error:
        return [], error.message


def _read(config: GatewayConfig) -> tuple[list[ChangedTool], int, str]:
    changes, problem = changes_or_problem(config)
    kept = PinFile().definitions.read() if changes else {}
    secrets = secrets_of(config)
    tools: list[ChangedTool] = []
    for change in changes[:_SHOWN]:
        was, now = kept.get(change.pinned), kept.get(change.seen)
        lines = () if was is None or now is None else difference(was, now, secrets)
        tools.append(ChangedTool(change, lines))
    return tools, len(changes), problem
