"""Tools of HTTP servers that ask for headers in a way that the protocol forbids: they are not offered.

A client over Streamable HTTP leaves out a tool whose `x-mcp-header` annotations are invalid, and keeps the others
(2026-07-28, "Custom Headers from Tool Parameters"). Turns the definitions that a server lists into those that may be
shown, and each that may not into a log line and an entry for `status` and `doctor`. It goes by the transport and not by
the era of a session, so that a server's tools are the same for all clients.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from gateway.config.model import UpstreamConfig
from gateway.observe.escape import escape_text
from gateway.observe.logs import get_logger
from gateway.protocol.annotations import invalid_annotation

_NAME: Final = 128
_REASON: Final = 300
_LINES: Final = 20
"""Tools that the log names of one listing."""
_TOLD: Final = 5000
"""Tools of which is known that the log named them."""
_NONE: Final[Mapping[str, str]] = MappingProxyType({})


class ToolHeaders:
    """The annotations of one server's tools."""

    def __init__(self, config: UpstreamConfig) -> None:
        """Nothing is listed yet."""
        self.invalid = _NONE
        """Its own names of the tools that are not offered, and why."""
        self._applies = config.transport == "http"
        self._log = get_logger("gateway.proxy").bind(server=config.name)
        self._told: set[str] = set()

    def screen(self, definitions: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        """The definitions that may be shown."""
        if not self._applies:
            return definitions
        found = {item["name"]: why for item in definitions if (why := invalid_annotation(item.get("inputSchema")))}
        # Each session lists for itself, and may list less: what is invalid stays so until it is seen valid.
        listed = {item["name"] for item in definitions}
        self.invalid = {**{name: why for name, why in self.invalid.items() if name not in listed}, **found}
        if not found:
            return definitions
        self._tell([name for name in found if name not in self._told])
        return [item for item in definitions if item["name"] not in found]

    def _tell(self, names: list[str]) -> None:
        """Say of each tool once that it is not offered."""
        if len(self._told) + len(names) > _TOLD:
            self._told.clear()
        self._told.update(names)
        for name in names[:_LINES]:
            self._log.warning(
                "a tool is not offered: the headers that it asks for are not valid",
                tool=escape_text(name, _NAME),
                reason=escape_text(self.invalid[name], _REASON),
            )
        if len(names) > _LINES:
            self._log.warning("more tools are not offered for their headers", tools=len(names) - _LINES)
