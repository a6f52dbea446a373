"""Asks for the client's roots as soon as it is initialized, and says in each call which ones it knows by then.

As servers that guard folders do, on every SDK.
"""

import json
import sys
from typing import Any

roots: list[str] = []


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


for line in sys.stdin:
    message = json.loads(line)
    match message.get("method"):
        case "initialize":
            able = "roots" in message["params"]["capabilities"]
            greeting = {"capabilities": {"tools": {}}, "serverInfo": {"name": "asks_first", "version": "1"}}
            send({"id": message["id"], "result": {"protocolVersion": "2025-11-25", **greeting}})
        case "notifications/initialized" if able:
            send({"id": "first", "method": "roots/list"})
        case "notifications/roots/list_changed":
            roots.clear()
            send({"id": "first", "method": "roots/list"})
        case "tools/list":
            send({"id": message["id"], "result": {"tools": [{"name": "do", "inputSchema": {"type": "object"}}]}})
        case "tools/call":
            send({"id": message["id"], "result": {"content": [{"type": "text", "text": ",".join(roots)}]}})
        case "ping" if "no-ping" not in sys.argv:
            send({"id": message["id"], "result": {}})
        case None if message["id"] == "first":
            roots += [root["uri"] for root in message.get("result", {"roots": []})["roots"]]
        case _ if "id" in message:
            send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
