"""`plain_time` without MCP's SDK, which takes most of a second to load: for tests that need a server of any kind."""

from datetime import UTC, datetime
from typing import Any
from zoneinfo import available_timezones

from transport import answer, serve

from plain_time.clock import fold, tell_time, zones_by_city

TOOL = {
    "name": "get_time",
    "description": "Get the current time in a city",
    "inputSchema": {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "Name of the city"}},
        "required": ["city"],
    },
}
ZONES = zones_by_city(available_timezones())


def tell(request: dict[str, Any]) -> None:
    city = request["params"].get("arguments", {}).get("city", "")
    zone = ZONES.get(fold(city))
    text = f"unknown city {city!r}" if zone is None else tell_time(city, zone, datetime.now(UTC))
    answer(request, {"content": [{"type": "text", "text": text}], "isError": zone is None})


serve(tell, [TOOL])
