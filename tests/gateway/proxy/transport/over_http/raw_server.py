"""An HTTP server that does exactly what a test tells it to, byte for byte, and remembers what it was asked."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio


@dataclass
class Asked:
    """One request."""

    method: str
    target: str
    headers: dict[str, str]
    lines: list[str]
    body: bytes
    connection: int
    """Which connection it came on, counted from 1."""

    @property
    def message(self) -> Any:
        return json.loads(self.body)


@dataclass
class Reply:
    """The way to answer."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    tunnelled: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(default_factory=list)

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        await self.raw(f"HTTP/1.1 {status} Whatever\r\n{lines}\r\n".encode())

    async def whole(self, status: int, body: bytes = b"", kind: str = "", **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        typed = {"content-type": kind} if kind else {}
        await self.head(status, {**typed, **named, "content-length": str(len(body))})
        await self.raw(body)

    async def message(self, message: Mapping[str, Any], status: int = 200, **headers: str) -> None:
        await self.whole(status, json.dumps(message).encode(), "application/json", **headers)

    async def result(self, asked: Asked, result: Mapping[str, Any], **headers: str) -> None:
        await self.message({"jsonrpc": "2.0", "id": asked.message["id"], "result": result}, **headers)

    async def stream(self, **headers: str) -> None:
        """Begin an event stream; `chunk` and `event` go on, `end` ends it."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        await self.head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked", **named})

    async def chunk(self, data: bytes) -> None:
        await self.raw(b"%x\r\n%s\r\n" % (len(data), data))

    async def event(self, message: Mapping[str, Any], *fields: str) -> None:
        lines = "".join(f"{field}\n" for field in fields)
        await self.chunk(f"{lines}data: {json.dumps(message)}\n\n".encode())

    async def end(self) -> None:
        await self.raw(b"0\r\n\r\n")

    async def gone(self) -> None:
        """Wait until the client closed the connection."""
        with anyio.fail_after(20):
            while await self.reader.read(65536):
                pass

    def drop(self) -> None:
        """Close the connection without a word."""
        self.writer.close()


Answer = Callable[[Asked, Reply], Awaitable[None]]


@dataclass
class RawServer:
    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def methods(self) -> list[str]:
        """What was asked: JSON-RPC methods of POSTs (`-` for an answer), HTTP methods of the rest."""
        return [
            str(asked.message.get("method", "-")) if asked.method == "POST" else asked.method for asked in self.asked
        ]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition that only a request can change."""
        with anyio.fail_after(20):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Answer) -> None:
        self.connections += 1
        number = self.connections
        try:
            while (asked := await _read(reader, number)) is not None:
                self.asked.append(asked)
                self._changed.set()
                await answer(asked, Reply(reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader, connection: int) -> Asked | None:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").strip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = dict(line.split(": ", 1) for line in lines)
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(method, target, headers, lines, body, connection)


@asynccontextmanager
async def raw_server(answer: Answer, tls: ssl.SSLContext | None = None) -> AsyncGenerator[RawServer]:
    """Runs in this event loop; at the end every connection is cut."""
    server = RawServer()
    running: set[asyncio.Task[None]] = set()

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        try:
            await server.serve(reader, writer, answer)
        except asyncio.CancelledError:
            pass
        finally:
            running.discard(task)

    listening = await asyncio.start_server(on_connection, "127.0.0.1", 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
