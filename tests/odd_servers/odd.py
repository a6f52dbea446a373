"""An MCP server with one tool that is honest in everything but what its behaviour says (`behaviours.py`).

Turns a client's message into the JSON texts that are sent for it. It knows no transport, and imports next to nothing: a
process of it is started for each behaviour.
"""

import json
from typing import Any

GONE = "<gone>"
"""In a behaviour: the field is left out."""
TOOL = {
    "name": "odd",
    "description": "Says done.",
    "inputSchema": {"type": "object", "properties": {"word": {"type": "string"}}},
}
GREETING = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "odd", "version": "1"},
}
ANSWER = {"content": [{"type": "text", "text": "done"}]}
NO_METHOD = {"error": {"code": -32601, "message": "Method not found"}}
ODD = ("initialize", "tools/list", "tools/call")
"""The methods whose answers are odd; the others are answered as `ping` and `unknown` say."""


def patched(value: Any, patch: Any) -> Any:
    """The value with the fields of the patch; `{"=": X}` replaces the whole value, `GONE` removes a field."""
    if isinstance(patch, dict) and "=" in patch:
        return patch["="]
    if not isinstance(patch, dict) or not isinstance(value, dict):
        return patch
    merged = dict(value)
    for name, new in patch.items():
        if new == GONE:
            merged.pop(name, None)
        else:
            merged[name] = patched(merged.get(name), new)
    return merged


class Odd:
    """One server."""

    def __init__(self, says: dict[str, Any]) -> None:
        self._says = says
        self.initialized = False

    def texts(self, message: Any) -> list[str]:
        """What is sent for one message, in order."""
        method = message.get("method")
        if method is None:
            return []
        if "id" not in message:
            self.initialized |= method == "notifications/initialized"
            return [json.dumps(each) for each in self._says.get("on_notification", ())]
        answer = self._answer(method, message)
        if answer is None:
            return []
        if method not in ODD:
            return [answer]
        return [*self._beside("before", message), answer, *self._beside("after", message)]

    def _answer(self, method: str, message: dict[str, Any]) -> str | None:
        outcome = self._outcome(method, message.get("params") or {})
        if outcome == "nothing":
            return None
        envelope = {"jsonrpc": "2.0", "id": message["id"], **outcome}
        if method not in ODD and not self._says.get("always"):
            return json.dumps(envelope)
        envelope["id"] = json.loads(self._says.get("id", "{}").replace("{}", json.dumps(message["id"])))
        envelope = patched(envelope, self._says.get("answer", {}))
        if method == "tools/call":
            envelope = patched(envelope, self._says.get("call_answer", {}))
        envelope = {name: envelope[name] for name in self._says.get("order", envelope) if name in envelope}
        return self._written(envelope)

    def _written(self, envelope: dict[str, Any]) -> str:
        text = json.dumps(envelope, **{"ensure_ascii": False, **self._says.get("dump", {})})
        for old, new in self._says.get("replace", ()):
            text = text.replace(old, new)
        mark, unit, times = self._says.get("repeat", ("", "", 0))
        return text.replace(mark, unit * times) if times else text

    def _beside(self, key: str, message: dict[str, Any]) -> list[str]:
        token = (message.get("params") or {}).get("_meta", {}).get("progressToken", "none")
        texts = [each if isinstance(each, str) else json.dumps(each) for each in self._says.get(key, ())]
        return [
            text.replace('"<id>"', json.dumps(message["id"])).replace('"<token>"', json.dumps(token)) for text in texts
        ]

    def _outcome(self, method: str, params: dict[str, Any]) -> Any:
        says = self._says
        if method == "initialize":
            return {"result": patched(GREETING, says.get("initialize", {}))}
        if method == "tools/list":
            return self._listed(params)
        if method == "tools/call":
            return says["call_outcome"] if "call_outcome" in says else {"result": patched(ANSWER, says.get("call", {}))}
        return says.get("ping", {"result": {}}) if method == "ping" else says.get("unknown", NO_METHOD)

    def _listed(self, params: dict[str, Any]) -> dict[str, Any]:
        if self._says.get("needs_initialized") and not self.initialized:
            return {"error": {"code": -32002, "message": "Server not initialized"}}
        tool = patched(TOOL, self._says.get("tool", {}))
        pages = self._says.get("pages")
        if pages is not None:
            page = pages[params.get("cursor") or ""]
            return {"result": {**page, "tools": [tool if each == "odd" else each for each in page["tools"]]}}
        tools = [{**TOOL, "name": f"more{number}"} for number in range(self._says.get("more_tools", 0))]
        return {
            "result": patched({"tools": [tool, *tools, *self._says.get("other_tools", ())]}, self._says.get("list", {}))
        }
