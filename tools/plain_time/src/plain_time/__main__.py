"""`codec-plain-time`: one MCP tool, `get_time`, on standard input and output. No token ids anywhere, on purpose."""

from datetime import UTC, datetime
from typing import Annotated
from zoneinfo import available_timezones

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from plain_time.clock import fold, tell_time, zones_by_city


def build_server() -> MCPServer:
    """Build the server, ready to run."""
    server = MCPServer("plain-time")
    zones = zones_by_city(available_timezones())

    @server.tool(structured_output=False)
    def get_time(city: Annotated[str, Field(description="Name of the city")]) -> str:
        """Get the current time in a city"""
        zone = zones.get(fold(city))
        if zone is None:
            raise ToolError(f"unknown city {city[:80]!r}: expected the name of an IANA zone's city, such as Tokyo")
        return tell_time(city, zone, datetime.now(UTC))

    _ = get_time
    return server


def main() -> None:
    """Serve until standard input closes."""
    build_server().run("stdio")


if __name__ == "__main__":
    main()
