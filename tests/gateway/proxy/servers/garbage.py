"""Prints what is no JSON-RPC; a call with {"answer": true} is answered all the same."""

import sys
from typing import Any

from transport import answer, serve

sys.stdout.write("Welcome to my server!\n\n")


def on_call(request: dict[str, Any]) -> None:
    sys.stdout.write("\x00\xff garbage \x1b]0;title\x07\n[1, 2]\n")
    sys.stdout.flush()
    if request["params"]["arguments"].get("answer"):
        answer(request, {"content": []})


serve(on_call)
