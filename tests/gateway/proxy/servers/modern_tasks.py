"""A server of 2026-07-28 that answers a call with a task wherever its client knows the extension."""

from typing import Any

from transport import TOOL, answer, note, requests, send

EXTENSIONS = {"io.modelcontextprotocol/tasks": {}}


def call(request: dict[str, Any]) -> None:
    meta = request["params"]["_meta"]
    known = meta["io.modelcontextprotocol/clientCapabilities"].get("extensions", {})
    if "task" in request["params"]:
        note("asked for task")
    if EXTENSIONS.keys() <= known.keys():
        answer(request, {"resultType": "task", "taskId": "m1", "status": "working"})
    else:
        answer(request, {"resultType": "complete", "content": [{"type": "text", "text": "done"}]})


for received in requests():
    match received.get("method"):
        case "server/discover":
            capabilities = {"tools": {}, "extensions": EXTENSIONS}
            answer(
                received, {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": capabilities}
            )
        case "tools/list":
            answer(received, {"resultType": "complete", "tools": [{**TOOL, "name": "do"}]})
        case "tools/call":
            call(received)
        case "tasks/get" | "tasks/update" | "tasks/cancel":
            note(f"{received['method']} {received['params']['taskId']}")
            answer(received, {"resultType": "complete", "taskId": received["params"]["taskId"], "status": "working"})
        case _ if "id" in received:
            send({"jsonrpc": "2.0", "id": received["id"], "error": {"code": -32601, "message": "no such method"}})
