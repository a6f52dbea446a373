"""Begins to speak when somebody has written into the named pipe of the environment variable GATE."""

import os
from pathlib import Path

from transport import TOOL, answer, note, requests

Path(os.environ["GATE"]).read_text()
for request in requests():
    match request.get("method"):
        case "initialize":
            version = request["params"]["protocolVersion"]
            offered = {"tools": {}, "logging": {}}
            answer(
                request,
                {"protocolVersion": version, "capabilities": offered, "serverInfo": {"name": "late", "version": "1"}},
            )
        case "tools/list":
            answer(request, {"tools": [TOOL]})
        case "tools/call":
            answer(request, {"content": [{"type": "text", "text": "late"}]})
        case "logging/setLevel":
            note(f"level {request['params']['level']}")
            answer(request, {})
        case _:
            pass
