"""How the raw clients reach a server: lines on a process's standard input and output, or Streamable HTTP.

Turns JSON messages into bytes and back, and knows of MCP only what the transports themselves ask for: the session id,
the headers, the event streams. Written without any of the gateway's own code, which it tests, and without models, which
would drop what they don't know.
"""

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import aiohttp

Message = dict[str, Any]
Take = Callable[[Message], None]
_BIGGEST = 64 * 1024 * 1024
_GRACE = 20
_END_TIME = 2.0
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class Wire(Protocol):
    """One connection of a client's."""

    async def open(self, take: Take) -> None: ...
    async def send(self, message: Message) -> None: ...
    async def abandon(self, request_id: int) -> None:
        """Give up a request the way this transport has for it in the modern era."""
        ...

    async def listen(self) -> None:
        """Be ready to hear what belongs to no request (handshake era)."""
        ...

    async def close(self) -> None: ...


class StdioWire:
    """A server as a child process."""

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        self._command = command
        self._env = env
        self._cwd = cwd

    async def open(self, take: Take) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=self._env,
            cwd=self._cwd,
            limit=_BIGGEST,
        )
        self._reader = asyncio.create_task(self._read(take))

    async def _read(self, take: Take) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            take(json.loads(line))

    async def send(self, message: Message) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        await self._process.stdin.drain()

    async def abandon(self, request_id: int) -> None:
        await self.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}})

    async def listen(self) -> None:
        """Everything comes on the one stream."""

    async def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        # Not every server ends when its input does.
        for end in (self._process.terminate, self._process.kill):
            try:
                await asyncio.wait_for(self._process.wait(), _END_TIME)
            except TimeoutError:
                end()
        await self._process.wait()
        await self._reader


class HttpWire:
    """A server at an address."""

    def __init__(self, url: str, *, modern: bool) -> None:
        self._url = url
        self._modern = modern
        self._headers = {"accept": "application/json, text/event-stream"}
        self._posts: dict[int, asyncio.Task[None]] = {}
        self._stream: asyncio.Task[None] | None = None
        self._listening = asyncio.Event()

    async def open(self, take: Take) -> None:
        self._take = take
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, sock_read=60))

    async def send(self, message: Message) -> None:
        if "method" in message and "id" in message:
            self._posts[message["id"]] = asyncio.create_task(self._post(message))
            return
        # What is only told may come when either side has ended: a server may ask as late as that.
        with suppress(aiohttp.ClientConnectionError):
            if not self._session.closed:
                await self._post(message)

    async def _post(self, message: Message) -> None:
        headers = {**self._headers, **(_modern_headers(message) if self._modern else {})}
        async with self._session.post(self._url, json=message, headers=headers) as response:
            if "mcp-session-id" in response.headers:
                self._headers["mcp-session-id"] = response.headers["mcp-session-id"]
            if response.content_type == "text/event-stream":
                await self._read_events(response)
                return
            body = await response.read()
        if body:
            self._take(json.loads(body))
        elif "id" in message and response.status >= 400:
            self._take({"id": message["id"], "error": {"code": response.status, "message": "no body"}})

    async def _read_events(self, response: aiohttp.ClientResponse) -> None:
        data: list[str] = []
        async for raw in _lines(response):
            if raw.startswith("data:"):
                data.append(raw.removeprefix("data:").removeprefix(" "))
            elif not raw and "".join(data):
                self._take(json.loads("\n".join(data)))
            if not raw:
                data = []

    async def abandon(self, request_id: int) -> None:
        task = self._posts.pop(request_id)
        task.cancel()
        await asyncio.wait([task])

    async def listen(self) -> None:
        if self._modern:
            return
        self._headers["mcp-protocol-version"] = "2025-11-25"
        self._stream = asyncio.create_task(self._get())
        await asyncio.wait_for(self._listening.wait(), _GRACE)

    async def _get(self) -> None:
        async with self._session.get(self._url, headers={**self._headers, "accept": "text/event-stream"}) as response:
            self._listening.set()
            if response.status == 200:
                await self._read_events(response)

    async def close(self) -> None:
        if not self._modern and "mcp-session-id" in self._headers:
            async with self._session.delete(self._url, headers=self._headers):
                pass
        tasks = [*self._posts.values(), *([self._stream] if self._stream else [])]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError, aiohttp.ClientError):
                await task
        await self._session.close()


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[str]:
    """Lines of any length; aiohttp's own are bounded."""
    held = b""
    async for chunk in response.content.iter_any():
        held += chunk
        *whole, held = held.split(b"\n")
        for line in whole:
            yield line.rstrip(b"\r").decode()


def _modern_headers(message: Message) -> dict[str, str]:
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": message["method"]}
    field = _NAMED.get(message["method"])
    if field is not None:
        name = message["params"][field]
        headers["mcp-name"] = name if name.isascii() else f"=?base64?{base64.b64encode(name.encode()).decode()}?="
    return headers
