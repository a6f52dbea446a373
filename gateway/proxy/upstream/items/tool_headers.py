"""Leaves out tools of HTTP servers that ask for headers in a way that the protocol forbids.

A client over Streamable HTTP leaves out a tool whose `x-mcp-header` annotations are invalid, and keeps the others
(2026-07-28, "Custom Headers from Tool Parameters"). Turns the definitions that a server lists into those that may be
shown, and each of the others into a log line and an entry for `status` and `doctor`. This depends on the transport and
not on the era of a session, so that a server's tools are the same for all clients.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from gateway.config.model import UpstreamConfig
from gateway.observe.escape import escape_text
from gateway.protocol.annotations import invalid_annotation
from gateway.proxy.upstream.items.list_warnings import ListWarnings

_NAME: Final = 128
_REASON: Final = 300
_NONE: Final[Mapping[str, str]] = MappingProxyType({})


class ToolHeaders:
    """Checks the header annotations of one server's tools."""

    def __init__(self, config: UpstreamConfig) -> None:
        """Start before anything is listed."""
        self.invalid = _NONE
        """The tools that are not offered, by the server's own names, and why."""
        self._applies = config.transport == "http"
        self._warnings = ListWarnings[str](
            config.name,
            "a tool is not offered: the headers that it asks for are not valid",
            "more tools are not offered: their headers are not valid",
        )

    def screen(self, definitions: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        """Return the definitions that may be shown."""
        if not self._applies:
            return definitions
        found = {item["name"]: why for item in definitions if (why := invalid_annotation(item.get("inputSchema")))}
        # Each session has its own list, which may be shorter: a tool stays invalid until it is seen valid.
        listed = {item["name"] for item in definitions}
        self.invalid = {**{name: why for name, why in self.invalid.items() if name not in listed}, **found}
        if not found:
            return definitions
        self._warnings.warn(list(found), self._shown)
        return [item for item in definitions if item["name"] not in found]

    def _shown(self, name: str) -> Mapping[str, str]:
        return {"tool": escape_text(name, _NAME), "reason": escape_text(self.invalid[name], _REASON)}
