"""The floor: bytes passed on by asyncio, with no more of MCP than the transports require. `python -m bench.mcp.relay`.

`relay http-http PORT URL`, `relay stdio-stdio COMMAND...`, `relay http-stdio PORT COMMAND...`, `relay stdio-http URL`.
If both sides are of one kind, bytes pass through unread. Between different kinds an answer is found by its request's
id. It checks nothing and serves one client only: whatever a gateway costs more is for what the gateway does.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from typing import cast
from urllib.parse import urlsplit

import uvloop

from bench.mcp.links import HttpLink, connect

_LIMIT = 1 << 24
_ACCEPT = b"content-type: application/json\r\naccept: application/json, text/event-stream\r\n"


class _Pass(asyncio.Protocol):
    """Writes what comes in to the other side, once there is one."""

    def __init__(self, other: Callable[[bytes], None] | None = None) -> None:
        self.other = other
        self._early = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.out = cast("asyncio.Transport", transport)

    def pass_to(self, other: Callable[[bytes], None]) -> None:
        self.other = other
        if self._early:
            other(self._early)

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._early += data
        else:
            self.other(data)


class _ClientConnection(_Pass):
    """A client's connection, joined to its own connection to the server."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__()
        self._address = (host, port)
        self._joining: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._joining = asyncio.create_task(self._join())

    async def _join(self) -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(lambda: _Pass(self.out.write), *self._address)
        self.pass_to(transport.write)


async def _http_http(port: int, url: str) -> None:
    parts = urlsplit(url)
    server = await asyncio.get_running_loop().create_server(
        lambda: _ClientConnection(str(parts.hostname), int(parts.port or 80)), "127.0.0.1", port
    )
    await server.serve_forever()


async def _own_pipes(reader: asyncio.Protocol) -> asyncio.WriteTransport:
    loop = asyncio.get_running_loop()
    writer, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, sys.stdout)
    await loop.connect_read_pipe(lambda: reader, sys.stdin)
    return writer


async def _stdio_stdio(*command: str) -> None:
    own = _Pass()
    out = await _own_pipes(own)
    process = await _child(command)
    assert process.stdin is not None
    assert process.stdout is not None
    own.pass_to(process.stdin.write)
    while data := await process.stdout.read(_LIMIT):
        out.write(data)


class _Requests(asyncio.Protocol):
    """A client's HTTP connection whose bodies become lines."""

    def __init__(self, send: Callable[[bytes], None], waiting: dict[int, "_Requests"]) -> None:
        self._send = send
        self._waiting = waiting
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._out = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._held += data
        end = self._held.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._held[:end].lower()
        length = int(head[head.find(b"content-length:") + 15 :].split(b"\r\n", 1)[0])
        if len(self._held) < end + 4 + length:
            return
        body, self._held = self._held[end + 4 :], b""
        message = json.loads(body)
        if "id" in message:
            self._waiting[message["id"]] = self
        else:
            self._out.write(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
        self._send(body + b"\n")

    def reply(self, line: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self._out.write(head % len(line) + line)


async def _http_stdio(port: str, *command: str) -> None:
    process = await _child(command)
    assert process.stdin is not None
    assert process.stdout is not None
    waiting: dict[int, _Requests] = {}
    send = process.stdin.write
    server = await asyncio.get_running_loop().create_server(lambda: _Requests(send, waiting), "127.0.0.1", int(port))
    async with server:
        while line := await process.stdout.readline():
            waiting.pop(json.loads(line)["id"]).reply(line)


async def _stdio_http(url: str) -> None:
    parts = urlsplit(url)
    reader = asyncio.StreamReader(limit=_LIMIT)
    out = await _own_pipes(asyncio.StreamReaderProtocol(reader))
    idle: list[HttpLink] = []
    tasks: set[asyncio.Task[None]] = set()

    async def ask(line: bytes) -> None:
        link = idle.pop() if idle else await connect(str(parts.hostname), int(parts.port or 80), parts.path)
        body = await link.exchange(0, line, _ACCEPT)
        idle.append(link)
        if body:
            out.write(body + b"\n")

    while line := await reader.readline():
        task = asyncio.create_task(ask(line.rstrip()))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


async def _child(command: tuple[str, ...]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=_LIMIT
    )


def main() -> None:
    """Pass bytes between the sides that are named."""
    kind, *rest = sys.argv[1:]
    if kind == "http-http":
        uvloop.run(_http_http(int(rest[0]), rest[1]))
    else:
        uvloop.run({"stdio-stdio": _stdio_stdio, "http-stdio": _http_stdio, "stdio-http": _stdio_http}[kind](*rest))


if __name__ == "__main__":
    main()
