"""The same over Streamable HTTP (`orders.py`): each session has a thread a request, and ends by DELETE.

The port is the first argument; 0: any, which is printed. More acts: `cut` (the connection ends in the middle of the
answer), `drip` (events for ever, and no answer), `garbage` (a body that is no JSON).
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

from orders import TOOL, carry_out, greeting, say, text

SESSIONS: set[str] = set()
RELEASED = threading.Event()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_request(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        self.reply(405)

    def do_DELETE(self) -> None:
        SESSIONS.discard(self.headers.get("mcp-session-id", ""))
        self.reply(200)

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, number = message.get("method"), message.get("id")
        if method == "initialize":
            session = uuid4().hex
            SESSIONS.add(session)
            self.answer(number, greeting(message["params"]), session)
        elif method == "server/discover":
            self.send({"id": number, "error": {"code": -32601, "message": "no such method"}})
        elif self.headers.get("mcp-session-id") not in SESSIONS:
            self.reply(404)
        elif number is None:
            if method == "notifications/cancelled":
                say("cancelled")
            self.reply(202)
        elif method == "tools/list":
            self.answer(number, {"tools": [TOOL]})
        elif method == "ping":
            self.answer(number, {})
        else:
            self.do(number, message["params"]["arguments"])

    def do(self, number: object, order: dict[str, Any]) -> None:
        act = order.get("act")
        if act == "cut":
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", "1000")
            self.end_headers()
            self.wfile.write(b'{"jsonrpc": "2.0", ')
            self.close_connection = True
        elif act == "garbage":
            self.reply(200, b"<html>", "application/json")
        elif act == "drip":
            self.drip()
        elif act in ("wait", "hang"):
            say(f"called {act}")
            RELEASED.wait()
            self.answer(number, text("released"))
        elif act == "release":
            RELEASED.set()
            self.answer(number, text("release"))
        elif act == "sessions":
            self.answer(number, text(str(len(SESSIONS))))
        elif (result := carry_out(order)) is not None:
            self.answer(number, result)

    def drip(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        event = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 1000}}
        line = f"data: {json.dumps(event)}\n\n".encode() * 20
        say("called drip")
        try:
            while True:
                self.wfile.write(line)
        except OSError:
            say("cut off")

    def answer(self, number: object, result: dict[str, Any], session: str = "") -> None:
        self.send({"id": number, "result": result}, session)

    def send(self, message: dict[str, Any], session: str = "") -> None:
        self.reply(200, json.dumps({"jsonrpc": "2.0", **message}).encode(), "application/json", session)

    def reply(self, status: int, body: bytes = b"", kind: str = "text/plain", session: str = "") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        if session:
            self.send_header("mcp-session-id", session)
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            self.close_connection = True


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that leaves is part of the game."""


server = Server(("127.0.0.1", int(sys.argv[1])), Handler)
sys.stdout.write(f"{server.server_address[1]}\n")
sys.stdout.flush()
server.serve_forever()
