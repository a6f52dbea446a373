"""Begins to speak when somebody has written into the named pipe of the environment variable GATE, or dies if that says
`die`. The variable DESCRIPTION describes its tool."""

import os
import sys
from pathlib import Path

from transport import TOOL, answer, note, requests

note("started")
if Path(os.environ["GATE"]).read_text() == "die":
    sys.exit(3)
for request in requests():
    match request.get("method"):
        case "initialize":
            version = request["params"]["protocolVersion"]
            offered = {"tools": {}, "logging": {}}
            answer(
                request,
                {
                    "protocolVersion": version,
                    "capabilities": offered,
                    "serverInfo": {"name": "late", "version": "1"},
                    "instructions": "wait for it",
                },
            )
        case "tools/list":
            answer(request, {"tools": [{**TOOL, "description": os.environ.get("DESCRIPTION", "")}]})
        case "tools/call":
            answer(request, {"content": [{"type": "text", "text": "late"}]})
        case "logging/setLevel":
            note(f"level {request['params']['level']}")
            answer(request, {})
        case _:
            pass
