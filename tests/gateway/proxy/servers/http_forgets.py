"""A handshake-era server over HTTP that keeps count of its sessions: prints its port, notes each one's begin and end.

Tools: `do` says how often it ran; `forget` ends every session, as a restart or an idle limit would. With `always`, no
session is known for a second request of its own kind: every call finds itself forgotten. `fails` answers with an error
of its own that names a session. `reads`: the tools are annotated as read-only; `worse`: until `forget` was called.
`unknown:STATUS:BODY`: how a session that is not known is refused, `$ID` being the request's id; `ping:STATUS:BODY`: how
a ping is answered.
"""

import json
import os
import socket
import sys
from typing import Any

import uvicorn
from transport import TOOL, note

OWN_ERROR = '{"jsonrpc":"2.0","id":$ID,"error":{"code":-32000,"message":"the browser session has expired"}}'
sessions: set[str] = set()
opened: list[str] = []
runs: list[str] = []
restarted: list[bool] = []


def result_of(message: dict[str, Any], session: str, headers: dict[bytes, bytes]) -> dict[str, Any]:
    method = message["method"]
    if method == "tools/list":
        note("lists")
        hints = {"readOnlyHint": True} if "reads" in sys.argv or ("worse" in sys.argv and not restarted) else {}
        return {"tools": [{**TOOL, "name": name, "annotations": hints} for name in ("do", "forget", "fails")]}
    if method != "tools/call":
        return {}
    if message["params"]["name"] == "forget":
        sessions.clear()
        restarted.append(True)
    else:
        runs.append(session)
    brought = {name.decode(): value.decode("latin-1") for name, value in headers.items() if name[:2] == b"x-"}
    return {"content": [], "structuredContent": {"runs": len(runs), "session": session, **brought}}


def open_session(message: dict[str, Any]) -> tuple[dict[str, Any], str]:
    session = f"s{len(opened)}"
    opened.append(session)
    sessions.add(session)
    note(f"open {session}")
    version = message["params"]["protocolVersion"]
    info = {"name": "forgets", "version": "1"}
    return {"protocolVersion": version, "capabilities": {"tools": {"listChanged": True}}, "serverInfo": info}, session


async def body_of(receive: Any) -> bytes:
    parts: list[bytes] = []
    while True:
        event = await receive()
        parts.append(event.get("body", b""))
        if not event.get("more_body"):
            return b"".join(parts)


async def reply(send: Any, status: int, body: dict[str, Any] | None = None, session: str = "") -> None:
    headers = [(b"content-type", b"application/json")] + ([(b"mcp-session-id", session.encode())] if session else [])
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if body is None else json.dumps(body).encode()})


async def reply_as(send: Any, told: str, message: dict[str, Any]) -> None:
    _, status, body = told.split(":", 2)
    kind = b"application/json" if body[:1] in ("{", "[") else b"text/plain"
    await send({"type": "http.response.start", "status": int(status), "headers": [(b"content-type", kind)]})
    await send({"type": "http.response.body", "body": body.replace("$ID", json.dumps(message.get("id"))).encode()})


def says(word: str) -> str | None:
    return next((each for each in sys.argv if each.startswith(f"{word}:")), None)


async def answered_oddly(send: Any, message: dict[str, Any], session: str) -> bool:
    if session not in sessions:
        told = says("unknown")
    elif message["method"] == "ping":
        told = says("ping")
        note("ping")
    elif message["method"] == "tools/call" and message["params"]["name"] == "fails":
        told = says("fails") or f"own:200:{OWN_ERROR}"
        note("fails")
    else:
        return False
    if told is not None:
        await reply_as(send, told, message)
    return told is not None


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    session = dict(scope["headers"]).get(b"mcp-session-id", b"").decode()
    if scope["method"] == "GET":
        await reply(send, 405)
        return
    if scope["method"] == "DELETE":
        note(f"delete {session}")
        sessions.discard(session)
        await reply(send, 200)
        return
    message = json.loads(await body_of(receive))
    answer = {"jsonrpc": "2.0", "id": message.get("id")}
    if message["method"] == "server/discover":
        await reply(send, 400, {**answer, "error": {"code": -32600, "message": "no session"}})
    elif message["method"] == "initialize":
        result, session = open_session(message)
        await reply(send, 200, {**answer, "result": result}, session)
    elif await answered_oddly(send, message, session):
        return
    elif session not in sessions or ("always" in sys.argv and message["method"] == "tools/call"):
        await reply(send, 404, {**answer, "error": {"code": -32001, "message": "no such session"}})
    elif "id" not in message:
        await reply(send, 202)
    else:
        await reply(send, 200, {**answer, "result": result_of(message, session, dict(scope["headers"]))})


note(f"pid {os.getpid()}")
listener = socket.create_server(("127.0.0.1", 0))
sys.stdout.write(f"{listener.getsockname()[1]}\n")
sys.stdout.flush()
uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="critical", ws="none")).run(sockets=[listener])
