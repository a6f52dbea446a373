"""Asks its client about what a call names, and answers with what it was told."""

import json
import sys
from typing import Any

from transport import answer, serve


def ask(request: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    params = {"message": request["params"]["arguments"]["about"], "requestedSchema": schema}
    question = {"jsonrpc": "2.0", "id": "question", "method": "elicitation/create", "params": params}
    sys.stdout.write(json.dumps(question) + "\n")
    sys.stdout.flush()
    told = json.loads(sys.stdin.readline())
    text = told["result"]["content"]["text"] if "result" in told else str(told)
    answer(request, {"content": [{"type": "text", "text": text}]})


TOOL = {
    "name": "ask",
    "description": "Asks back",
    "inputSchema": {"type": "object", "properties": {"about": {"type": "string"}}, "required": ["about"]},
}
serve(ask, tools=[TOOL])
