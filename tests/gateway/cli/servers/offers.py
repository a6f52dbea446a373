"""A server that offers what the command line says in JSON: `tools`, `prompts`, `resources`, the `result` of a call.

In place of the result `arguments`: answer with those of the call; `never`: don't answer. `error`: refuse a call with
that message.
"""

import json
import sys
from typing import Any

OFFER = json.loads(sys.argv[1])
LISTS = {"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources"}


def answered(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        offered = {key: {} for key in LISTS.values() if key in OFFER}
        info = {"name": "offers", "version": "1"}
        return {"result": {"protocolVersion": params["protocolVersion"], "capabilities": offered, "serverInfo": info}}
    if method in LISTS:
        return {"result": {LISTS[method]: OFFER[LISTS[method]]}}
    if method == "tools/call" and "error" in OFFER:
        return {"error": {"code": -32000, "message": OFFER["error"]}}
    if method == "tools/call" and OFFER["result"] == "arguments":
        return {"result": {"content": [{"type": "text", "text": json.dumps(params["arguments"])}]}}
    if method == "tools/call":
        return {"result": OFFER["result"]}
    return {"error": {"code": -32601, "message": "no such method"}}


for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked and not (asked["method"] == "tools/call" and OFFER.get("result") == "never"):
        answer = {"jsonrpc": "2.0", "id": asked["id"], **answered(asked["method"], asked.get("params", {}))}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
