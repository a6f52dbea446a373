"""`python -m tests.replicas.server NAME ADDRESS PORT`: an MCP server of 2025-11-25 that counts what it is asked to do.

Every call has a number of its own. `quick` answers, `ask` puts a question to the client first, `slow` tells of its
progress and takes its time. `GET /counts` gives, for each number, how often it was begun, how often it was finished,
and when it was last, by the clock that all processes of a machine have.
"""

import asyncio
import json
import secrets
import sys
import time
from collections import Counter
from typing import Any

import anyio
from aiohttp import web

TOOLS = ("quick", "ask", "slow")
TIMEOUT = 60.0
_SCHEMA = {"type": "object", "properties": {"number": {"type": "integer"}, "word": {"type": "string"}}}


def answer_of(server: str, number: int, word: str, told: str = "") -> str:
    """What a call must be answered with."""
    return f"{server} has done {number} with {word}{told}"


class Server:
    """One server, and what it has done."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._begun: Counter[int] = Counter()
        self._finished: Counter[int] = Counter()
        self._when: dict[int, float] = {}
        self._questions: dict[str, asyncio.Future[str]] = {}
        self._running: dict[tuple[str, Any], asyncio.Task[Any]] = {}

    async def post(self, request: web.Request) -> web.StreamResponse:
        """One message of a client."""
        message = await request.json()
        session = request.headers.get("mcp-session-id", "")
        match message.get("method"):
            case "initialize":
                return _result(message, self._greeting(), {"mcp-session-id": secrets.token_hex(16)})
            case "tools/list":
                return _result(message, {"tools": [{"name": each, "inputSchema": _SCHEMA} for each in TOOLS]})
            case "ping":
                return _result(message, {})
            case "tools/call":
                return await self._call(request, session, message)
            case "notifications/cancelled":
                task = self._running.get((session, message["params"]["requestId"]))
                if task is not None:
                    task.cancel()
            case None:
                asked = self._questions.get(message["id"])
                if asked is not None and not asked.done():
                    asked.set_result(message["result"]["content"]["text"] if "result" in message else "nothing")
            case _ if "id" in message:
                error = {"code": -32601, "message": "Method not found"}
                return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})
            case _:
                pass
        return web.Response(status=202)

    async def counts(self, request: web.Request) -> web.Response:
        """What was begun and finished, and when, by number."""
        return web.json_response({"begun": self._begun, "finished": self._finished, "when": self._when})

    def _greeting(self) -> dict[str, Any]:
        info = {"name": self._name, "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}

    async def _call(self, request: web.Request, session: str, message: dict[str, Any]) -> web.StreamResponse:
        params = message["params"]
        number, word = int(params["arguments"]["number"]), str(params["arguments"]["word"])
        self._begun[number] += 1
        if params["name"] == "quick":
            self._finish(number)
            return _result(message, _text(answer_of(self._name, number, word)))
        stream = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await stream.prepare(request)
        key = (session, message["id"])
        self._running[key] = asyncio.ensure_future(self._do(stream, params, number))
        try:
            told = await self._running[key]
        except asyncio.CancelledError:
            # By its client's word: nothing is answered. By its client's going: nobody is there.
            return stream
        finally:
            self._running.pop(key).cancel()
        self._finish(number)
        await _event(stream, _answer(message, _text(answer_of(self._name, number, word, told))))
        return stream

    def _finish(self, number: int) -> None:
        self._finished[number] += 1
        self._when[number] = time.monotonic()

    async def _do(self, stream: web.StreamResponse, params: dict[str, Any], number: int) -> str:
        if params["name"] == "ask":
            return f" and {await self._ask(stream, number)}"
        token = params.get("_meta", {}).get("progressToken")
        for step in range(int(params["arguments"].get("steps", 1))):
            if token is not None:
                progress = {"progressToken": token, "progress": step + 1}
                await _event(stream, {"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})
            await anyio.sleep(0.1)
        return ""

    async def _ask(self, stream: web.StreamResponse, number: int) -> str:
        name = f"question {secrets.token_hex(8)}"
        schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        params = {"message": str(number), "requestedSchema": schema}
        future = self._questions[name] = asyncio.get_running_loop().create_future()
        try:
            await _event(stream, {"jsonrpc": "2.0", "id": name, "method": "elicitation/create", "params": params})
            async with asyncio.timeout(TIMEOUT):
                return await future
        finally:
            del self._questions[name]


def _text(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def _answer(message: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def _result(message: dict[str, Any], result: dict[str, Any], headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response(_answer(message, result), headers=headers)


async def _event(stream: web.StreamResponse, message: dict[str, Any]) -> None:
    await stream.write(b"data: " + json.dumps(message).encode() + b"\n\n")


async def _refuse(request: web.Request) -> web.Response:
    return web.Response(status=405)


async def _end(request: web.Request) -> web.Response:
    return web.Response()


def main() -> None:
    """Serve until the end."""
    name, address, port = sys.argv[1:]
    server = Server(name)
    app = web.Application()
    app.router.add_post("/mcp", server.post)
    app.router.add_get("/mcp", _refuse, allow_head=False)
    app.router.add_delete("/mcp", _end)
    app.router.add_get("/counts", server.counts)
    web.run_app(app, host=address, port=int(port), print=lambda *_: None, access_log=None, handler_cancellation=True)


if __name__ == "__main__":
    main()
