"""What a call of `do` can order, the same over every transport: the text of its answer, or that there is none.

`act`: `echo` (with `text`), `big` (with `bytes`), `wait` (until a call with `release`), `hang`, `die`. What happens is
said on standard error, which the gateway logs. Transports know more acts of their own.
"""

import os
import signal
import sys
from typing import Any

TOOL = {
    "name": "do",
    "description": "Does as it is told",
    "inputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True},
}


def say(words: str) -> None:
    sys.stderr.write(words + "\n")
    sys.stderr.flush()


def greeting(params: dict[str, Any]) -> dict[str, Any]:
    info = {"name": "orders", "version": "1"}
    return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}


def text(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]}


def carry_out(order: dict[str, Any]) -> dict[str, Any] | None:
    """The result of an act that needs no transport; None: there is no answer."""
    act = order.get("act", "echo")
    if act == "echo":
        return text(order.get("text", "done"))
    if act == "big":
        return text("x" * order["bytes"])
    if act == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    say(f"called {act}")
    return None
