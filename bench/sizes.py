"""How much a gateway's memory grows with what its clients hold open: sessions, streams, connections.

Turns one running gateway in front of a server that costs next to nothing into kilobytes of resident memory: for many
sessions of 2025-11-25, for those that have called a tool, for open event streams, and for idle connections. Writes
`results/sizes.json`. `memory.py` measures conversations.
"""

import http.client
import json
import socket
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import sleep
from typing import Any, Final
from urllib.parse import urlsplit

from bench.mcp.load import HANDSHAKE, resident_bytes
from bench.processes import Gateway, free_port, running, serving_gateway, wait_for_port
from bench.record import summary, write

_MANY: Final = 1000
_ROUNDS: Final = 3
_REST: Final = 1.0
"""Seconds to wait until what was opened is at rest."""
_SETTINGS: Final = """
prefix = "never"
[engine]
kind = "none"
[serve]
max_sessions = 10000
[serve.connections]
total = 20000
per_address = 20000
"""
_ACCEPT: Final = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


class _Clients:
    """Clients that hold something open at one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._at = urlsplit(gateway.url)
        self._http = http.client.HTTPConnection(self._at.netloc)
        self._open: list[socket.socket] = []

    def session(self, **capabilities: dict[str, Any]) -> str:
        """Open a session; returns its id."""
        info = {"name": "sizes", "version": "1"}
        params = {"protocolVersion": HANDSHAKE, "capabilities": capabilities, "clientInfo": info}
        given = self._post("initialize", params).getheader("mcp-session-id")
        assert given is not None
        return given

    def called(self) -> None:
        """Open a session and make its first call."""
        arguments = {"name": "text_100", "arguments": {"text": "hello"}}
        self._post("tools/call", arguments, self.session(elicitation={}))

    def listening(self) -> None:
        """Open a session and its event stream."""
        self._say(
            f"GET /mcp HTTP/1.1\r\nhost: {self._at.netloc}\r\naccept: text/event-stream\r\n"
            f"mcp-session-id: {self.session()}\r\n\r\n"
        )

    def connected(self) -> None:
        """Open a connection, have one request answered, and stay idle."""
        self._say(f"GET /v1/nothing HTTP/1.1\r\nhost: {self._at.netloc}\r\n\r\n")

    def _say(self, request: str) -> None:
        way = socket.create_connection((str(self._at.hostname), int(self._at.port or 0)))
        way.sendall(request.encode())
        assert way.recv(4096).startswith(b"HTTP/1.1")
        self._open.append(way)

    def _post(self, method: str, params: dict[str, Any], session: str | None = None) -> http.client.HTTPResponse:
        headers = _ACCEPT if session is None else {**_ACCEPT, "mcp-session-id": session}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        self._http.request("POST", "/mcp", body, headers)
        answer = self._http.getresponse()
        said = answer.read()
        if b'"result"' not in said:
            raise SystemExit(f"{method} was answered with {answer.status}: {said[:300]!r}")
        return answer


_WAYS: Final[dict[str, Callable[[_Clients], object]]] = {
    "session": _Clients.session,
    "session that has called a tool": _Clients.called,
    "session with an open stream": _Clients.listening,
    "connection": _Clients.connected,
}


@contextmanager
def _gateway() -> Generator[Gateway]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="codec-")))
        port = free_port()
        command = [sys.executable, "-m", "bench.mcp.upstream", str(port)]
        wait_for_port(stack.enter_context(running("server", command)), port)
        server = {"light": {"url": f"http://127.0.0.1:{port}/mcp"}}
        yield stack.enter_context(serving_gateway(folder / "gateway", server, settings=_SETTINGS))


def _growth(open_one: Callable[[_Clients], object]) -> float:
    """Return the kilobytes that each of many takes; the first ones warm up."""
    with _gateway() as gateway:
        clients = _Clients(gateway)
        for _ in range(_MANY // 10):
            open_one(clients)
        sleep(_REST)
        before = resident_bytes(gateway.running.pid)
        for _ in range(_MANY):
            open_one(clients)
        sleep(_REST)
        return (resident_bytes(gateway.running.pid) - before) / _MANY / 1024


def main() -> None:
    """Measure, print the medians, and write the file."""
    taken = {name: [_growth(open_one) for _ in range(_ROUNDS)] for name, open_one in _WAYS.items()}
    with _gateway() as gateway:
        idle = resident_bytes(gateway.running.pid) / 2**20
    results = {name: summary(samples) for name, samples in taken.items()}
    for name, row in results.items():
        print(f"{name:42} {row['median']:7.1f} KiB")
    print(f"{'gateway without clients':42} {idle:7.1f} MiB")
    print(write("sizes", ["uvloop", "httptools"], {"kib": results, "gateway_mib": round(idle, 1), "of_each": _MANY}))


if __name__ == "__main__":
    main()
