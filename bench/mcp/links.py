"""Connections of the load generator: one request out, its answer in, with as little work as Python allows.

Turns request bytes into answer bytes, over a keep-alive HTTP connection, the older HTTP with one event stream, or a
process's standard input and output. It checks only that an answer came.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, cast

_ENDS = (b"\r\n0\r\n\r\n", b"0\r\n\r\n")


class Link(Protocol):
    """Something to send requests over, again and again."""

    async def exchange(self, request_id: int, message: bytes, headers: bytes) -> bytes:
        """Send a request and return the body of its answer."""
        ...

    async def tell(self, message: bytes, headers: bytes) -> None:
        """Send a message that is not answered."""
        ...

    async def ready(self) -> None:
        """Reopen if necessary: servers close connections that have been idle for some seconds."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


class HttpLink(asyncio.Protocol):
    """One keep-alive connection of HTTP/1.1; one request at a time."""

    def __init__(self, host: str, port: int, path: str) -> None:
        self.session: str | None = None
        """The `mcp-session-id` of the last answer that had one."""
        self._address = (host, port)
        self._prefix = f"POST {path} HTTP/1.1\r\nhost: {host}:{port}\r\n".encode()
        self._held = b""
        self._body_at = -1
        self._length: int | None = None
        self._waiting: asyncio.Future[bytes] | None = None
        self._out: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._out = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionError(f"closed before the answer: {exc!r}"))

    async def exchange(self, request_id: int, message: bytes, headers: bytes) -> bytes:
        """Send a POST and return the body of its answer, with chunks and events still in it."""
        if self._out is None:
            raise ConnectionError("not open")
        waiting = self._waiting = asyncio.get_running_loop().create_future()
        self._out.write(self._prefix + headers + b"content-length: %d\r\n\r\n" % len(message) + message)
        return await waiting

    async def tell(self, message: bytes, headers: bytes) -> None:
        await self.exchange(0, message, headers)

    async def ready(self) -> None:
        if self._out is None or self._out.is_closing():
            self._held, self._body_at = b"", -1
            await asyncio.get_running_loop().create_connection(lambda: self, *self._address)

    def close(self) -> None:
        if self._out is not None:
            self._out.close()

    def data_received(self, data: bytes) -> None:
        self._held += data
        if self._body_at < 0 and not self._read_head():
            return
        if self._length is None:
            whole = self._held.endswith(_ENDS[0]) or self._held[self._body_at :] == _ENDS[1]
        else:
            whole = len(self._held) - self._body_at >= self._length
        if whole and self._waiting is not None:
            body, self._held = self._held[self._body_at :], b""
            self._body_at = -1
            self._waiting.set_result(body)

    def _read_head(self) -> bool:
        end = self._held.find(b"\r\n\r\n")
        if end < 0:
            return False
        self._body_at = end + 4
        head = self._held[:end]
        fields = {k.lower(): v.strip() for k, _, v in (line.partition(b":") for line in head.split(b"\r\n")[1:])}
        self._length = (
            None if fields.get(b"transfer-encoding") == b"chunked" else int(fields.get(b"content-length", b"0"))
        )
        if b"mcp-session-id" in fields:
            self.session = fields[b"mcp-session-id"].decode()
        if not head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 202")) and self._waiting is not None:
            self._waiting.set_exception(ConnectionError(self._held[:600].decode(errors="replace")))
            return False
        return True


class LinesLink:
    """Answers that come one per line, in any order: a process on standard input and output, or a stream of events."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self.reader: asyncio.Task[None] | None = None
        """The task that calls `take`; held here, so that it lives as long as the link."""
        self._send = send
        self._waiting: dict[int, asyncio.Future[bytes]] = {}

    async def exchange(self, request_id: int, message: bytes, headers: bytes) -> bytes:
        """Send a line and return the line of its answer."""
        waiting = self.expect(request_id)
        self._send(message)
        return await waiting

    async def tell(self, message: bytes, headers: bytes) -> None:
        self._send(message)

    async def ready(self) -> None:
        """Do nothing: a process stays."""

    def close(self) -> None:
        """Stop reading."""
        if self.reader is not None:
            self.reader.cancel()

    def expect(self, request_id: int) -> asyncio.Future[bytes]:
        """Return the future of an answer whose request is sent elsewhere."""
        waiting = self._waiting[request_id] = asyncio.get_running_loop().create_future()
        return waiting

    async def read(self, stream: asyncio.StreamReader, prefix: bytes) -> None:
        """Hand each answer to whoever waits for it, until the stream ends; other messages are dropped."""
        while line := await stream.readline():
            if line.startswith(prefix):
                body = line[len(prefix) :]
                waiting = self._waiting.pop(_id_of(body), None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(body)
        for waiting in self._waiting.values():
            waiting.set_exception(ConnectionError("the other side ended"))


class EventsLink:
    """HTTP with one event stream for all answers (MCP 2024-11-05): each request goes out by a POST of its own."""

    def __init__(self, post: HttpLink, answers: LinesLink, path: str) -> None:
        self.answers = answers
        self.path = path
        """Where requests go, as named by the stream."""
        self._post = post

    async def exchange(self, request_id: int, message: bytes, headers: bytes) -> bytes:
        waiting = self.answers.expect(request_id)
        await self._post.exchange(request_id, message, headers)
        return await waiting

    async def tell(self, message: bytes, headers: bytes) -> None:
        await self._post.exchange(0, message, headers)

    async def ready(self) -> None:
        await self._post.ready()

    def close(self) -> None:
        self._post.close()
        self.answers.close()


def _id_of(line: bytes) -> int:
    """Return the id of an answer, without parsing all of it if the id is near the front or the end."""
    front, back = line.find(b'"id":', 0, 60), line.rfind(b'"id":', max(0, len(line) - 40))
    at = max(front, back)
    if at >= 0:
        digits = line[at + 5 : at + 25].lstrip().replace(b"}", b",").split(b",", 1)[0].strip()
        if digits.isdigit():
            return int(digits)
    found: object = json.loads(line).get("id")
    return found if isinstance(found, int) else -1


async def connect(host: str, port: int, path: str) -> HttpLink:
    """Open a keep-alive connection."""
    link = HttpLink(host, port, path)
    await link.ready()
    return link


async def connect_events(host: str, port: int, path: str) -> tuple[LinesLink, str]:
    """Open the event stream; return it, and the path that it names for requests."""
    reader, writer = await asyncio.open_connection(host, port, limit=1 << 24)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: {host}:{port}\r\naccept: text/event-stream\r\n\r\n".encode())
    while not (line := await reader.readline()).startswith(b"data: /"):
        if not line:
            raise ConnectionError("the event stream ended before it named an endpoint")
    link = LinesLink(writer.write)
    link.reader = asyncio.create_task(link.read(reader, b"data: "))
    return link, line.removeprefix(b"data: ").strip().decode()


async def start(
    command: Sequence[str], *, env: Mapping[str, str] | None, cwd: Path, log: Path
) -> tuple[LinesLink, asyncio.subprocess.Process]:
    """Start a program that speaks on standard input and output."""
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=env,
            cwd=cwd,
            limit=1 << 24,
            start_new_session=True,
        )
    out, answers = process.stdin, process.stdout
    assert out is not None
    assert answers is not None
    link = LinesLink(lambda message: out.write(message + b"\n"))
    link.reader = asyncio.create_task(link.read(answers, b""))
    return link, process
