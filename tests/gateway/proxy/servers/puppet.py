"""Writes what a call tells it to: `lines`, each as it stands, `$ID` in them being the call's id. Notes what it hears.

`silent`: then nothing more. `exit`: leave with that code. `answer`: whether the call is answered after the lines (yes).
"""

import json
import os
import sys
from typing import Any

from transport import answer, note, requests


def play(request: dict[str, Any]) -> None:
    orders = request["params"].get("arguments", {})
    for line in orders.get("lines", []):
        sys.stdout.buffer.write(line.replace("$ID", json.dumps(request["id"])).encode("latin-1") + b"\n")
    sys.stdout.buffer.flush()
    for line in orders.get("errors", []):
        sys.stderr.write(line + "\n")
    if "exit" in orders:
        os._exit(orders["exit"])
    if orders.get("answer", True):
        answer(request, {"done": True})


for message in requests():
    note(json.dumps(message))
    if message.get("method") in {"tools/call", "initialize"}:
        play(message)
