"""Lists its tools in pages of one; with `endless`, without end; with `verbose`, in many words.

Some of what it lists is no tool.
"""

import sys
from typing import Any

from transport import TOOL, answer, requests

ENDLESS = "endless" in sys.argv
DESCRIPTION = "x" * (40_000 if "verbose" in sys.argv else 1)


def page(request: dict[str, Any]) -> dict[str, Any]:
    number = int(request.get("params", {}).get("cursor", 0))
    tools = [{**TOOL, "name": f"tool{number}", "description": DESCRIPTION}, "no tool", {"name": 7}]
    return {"tools": tools, **({"nextCursor": str(number + 1)} if ENDLESS or number < 2 else {})}


for message in requests():
    if message.get("method") == "initialize":
        # An old server: it answers with the version that it knows.
        info = {"name": "old", "version": "1"}
        answer(message, {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": info})
    elif message.get("method") == "tools/list":
        answer(message, page(message))
