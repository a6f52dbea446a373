"""Lists for each ability that its client announced a tool, a prompt, a resource and a template, called after it.

Besides them everybody has the tools `do`, and `give`: it makes a resource of this process and gives a link to it. Every
answer holds the process's id; `hold` in a call's arguments: it is answered after the next request. Notes its process,
and what it is asked for by name. `modern`: it speaks 2026-07-28, where each request announces.
"""

import os
import sys
from typing import Any

from transport import answer, note, requests, send

MODERN = "modern" in sys.argv
ABILITIES = "io.modelcontextprotocol/clientCapabilities"
OFFER = {"tools": {}, "prompts": {}, "resources": {}, "completions": {}}
announced: list[str] = []
made: list[str] = []
held: list[dict[str, Any]] = []


def abilities(request: dict[str, Any]) -> list[str]:
    return list(request["params"]["_meta"][ABILITIES]) if MODERN else announced


def reply(request: dict[str, Any], **result: Any) -> None:
    answer(request, {"resultType": "complete", **result} if MODERN else result)


def refuse(request: dict[str, Any]) -> None:
    send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32602, "message": f"not here: {os.getpid()}"}})


def greet(request: dict[str, Any]) -> None:
    announced[:] = request["params"]["capabilities"]
    info = {"name": "lists-by-ability", "version": "1"}
    answer(request, {"protocolVersion": "2025-11-25", "capabilities": OFFER, "serverInfo": info})


def discover(request: dict[str, Any]) -> None:
    reply(request, supportedVersions=["2026-07-28"], capabilities=OFFER)


def tools(request: dict[str, Any]) -> None:
    note(f"tools {' '.join(abilities(request))}")
    names = ["do", "give", *abilities(request)]
    reply(request, tools=[{"name": name, "inputSchema": {"type": "object"}} for name in names])


def prompts(request: dict[str, Any]) -> None:
    reply(request, prompts=[{"name": name} for name in abilities(request)])


def resources(request: dict[str, Any]) -> None:
    reply(request, resources=[{"uri": f"by:{name}", "name": name} for name in abilities(request)])


def templates(request: dict[str, Any]) -> None:
    listed = [{"uriTemplate": f"of-{name}:{{n}}", "name": name} for name in abilities(request)]
    reply(request, resourceTemplates=listed)


def call(request: dict[str, Any]) -> None:
    name, orders = request["params"]["name"], request["params"].get("arguments") or {}
    note(f"call {name}")
    if "hold" in orders:
        held.append(request)
    elif name in ("do", "give", *abilities(request)):
        result(request)
    else:
        refuse(request)


def result(request: dict[str, Any]) -> None:
    content: list[dict[str, Any]] = []
    if request["params"]["name"] == "give":
        made.append("made:1")
        content.append({"type": "resource_link", "uri": "made:1", "name": "made"})
    reply(request, content=content, structuredContent={"pid": os.getpid()})


def prompt(request: dict[str, Any]) -> None:
    name = request["params"]["name"]
    note(f"prompt {name}")
    if name in abilities(request):
        reply(request, messages=[], description=str(os.getpid()))
    else:
        refuse(request)


def read(request: dict[str, Any]) -> None:
    uri = request["params"]["uri"]
    note(f"read {uri}")
    kind, _, name = uri.partition(":")
    if uri in made or (kind == "by" and name in abilities(request)) or kind.removeprefix("of-") in abilities(request):
        reply(request, contents=[{"uri": uri, "text": str(os.getpid())}])
    else:
        refuse(request)


def complete(request: dict[str, Any]) -> None:
    reply(request, completion={"values": [str(os.getpid())]})


METHODS = {
    "tools/list": tools,
    "tools/call": call,
    "prompts/list": prompts,
    "prompts/get": prompt,
    "resources/list": resources,
    "resources/templates/list": templates,
    "resources/read": read,
    "completion/complete": complete,
    "server/discover" if MODERN else "initialize": discover if MODERN else greet,
}

note(f"pid {os.getpid()}")
for received in requests():
    if "id" not in received:
        continue
    METHODS.get(received["method"], refuse)(received)
    if received["method"] != "tools/call":
        for each in held:
            result(each)
        held.clear()
