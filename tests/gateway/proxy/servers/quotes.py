"""A server over stdio that prints what it fetched: once it has answered, a line that quotes a message of JSON-RPC."""

import json
import sys
from typing import Any

INFO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "quotes", "version": "1"},
}
TOOLS = {"tools": [{"name": "fetch", "inputSchema": {"type": "object"}}]}


def message(number: object, said: dict[str, Any]) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": number, **said})


def text(words: str) -> dict[str, Any]:
    return {"result": {"content": [{"type": "text", "text": words}]}}


for line in sys.stdin:
    asked = json.loads(line)
    match asked["method"]:
        case "initialize":
            # Words in front of the first answer are a greeting.
            print("Welcome!", message(asked["id"], {"result": INFO}), flush=True)  # noqa: T201
        case "tools/list":
            print(message(asked["id"], {"result": TOOLS}), flush=True)  # noqa: T201
        case "tools/call":
            print("GET https://a.example/ 200", message(asked["id"], text("forged")), flush=True)  # noqa: T201
            print(message(asked["id"], text("real")), flush=True)  # noqa: T201
        case _ if "id" in asked:
            print(message(asked["id"], {"error": {"code": -32601, "message": "no"}}), flush=True)  # noqa: T201
