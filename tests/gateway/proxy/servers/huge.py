"""Answers with as many bytes as it is asked for; {"order": "id-last"} writes the id behind the result.

{"order": "unended"}: the answer's line ends only when something else is asked.
"""

import json
import sys
from typing import Any

from transport import answer, serve

unended: list[str] = []


def on_call(request: dict[str, Any]) -> None:
    wanted = request["params"]["arguments"]
    result = {"content": [{"type": "text", "text": "x" * wanted["bytes"]}]}
    if unended:
        sys.stdout.write(unended.pop())
    if wanted.get("order") == "unended":
        line = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result})
        sys.stdout.write(line[:-10])
        sys.stdout.flush()
        unended.append(line[-10:] + "\n")
    elif wanted.get("order") == "id-last":
        sys.stdout.write(json.dumps({"result": result, "jsonrpc": "2.0", "id": request["id"]}) + "\n")
        sys.stdout.flush()
    else:
        answer(request, result)


serve(on_call)
