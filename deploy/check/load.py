"""Clients of both MCP eras that call a gateway at a steady pace, and note every answer that is not a good one.

Clients of 2026-07-28 make one call per request and never retry. Those of 2025-11-25 have a session, and `initialize`
again when it is gone. Each client has an address of its own (127.0.0.x), as a proxy that tells clients apart needs.
"""

import http.client
import json
import threading
import time
from collections import Counter
from typing import Any, Final

WORKERS: Final = 4
_MODERN: Final = "2026-07-28"
_SESSIONS: Final = "2025-11-25"
_PACE: Final = 0.2
"""Seconds between the calls of one worker: four workers make 20 calls a second."""
_GONE: Final = 404


class Load:
    """Clients of both eras, each with an address of its own, which run until they are told to stop."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.replaced = 0
        """How many gateways have been replaced."""
        self.interrupted: set[tuple[int, int]] = set()
        """Sessions that were restarted, each with how many gateways had been replaced by then."""
        self.faults: list[str] = []
        modern = [threading.Thread(target=self._modern, args=(number,)) for number in range(WORKERS)]
        sessions = [threading.Thread(target=self._session, args=(number,)) for number in range(WORKERS)]
        self._threads = [*modern, *sessions]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Let every client finish its call."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def _modern(self, number: int) -> None:
        meta = {f"io.modelcontextprotocol/{key}": value for key, value in _ABOUT.items()}
        headers = {"Mcp-Method": "tools/call", "Mcp-Name": "get_time", "MCP-Protocol-Version": _MODERN}
        due = time.monotonic()
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            due += _PACE
            status, answer, _ = self._send(number, _call({"_meta": meta}), headers)
            self._note("modern", status, answer)

    def _session(self, number: int) -> None:
        session = self._initialize(number)
        while not self._stop.wait(_PACE * 2):
            headers = {"Mcp-Session-Id": session, "MCP-Protocol-Version": _SESSIONS}
            status, answer, _ = self._send(WORKERS + number, _call({}), headers)
            if status == _GONE:
                with self._lock:
                    self.counts["session began again"] += 1
                    self.interrupted.add((number, self.replaced))
                session = self._initialize(number)
            else:
                self._note("session", status, answer)

    def _initialize(self, number: int) -> str:
        about: dict[str, Any] = {"protocolVersion": _SESSIONS, "capabilities": {}, "clientInfo": _ABOUT["clientInfo"]}
        asked: dict[str, Any] = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": about}
        _, _, session = self._send(WORKERS + number, asked, {})
        said = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        self._send(WORKERS + number, said, {"Mcp-Session-Id": session, "MCP-Protocol-Version": _SESSIONS})
        return session

    def _note(self, era: str, status: int, answer: str) -> None:
        good = status == 200 and '"isError":true' not in answer and "The time in" in answer
        with self._lock:
            self.counts[era if good else f"{era} failed"] += 1
            if not good:
                self.faults.append(f"{era}: {status} {answer[:200]}")

    def _send(self, number: int, body: dict[str, Any], headers: dict[str, str]) -> tuple[int, str, str]:
        """Send one request on a connection of its own; a connection that breaks gives status 0."""
        content = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        source = (f"127.0.0.{10 + number}", 0)
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30, source_address=source)
        try:
            connection.request("POST", "/mcp", json.dumps(body), {**content, **headers})
            response = connection.getresponse()
            return response.status, response.read().decode(), response.getheader("Mcp-Session-Id") or ""
        except (OSError, http.client.HTTPException) as error:
            return 0, repr(error), ""
        finally:
            connection.close()


_ABOUT: Final[dict[str, Any]] = {
    "protocolVersion": _MODERN,
    "clientInfo": {"name": "deploy-check", "version": "1"},
    "clientCapabilities": {},
}


def _call(more: dict[str, Any]) -> dict[str, Any]:
    params = {"name": "get_time", "arguments": {"city": "Tokyo"}, **more}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
