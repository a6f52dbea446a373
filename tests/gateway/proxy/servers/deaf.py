"""Comes up, and then never reads again."""

import json
import signal
import sys

from transport import TOOL, answer

for _ in range(3):
    message = json.loads(sys.stdin.readline())
    if message["method"] == "initialize":
        info = {"name": "deaf", "version": "1"}
        answer(message, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info})
    elif message["method"] == "tools/list":
        answer(message, {"tools": [TOOL]})
signal.pause()
