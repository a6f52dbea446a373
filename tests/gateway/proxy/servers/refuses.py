"""Answers a call with a JSON-RPC error of its own, the very words that a broken transport would use."""

from typing import Any

from transport import send, serve


def on_call(request: dict[str, Any]) -> None:
    code = request["params"]["arguments"].get("code", -32000)
    send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": "quota", "data": {"left": 0}}})


serve(on_call)
