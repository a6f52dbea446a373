"""Answers every list with what its one argument says.

The argument is JSON: for each method, the pages as they are sent. A request's cursor is the index of a page, or a name
in `cursors`; anything else gets page 0. `capabilities`: sent as they are; left out if they are "none". Notes each
request for a list.
"""

import json
import sys
from typing import Any

from transport import answer, note, requests, send

SAYS: dict[str, Any] = json.loads(sys.argv[1])


def page(request: dict[str, Any]) -> dict[str, Any]:
    cursor = request.get("params", {}).get("cursor")
    number = SAYS.get("cursors", {}).get(cursor, 0)
    note(f"{request['method']} {cursor}")
    return SAYS[request["method"]][number]


def greet(request: dict[str, Any]) -> None:
    result = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "lists", "version": "1"}}
    offered = {"tools": {"listChanged": True}, "prompts": {}, "resources": {}}
    told = SAYS.get("capabilities", offered)
    answer(request, result if told == "none" else {**result, "capabilities": told})


for message in requests():
    method = message.get("method")
    if method == "initialize":
        greet(message)
    elif method in SAYS:
        answer(message, page(message))
    elif method == "tools/call":
        answer(message, {"content": [{"type": "text", "text": message["params"]["name"]}]})
    elif "id" in message:
        send({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no such method"}})
