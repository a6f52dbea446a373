"""Says after every listing that its tools changed."""

from transport import TOOL, answer, note, requests, send

for request in requests():
    match request.get("method"):
        case "initialize":
            info = {"name": "restless", "version": "1"}
            answer(request, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info})
        case "tools/list":
            note("listed")
            answer(request, {"tools": [TOOL]})
            send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        case "tools/call":
            answer(request, {"content": []})
        case _:
            pass
