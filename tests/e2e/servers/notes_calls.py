"""Tools that write down their calls: `look` only reads, `add` deletes nothing, `wipe` says nothing of itself.

One JSON line for each call is appended to the file that the command line names: the tool's name and its arguments.
"""

import json
import sys
from pathlib import Path

from transport import answer, serve

HINTS = {"look": {"readOnlyHint": True}, "add": {"destructiveHint": False}, "wipe": {}}


def call(request):
    params = request["params"]
    with Path(sys.argv[1]).open("a", encoding="utf-8") as notes:
        notes.write(json.dumps([params["name"], params.get("arguments") or {}]) + "\n")
    answer(request, {"content": [{"type": "text", "text": "done"}]})


serve(call, [{"name": name, "inputSchema": {"type": "object"}, "annotations": hints} for name, hints in HINTS.items()])
