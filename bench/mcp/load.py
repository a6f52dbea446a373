"""The load: a number of calls at a time for a time, and what they cost the process in the middle.

Turns a target (a running gateway with a way to reach it) into samples: calls per second, latencies, and the CPU time of
the gateway's process per call, which includes neither the load generator's own cost nor the server's. It knows how MCP
begins in its two eras, and nothing of who is measured.
"""

import asyncio
import json
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Final, Literal

from bench.mcp.links import Link

Era = Literal["handshake", "modern"]
Kind = Literal["call", "list"]
HANDSHAKE: Final = "2025-11-25"
MODERN: Final = "2026-07-28"
_PREFIX: Final = "io.modelcontextprotocol/"
_INFO: Final = {"name": "load", "version": "1"}
_ENVELOPE: Final = {
    f"{_PREFIX}protocolVersion": MODERN,
    f"{_PREFIX}clientInfo": _INFO,
    f"{_PREFIX}clientCapabilities": {},
}
_MARK: Final = 1 << 40
"""Stands for the id in a request that is rendered once; no other number looks like it."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked again and again: calls of the tool that answers with `size` bytes, or lists."""

    kind: Kind
    size: int
    concurrency: int

    def __str__(self) -> str:
        """Return it in a few characters."""
        what = f"{self.size} B" if self.kind == "call" else f"list of {self.size}"
        return f"{what} at {self.concurrency}"


class Client:
    """A client of one target, in one era, with as many links as it may need."""

    def __init__(self, links: Sequence[Link], era: Era, headers: Sequence[str] = ()) -> None:
        """`links`: one for each call at a time, or one for all that takes any number."""
        self._links = links
        self._era = era
        self._extra = "".join(f"{header}\r\n" for header in headers)
        self._session = ""
        self._last = 0
        self._names: dict[int, str] = {}

    async def begin(self) -> None:
        """Do the handshake, if the era has one, and learn the names of the tools here.

        Raises:
            ConnectionError: there is no tool with sized answers, or not yet.
        """
        if self._era == "handshake":
            params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": _INFO}
            await self._once("initialize", params)
            self._session = getattr(self._links[0], "session", None) or ""
            said = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode()
            await self._links[0].tell(said, self._headers("notifications/initialized", None))
        listed = await self._once("tools/list", {})
        for tool in listed["result"]["tools"]:
            size = tool["name"].rpartition("text_")[2]
            if size.isdigit():
                self._names[int(size)] = tool["name"]
        if not self._names:
            raise ConnectionError(f"no tool is called text_BYTES: {listed!r}"[:300])

    def widen(self, links: Sequence[Link]) -> None:
        """Add these links."""
        self._links = [*self._links, *links]

    def over(self, links: Sequence[Link]) -> "Client":
        """Return the same client, including its session, with other links."""
        other = copy(self)
        other._links = links
        return other

    def close(self) -> None:
        """Close the links."""
        for link in self._links:
            link.close()

    async def run(self, ask: Ask, seconds: float) -> list[float]:
        """Ask as many at a time as `ask` says, until the time is over; return the latencies in seconds."""
        front, back, headers = self._parts(ask)
        latencies: list[float] = []

        async def work(link: Link) -> None:
            while (began := perf_counter()) < until:
                self._last += 1
                body = await link.exchange(self._last, b"%b%d%b" % (front, self._last, back), headers)
                latencies.append(perf_counter() - began)
                if b'"result"' not in body or len(body) < ask.size:
                    raise ConnectionError(f"no result: {body[:500]!r}")

        links = [self._links[number % len(self._links)] for number in range(ask.concurrency)]
        for link in links:
            await link.ready()
        until = perf_counter() + seconds
        await asyncio.gather(*map(work, links))
        return latencies

    def _parts(self, ask: Ask) -> tuple[bytes, bytes, bytes]:
        """Return the parts of the request around its id, and its headers."""
        method = "tools/call" if ask.kind == "call" else "tools/list"
        name = self._names[ask.size] if ask.kind == "call" else None
        params: dict[str, Any] = {} if name is None else {"name": name, "arguments": {"text": "hello"}}
        front, _, back = self._encode(method, params, _MARK).partition(str(_MARK).encode())
        return front, back, self._headers(method, name)

    async def _once(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._last += 1
        sent = self._encode(method, params, self._last)
        body = await self._links[0].exchange(self._last, sent, self._headers(method, None))
        return _message(body)

    def _encode(self, method: str, params: dict[str, Any], number: int) -> bytes:
        if self._era == "modern":
            params = {**params, "_meta": _ENVELOPE}
        return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()

    def _headers(self, method: str, name: str | None) -> bytes:
        made = f"content-type: application/json\r\naccept: application/json, text/event-stream\r\n{self._extra}"
        if self._era == "modern":
            made += f"mcp-protocol-version: {MODERN}\r\nmcp-method: {method}\r\n"
            made += f"mcp-name: {name}\r\n" if name is not None else ""
        elif self._session:
            made += f"mcp-protocol-version: {HANDSHAKE}\r\nmcp-session-id: {self._session}\r\n"
        return made.encode()


def _message(body: bytes) -> dict[str, Any]:
    """Return the message in a body that may be an event stream, in chunks."""
    start, end = body.find(b'{"'), body.rfind(b"}")
    text = body[start : end + 1]
    try:
        return json.loads(text)
    except ValueError:
        # The size of a chunk may be in the middle of it.
        lines = [line for line in body.split(b"\r\n") if b"data:" in line or not _is_size(line)]
        joined = b"".join(lines)
        return json.loads(joined[joined.find(b'{"') : joined.rfind(b"}") + 1])


def _is_size(line: bytes) -> bool:
    return bool(line) and all(byte in b"0123456789abcdefABCDEF" for byte in line)


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS:"))
