"""The least that a hostile server needs: newline-delimited JSON-RPC on the standard streams, no SDK."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

TOOL = {"name": "echo", "description": "says it back", "inputSchema": {"type": "object"}}


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def answer(request: dict[str, Any], result: dict[str, Any]) -> None:
    send({"jsonrpc": "2.0", "id": request["id"], "result": result})


def note(text: str) -> None:
    """Write a line to the file named by NOTES, for the test to read."""
    with open(os.environ["NOTES"], "a", encoding="utf-8") as notes:  # noqa: PTH123
        notes.write(text + "\n")


def requests() -> Iterator[dict[str, Any]]:
    for line in sys.stdin:
        yield json.loads(line)


def serve(
    on_call: Callable[[dict[str, Any]], None],
    *,
    tools: list[dict[str, Any]] | None = None,
    on_notification: Callable[[dict[str, Any]], None] | None = None,
) -> None:
    """Handshake and listing done honestly; `tools/call` is the test's."""
    for request in requests():
        method = request.get("method")
        if "id" not in request:
            if on_notification is not None:
                on_notification(request)
        elif method == "initialize":
            version = request["params"]["protocolVersion"]
            info = {"name": "test", "version": "1"}
            answer(request, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})
        elif method == "tools/list":
            answer(request, {"tools": [TOOL] if tools is None else tools})
        elif method == "tools/call":
            on_call(request)
        else:
            send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": "no such method"}})
