"""A server whose every word is an attack on the page that shows it: names, descriptions, schemas, results."""

import json
import os
import sys

ATTACK = (
    "</textarea></title><script>alert(1)</script>\"'><img src=x onerror=alert(1)>\x1b[31m\u202e\u2066{{ 7*7 }}\u0000"
    '<a href="javascript:alert(1)">'
)
LONG = "W" * 1_000_000
TOOLS = [
    {
        "name": f"say{ATTACK}",
        "title": ATTACK,
        "description": f"{ATTACK}\n{LONG}",
        "annotations": {"readOnlyHint": False, "destructiveHint": True, "title": ATTACK, "openWorldHint": "yes"},
        "inputSchema": {
            "type": "object",
            "description": ATTACK,
            "required": ["text", ATTACK],
            "properties": {
                "text": {"type": "string", "description": ATTACK},
                ATTACK: {"type": "integer", "description": LONG},
                "one": {"enum": [ATTACK, None, 1], "description": {"not": "a text"}},
                "nested": {"type": "object", "properties": {"csrf": {"type": "string"}}},
                "csrf": {"type": ["string", "null"]},
                "broken": True,
            },
        },
    },
    {"name": "odd", "description": 9, "inputSchema": {"type": "object", "properties": [], "required": {}}},
    {"name": "fail", "inputSchema": {"type": "object"}},
    {"name": LONG, "inputSchema": {"type": "object", "properties": {"one": {"enum": [LONG, "short"]}}}},
]
if "HONEST" in os.environ:
    TOOLS = [{**tool, "description": "says something"} for tool in TOOLS]


def answer(asked: dict) -> dict:
    method, params = asked["method"], asked.get("params", {})
    if method == "initialize":
        capabilities = {"tools": {}}
        return {
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "serverInfo": {"name": ATTACK, "version": "1"},
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call" and params["name"] == "fail":
        return {"isError": True, "content": [{"type": "text", "text": ATTACK}]}
    if method == "tools/call":
        told = json.dumps(params["arguments"], sort_keys=True)
        return {
            "content": [
                {"type": "text", "text": f"{ATTACK}\n{told}\nsecret: t0ken-t0ken-t0ken"},
                {"type": "text", "text": LONG},
                {"type": "image", "mimeType": ATTACK, "data": "iVBORw0KGgo="},
                {"type": ATTACK, "text": ATTACK},
                *[{"type": "text", "text": "more"} for _ in range(60)],
            ],
            "structuredContent": {ATTACK: [ATTACK]},
        }
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer(message)}) + "\n")
        sys.stdout.flush()
