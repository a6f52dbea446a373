"""Answers with the JSON that the call brings, byte for byte, as the text of its one block."""

import sys
from typing import Any

from transport import serve


def on_call(request: dict[str, Any]) -> None:
    content = '[{"type": "text", "text": ' + request["params"]["arguments"]["text"] + "}]"
    sys.stdout.write('{"jsonrpc": "2.0", "id": ' + str(request["id"]) + ', "result": {"content": ' + content + "}}\n")
    sys.stdout.flush()


serve(on_call)
