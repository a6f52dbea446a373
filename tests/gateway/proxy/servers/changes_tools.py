"""Every call adds one tool, and says so."""

from typing import Any

from transport import TOOL, answer, send, serve

TOOLS = [TOOL]


def on_call(request: dict[str, Any]) -> None:
    TOOLS.append({**TOOL, "name": f"echo{len(TOOLS)}"})
    answer(request, {"content": []})
    send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})


serve(on_call, tools=TOOLS)
