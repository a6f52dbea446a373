"""The least that a test's server needs: JSON-RPC in lines on the standard streams, one tool named `say`, or others."""

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

TOOL = {"name": "say", "description": "Say something", "inputSchema": {"type": "object", "properties": {}}}


def answer(request: dict[str, Any], result: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}) + "\n")
    sys.stdout.flush()


def serve(on_call: Callable[[dict[str, Any]], None], tools: Sequence[dict[str, Any]] = (TOOL,)) -> None:
    """Handshake and listing done honestly; `tools/call` is the test's."""
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        if request["method"] == "initialize":
            version = request["params"]["protocolVersion"]
            info = {"name": "test", "version": "1"}
            answer(request, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})
        elif request["method"] == "tools/list":
            answer(request, {"tools": list(tools)})
        elif request["method"] == "tools/call":
            on_call(request)
        else:
            error = {"code": -32601, "message": "unknown method"}
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}) + "\n")
            sys.stdout.flush()
