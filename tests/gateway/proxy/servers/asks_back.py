"""Asks its client for things in the middle of a call, and answers with what it was told."""

import json
import sys
from typing import Any

from transport import answer, send, serve


def on_call(request: dict[str, Any]) -> None:
    answers: list[dict[str, Any]] = []
    for number, method in enumerate(("sampling/createMessage", "elicitation/create", "roots/list", "ping")):
        send({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": number}})
        send({"jsonrpc": "2.0", "id": f"q{number}", "method": method, "params": {}})
        answers.append(json.loads(sys.stdin.readline()))
    answer(request, {"content": [], "structuredContent": {"answers": answers}})


serve(on_call)
