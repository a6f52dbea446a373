"""A stand-in for three model APIs (Messages, Responses, Gemini's): it calls one tool of every server, and then ends.

Turns an agent's requests into what its MCP client got: the tools as they are offered to the model, and the results of
the calls. It knows the servers' names, and nothing of MCP.
"""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

Json = dict[str, Any]
_END: Final = "All called."


@dataclass(slots=True)
class Model:
    """It runs at `url`."""

    calls: Mapping[str, tuple[str, Json]]
    """A tool of each server's and its arguments, by the server's name."""
    also: Mapping[str, Json] = field(default_factory=dict[str, Json])
    """Tools of the agent's own that are called too, and their arguments."""
    url: str = ""
    tools: dict[str, Json] = field(default_factory=dict[str, Json])
    """What the agent offered: description and schema, by its own name for the tool."""
    results: dict[str, Any] = field(default_factory=dict[str, Any])
    """What the agent said that a call gave, by the server's name, or the tool's own."""

    def chosen(self) -> dict[str, tuple[str, Json]]:
        """The calls: the agent's name of a tool and its arguments, by the server's name."""
        found: dict[str, tuple[str, Json]] = {}
        for server, (tool, arguments) in self.calls.items():
            names = [name for name in self.tools if is_of(name, server) and plain(name).endswith(plain(tool))]
            if names:
                found[server] = (min(names, key=len), arguments)
        return found | {name: (name, arguments) for name, arguments in self.also.items() if name in self.tools}


def plain(name: str) -> str:
    """A name as agents write it."""
    return name.replace("-", "_")


def is_of(tool: str, server: str) -> bool:
    """Whether a tool is one of this server's, by the name that an agent gives it."""
    return plain(tool).replace("__", "_").startswith(f"mcp_{plain(server)}_")


@contextmanager
def standing_in(calls: Mapping[str, tuple[str, Json]], also: Mapping[str, Json]) -> Iterator[Model]:
    """Run one."""
    model = Model(calls, also)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Api) as server:
        server.daemon_threads = True
        model.url = f"http://127.0.0.1:{server.server_port}"
        server.model = model  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield model
        finally:
            server.shutdown()
            thread.join()


class _Api(BaseHTTPRequestHandler):
    """One request of an agent."""

    def do_POST(self) -> None:
        request: Json = json.loads(self.rfile.read(int(self.headers["content-length"])))
        events = self._said(request)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for event in events:
            head = f"event: {event['type']}\n" if "type" in event else ""
            self.wfile.write(f"{head}data: {json.dumps(event)}\n\n".encode())

    def _said(self, request: Json) -> list[Json]:
        model: Model = self.server.model  # type: ignore[attr-defined]
        if self.path.partition("?")[0].endswith("/messages"):
            return _messages(model, request)
        return _responses(model, request) if self.path.endswith("/responses") else _gemini(model, request)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _messages(model: Model, request: Json) -> list[Json]:
    tools = {tool["name"]: _offer(tool, "input_schema") for tool in request.get("tools", ())}
    blocks = [each for said in request["messages"] if isinstance(said["content"], list) for each in said["content"]]
    results = {each["tool_use_id"]: each.get("content") for each in blocks if each["type"] == "tool_result"}
    calls = _next(model, tools, results)
    events: list[Json] = [
        {
            "type": "message_start",
            "message": {
                "id": "msg_1", "type": "message", "role": "assistant", "model": "any", "content": [],
                "usage": {"input_tokens": 1, "output_tokens": 1},
            },
        }
    ]  # fmt: skip
    for at, (name, (tool, arguments)) in enumerate(calls.items()):
        block = {"type": "tool_use", "id": f"toolu_{name}", "name": tool, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
        events += _block(at, block, delta)
    if not calls:
        events += _block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": _END})
    why = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    return [
        *events,
        {"type": "message_delta", "delta": why, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]


def _block(at: int, block: Json, delta: Json) -> list[Json]:
    return [
        {"type": "content_block_start", "index": at, "content_block": block},
        {"type": "content_block_delta", "index": at, "delta": delta},
        {"type": "content_block_stop", "index": at},
    ]


def _responses(model: Model, request: Json) -> list[Json]:
    tools: dict[str, Json] = {}
    spaces: dict[str, Json] = {}
    for tool in request.get("tools", ()):
        inner = tool["tools"] if tool["type"] == "namespace" else [tool] if tool["type"] == "function" else []
        for each in inner:
            name = tool["name"] + "__" + each["name"] if tool["type"] == "namespace" else each["name"]
            tools[name] = _offer(each, "parameters")
            spaces[name] = {"name": each["name"]}
            if tool["type"] == "namespace":
                spaces[name]["namespace"] = tool["name"]
    said = [each for each in request["input"] if each.get("type") == "function_call_output"]
    calls = _next(model, tools, {each["call_id"]: each["output"] for each in said})
    items: list[Json] = [
        {"type": "function_call", "id": f"fc_{name}", "call_id": f"toolu_{name}", **spaces[tool],
         "arguments": json.dumps(arguments)}
        for name, (tool, arguments) in calls.items()
    ]  # fmt: skip
    end = {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": _END}]}
    response = {"id": "resp_1", "object": "response", "output": items or [end]}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    return [
        {"type": "response.created", "response": {**response, "output": []}},
        *(
            {"type": "response.output_item.done", "output_index": n, "item": each}
            for n, each in enumerate(items or [end])
        ),
        {"type": "response.completed", "response": {**response, "usage": usage}},
    ]


def _gemini(model: Model, request: Json) -> list[Json]:
    offers = [each for group in request.get("tools", ()) for each in group.get("functionDeclarations", ())]
    tools = {each["name"]: _offer(each, "parametersJsonSchema") for each in offers}
    parts = [part for said in request["contents"] for part in said["parts"]]
    said = [part["functionResponse"] for part in parts if "functionResponse" in part]
    calls = _next(model, tools, {each["id"]: each["response"] for each in said})
    answer: list[Json] = [
        {"functionCall": {"id": f"toolu_{name}", "name": tool, "args": arguments}}
        for name, (tool, arguments) in calls.items()
    ]
    content = {"role": "model", "parts": answer or [{"text": _END if tools else "{}"}]}
    return [{"candidates": [{"content": content, "finishReason": "STOP", "index": 0}]}]


def _offer(tool: Json, schema: str) -> Json:
    return {"description": tool.get("description"), "schema": tool.get(schema)}


def _next(model: Model, tools: Mapping[str, Json], results: Mapping[str, Any]) -> dict[str, tuple[str, Json]]:
    """Keep what a request shows; give the calls that are still to be made. A request for a title has no tools."""
    if not tools:
        return {}
    model.tools.update(tools)
    model.results.update({number.removeprefix("toolu_"): result for number, result in results.items()})
    return {name: call for name, call in model.chosen().items() if name not in model.results}
