"""Clients of both eras on both fronts that keep nothing and check nothing: what a test does to them is its own."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx2
from anyio.abc import Process

from gateway.protocol.eras import CAPABILITIES_KEY, VERSION_KEY
from gateway.protocol.headers import VERSION_HEADER, routing_headers

ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
HANDSHAKE, MODERN = "2025-11-25", "2026-07-28"
GREETING = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


class Said(NamedTuple):
    """An answer, as a test wants to look at it."""

    text: str
    """Of the result's first block; of anything else: all of it."""
    failed: bool
    raw: dict[str, Any]

    @classmethod
    def of(cls, answer: dict[str, Any]) -> "Said":
        result = answer.get("result", {})
        blocks = result.get("content", [])
        text = blocks[0]["text"] if blocks else json.dumps(answer)
        return cls(text, "error" in answer or result.get("isError") is True, answer)


def enveloped(params: Mapping[str, Any]) -> dict[str, Any]:
    meta = {VERSION_KEY: MODERN, CAPABILITIES_KEY: {}, **params.get("_meta", {})}
    return {**params, "_meta": meta}


class HttpClient:
    """A client over HTTP that keeps nothing but its session."""

    def __init__(self, http: httpx2.AsyncClient, url: str, era: str) -> None:
        self.http = http
        self.url = f"{url}/mcp"
        self.era = era
        self.headers = dict(ACCEPT)
        self._number = 0

    def message(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """What `http.post` and `http.stream` need for one request."""
        self._number += 1
        sent, headers = dict(params), dict(self.headers)
        if self.era == "modern":
            sent = enveloped(params)
            headers |= {VERSION_HEADER: MODERN, **routing_headers(method, sent)}
        body = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": sent}
        return {"content": json.dumps(body), "headers": headers}

    async def open(self) -> None:
        if self.era == "modern":
            await self.request("server/discover", {})
            return
        answer = await self.http.post(self.url, **self.message("initialize", GREETING))
        assert answer.status_code == 200, answer.text
        self.headers |= {"mcp-session-id": answer.headers["mcp-session-id"], VERSION_HEADER: HANDSHAKE}
        note = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"})
        await self.http.post(self.url, content=note, headers=self.headers)

    async def request(self, method: str, params: Mapping[str, Any]) -> Said:
        answer = await self.http.post(self.url, **self.message(method, params))
        if answer.headers["content-type"].startswith("application/json"):
            return Said.of(answer.json())
        data = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
        return Said.of(json.loads(data[-1]))

    async def call(self, tool: str, **order: Any) -> Said:
        return await self.request("tools/call", {"name": tool, "arguments": order})

    @asynccontextmanager
    async def stream(self, tool: str, **order: Any) -> AsyncGenerator[httpx2.Response]:
        """A call whose pushes are wanted, and whose answer is read by the caller or not at all."""
        params = {"name": tool, "arguments": order, "_meta": {"progressToken": "p"}}
        async with self.http.stream("POST", self.url, **self.message("tools/call", params)) as response:
            yield response

    def vanish(self) -> None:
        """Leave without a word."""
        self.era = "gone"

    async def close(self) -> None:
        if self.era == "handshake":
            await self.http.request("DELETE", self.url, headers=self.headers)


@asynccontextmanager
async def http_client(url: str, era: str) -> AsyncGenerator[HttpClient]:
    """A client with connections of its own, from its first word to its last."""
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(timeout=240, limits=limits, trust_env=False) as http:
        client = HttpClient(http, url, era)
        await client.open()
        yield client
        await client.close()


class StdioClient:
    """A client on the standard streams of a gateway of its own."""

    def __init__(self, process: Process, era: str) -> None:
        self.process = process
        self.era = era
        self._number = 0
        self._read = b""

    async def send(self, method: str, params: Mapping[str, Any], *, notify: bool = False) -> int:
        assert self.process.stdin is not None
        self._number += not notify
        sent = enveloped(params) if self.era == "modern" else dict(params)
        body: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": sent}
        await self.process.stdin.send(json.dumps(body if notify else {**body, "id": self._number}).encode() + b"\n")
        return self._number

    async def answer(self, number: int) -> Said:
        """The answer to a request, whatever comes before it."""
        assert self.process.stdout is not None
        while True:
            line, found, rest = self._read.partition(b"\n")
            if not found:
                self._read += await self.process.stdout.receive(1 << 20)
                continue
            self._read = rest
            if (message := json.loads(line)).get("id") == number:
                return Said.of(message)

    async def open(self) -> None:
        if self.era == "modern":
            await self.answer(await self.send("server/discover", {}))
            return
        await self.answer(await self.send("initialize", GREETING))
        await self.send("notifications/initialized", {}, notify=True)

    async def call(self, tool: str, **order: Any) -> Said:
        return await self.answer(await self.send("tools/call", {"name": tool, "arguments": order}))
