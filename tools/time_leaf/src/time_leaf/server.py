"""Two tools about time on an MCP server, and the one line that makes it a leaf. Copy this file to start your own.

A tool returns text, as on any MCP server. `make_leaf` puts the token ids of that text beside it, in `_meta`, where a
client that does not know them never looks.
"""

from collections.abc import Callable
from datetime import datetime
from importlib.metadata import version
from typing import Annotated

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from leaf_sdk import MetaTokenizer
from leaf_sdk.serve import make_leaf

from . import clock

Zone = Annotated[str, Field(description="IANA timezone name")]
ZoneOrUtc = Annotated[str, Field(description="IANA timezone name", default_factory=lambda: clock.DEFAULT_ZONE)]
"""The schema does not name the default: a small model that read it would ask for nothing else."""


def build_server(now: Callable[[], datetime], meta: MetaTokenizer | None = None) -> MCPServer:
    """Build the server.

    Args:
        now: returns the present moment, with a time zone; tests pass a clock that stands still.
        meta: the map to tokenize with; None serves plain text.
    """
    server = MCPServer("codec-time-leaf", version=version("codec-time-leaf"), log_level="WARNING")

    # Structured output would say everything twice, and a model reads the text.
    @server.tool(structured_output=False)
    def get_current_time(timezone: ZoneOrUtc) -> str:
        """Get the current time in a timezone"""
        try:
            return _sentence(clock.read_clock(now(), timezone))
        except clock.UnknownPlace as error:
            raise ToolError(str(error)) from error

    @server.tool(structured_output=False)
    def convert_time(source_timezone: Zone, time: str, target_timezone: Zone) -> str:
        """Convert a time of today, HH:MM, from one timezone to another"""
        try:
            source, target = clock.convert(now(), source_timezone, time, target_timezone)
        except (clock.UnknownPlace, clock.UnreadableTime) as error:
            raise ToolError(str(error)) from error
        return f"{_sentence(source)} {_sentence(target)}"

    if meta is not None:
        make_leaf(server, meta)
    return server


def _sentence(reading: clock.Reading) -> str:
    """Return a sentence, which even the smallest model can read and repeat."""
    date = f"{reading.day}, {reading.date} (UTC{reading.utc_offset})"
    return f"The time in {reading.timezone} is {reading.time} on {date}."
