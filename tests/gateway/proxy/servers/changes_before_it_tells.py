"""A server of 2026-07-28 that has one more tool for each stream of changes that it was asked for, and tells of none.

It is as if each had changed after it was listed, and before the stream stood.
"""

from typing import Any

from transport import TOOL, answer, requests, send

TOOLS = [{**TOOL, "name": "do"}]
OFFER = {"tools": {"listChanged": True}, "resources": {"subscribe": True}}
METHODS: dict[str, dict[str, Any]] = {
    "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": OFFER},
    "tools/list": {"tools": TOOLS},
    "resources/list": {"resources": [{"uri": "x:1", "name": "x"}]},
    "resources/templates/list": {"resourceTemplates": []},
    "tools/call": {"content": []},
}

for received in requests():
    if received.get("method") == "subscriptions/listen":
        TOOLS.append({**TOOL, "name": f"do{len(TOOLS)}"})
        meta = {"io.modelcontextprotocol/subscriptionId": received["id"]}
        params = {"_meta": meta, "notifications": received["params"]["notifications"]}
        send({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params})
    elif received.get("method") in METHODS:
        answer(received, {"resultType": "complete", **METHODS[received["method"]]})
    elif "id" in received:
        send({"jsonrpc": "2.0", "id": received["id"], "error": {"code": -32601, "message": "no such method"}})
