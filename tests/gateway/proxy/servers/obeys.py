"""A server of the handshake era that does what a call tells it, and notes what it hears.

Its one argument is JSON: what it offers (`tools`, `prompts`, `resources`, `templates`: names), annotations of tools
(`hints`, by their names), more `capabilities`,
`instructions`, `mute` (requests, or words of them, that get no answer), `fussy` (a method that it does not know ends
it), the `version` that it speaks, `more` (a file with more of this, read at each start), `gate` (a file: while it is
not there, a start goes no further than to note its pid).
A call's arguments: `push` (notifications, sent first; progress under the call's own token, unless it names one), `ask`
(a request to the client; its answer is the result, after the notifications of `then`), `progress` (so many reports,
with a pause of so many seconds before each), `hold` (no result until a call
says `release`), `error`, `exit`, `list` (from now on it has these tools), `resources` (these resources, and it does not
say so), `result` (fields of its result). With `task` in its params it makes a task, called as the argument of that name
says.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from transport import answer, note, requests, send

OFFER: dict[str, Any] = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
if "more" in OFFER:
    OFFER |= json.loads(Path(OFFER["more"]).read_text())
TOOLS: list[str] = OFFER.get("tools", ["do"])
KINDS = {
    "prompts/list": ("prompts", "name", "prompts"),
    "resources/list": ("resources", "uri", "resources"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate", "templates"),
}
held: list[dict[str, Any]] = []
tasks: list[str] = []
asked: dict[str, dict[str, Any]] = {}


def done(request: dict[str, Any], **more: Any) -> None:
    content = [{"type": "text", "text": "done"}]
    answer(request, {"content": content, "structuredContent": {"pid": os.getpid(), **more}})


def refuse(request: dict[str, Any], code: int, message: str) -> None:
    send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": message}})


def greet(request: dict[str, Any]) -> None:
    kinds = {kind: {} for kind in ("prompts", "resources") if kind in OFFER}
    capabilities = {"tools": {}, **kinds, **({"resources": {}} if "templates" in OFFER else {})}
    result = {
        "protocolVersion": OFFER.get("version", "2025-11-25"),
        "capabilities": {**capabilities, **OFFER.get("capabilities", {})},
        "serverInfo": {"name": "obeys", "version": "1"},
    }
    note("initialize " + json.dumps(request["params"]["capabilities"], separators=(",", ":")))
    answer(request, result | ({"instructions": OFFER["instructions"]} if "instructions" in OFFER else {}))


def push(request: dict[str, Any], pushes: list[Any]) -> None:
    token = request["params"].get("_meta", {}).get("progressToken")
    for method, params in pushes:
        named = {"progressToken": token} if method == "notifications/progress" else {}
        send({"jsonrpc": "2.0", "method": method, "params": {**named, **params}})


def hold(request: dict[str, Any]) -> None:
    held.append(request)
    note("holds")


def call(request: dict[str, Any]) -> None:
    orders = request["params"].get("arguments") or {}
    note("call " + request["params"]["name"])
    push(request, orders.get("push", []))
    count, pause = orders.get("progress", (0, 0))
    for number in range(count):
        time.sleep(pause)
        push(request, [["notifications/progress", {"progress": number}]])
    if "task" in request["params"]:
        tasks.append(f"{orders.get('task', 'task')}")
        answer(request, {"task": {"taskId": tasks[-1], "status": "working"}})
        return
    if "list" in orders:
        TOOLS[:] = orders["list"]
        send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    if "resources" in orders:
        OFFER["resources"] = orders["resources"]
    if "exit" in orders:
        os._exit(orders["exit"])
    if "ask" in orders:
        key = f"q{len(asked)}"
        asked[key] = request
        method, params = orders["ask"]
        send({"jsonrpc": "2.0", "id": key, "method": method, "params": params})
    else:
        end(request, orders)


def end(request: dict[str, Any], orders: dict[str, Any]) -> None:
    if "error" in orders:
        refuse(request, *orders["error"])
    elif "result" in orders:
        answer(request, {"content": [], **orders["result"]})
    elif "hold" in orders:
        hold(request)
    else:
        for each in [*held, request] if "release" in orders else [request]:
            done(each, params=each["params"])
        if "release" in orders:
            held.clear()


def lists(request: dict[str, Any]) -> None:
    if request["method"] == "tools/list":
        hints, more = OFFER.get("hints", {}), OFFER.get("definition", {})
        named = [{"name": name, "inputSchema": {"type": "object"}, **more} for name in TOOLS]
        answer(
            request,
            {
                "tools": [
                    each | {"annotations": hints[each["name"]]} if each["name"] in hints else each for each in named
                ]
            },
        )
        return
    field, key, offered = KINDS[request["method"]]
    answer(request, {field: [{key: each, "name": each} for each in OFFER.get(offered, [])]})


def note_and_agree(request: dict[str, Any]) -> None:
    words = [str(value) for key, value in request.get("params", {}).items() if key != "_meta"]
    note(" ".join([request["method"], *words]))
    if not set(words) & set(OFFER.get("mute", [])):
        answer(request, {})


def read(request: dict[str, Any]) -> None:
    uri = request["params"]["uri"]
    if uri in OFFER.get("resources", []) or "reads" in OFFER:
        answer(request, {"contents": [{"uri": uri, "text": OFFER.get("reads", "")}]})
    else:
        refuse(request, -32002, f"no resource {uri}")


def prompt(request: dict[str, Any]) -> None:
    answer(request, {"messages": [], "description": request["params"]["name"]})


def complete(request: dict[str, Any]) -> None:
    answer(request, {"completion": {"values": [json.dumps(request["params"]["ref"])]}})


def task(request: dict[str, Any]) -> None:
    note(f"{request['method']} {request.get('params', {}).get('taskId', '')}")
    if request["method"] == "tasks/list":
        answer(request, {"tasks": [{"taskId": each, "status": "working"} for each in tasks]})
    else:
        answer(request, {"taskId": request["params"]["taskId"], "status": "working"})


def vendor(request: dict[str, Any]) -> None:
    answer(request, {"pid": os.getpid()})


METHODS = {
    "initialize": greet,
    "tools/list": lists,
    **dict.fromkeys(KINDS, lists),
    "tools/call": call,
    **dict.fromkeys(["ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"], note_and_agree),
    "resources/read": read,
    "prompts/get": prompt,
    "completion/complete": complete,
    "vendor/method": vendor,
    **dict.fromkeys(["tasks/get", "tasks/result", "tasks/cancel", "tasks/list"], task),
}


def hear_answer(request: dict[str, Any], message: dict[str, Any]) -> None:
    orders = request["params"]["arguments"]
    note("answer " + message.get("error", {}).get("message", ""))
    push(request, orders.get("then", []))
    if "hold" in orders:
        hold(request)
    else:
        done(request, answer=message.get("result") or message.get("error"))


def take(message: dict[str, Any]) -> None:
    method = message.get("method")
    if method is None:
        hear_answer(asked[message["id"]], message)
    elif "id" not in message:
        note(method + (f" {message['params']['requestId']}" if method == "notifications/cancelled" else ""))
    elif method in METHODS:
        METHODS[method](message)
    elif "fussy" in OFFER:
        os._exit(7)
    elif method not in OFFER.get("mute", []):
        refuse(message, -32601, "no such method")


note(f"pid {os.getpid()}")
while "gate" in OFFER and not Path(OFFER["gate"]).exists():
    time.sleep(0.01)
for received in requests():
    take(received)
