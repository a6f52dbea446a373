"""Standard input and output as the message streams of one MCP client.

Turns descriptors 0 and 1 into bounded lines of JSON-RPC. While it serves, whatever else writes to standard output lands
on standard error, so that no stray print can break the protocol. No thread waits on a descriptor, so that an interrupt
ends it at once. It knows no method; `mcp.py` stands above.
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.streams.memory import MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from gateway.observe.logs import get_logger
from gateway.rpc.lines import Line, LineSplitter, LongLine
from gateway.proxy.sdk import MessageStreams, StreamPair, encode_message, make_streams, parse_error_message, parse_line

_READ = 64 * 1024
# POSIX: a pipe that is writable takes this much without blocking (PIPE_BUF is at least 512; on Linux 4096).
_WRITE = 4096 if os.name == "posix" else 512


@asynccontextmanager
async def claim_stdio(*, line_bound: int) -> AsyncGenerator[MessageStreams, None]:
    """Own standard input and output until the context ends; `line_bound` is the longest message read, in bytes."""
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    try:
        async with serve_descriptors(source, sink, line_bound=line_bound) as streams:
            yield streams
    finally:
        os.dup2(source, 0)
        os.dup2(sink, 1)
        for descriptor in (source, sink, nothing):
            os.close(descriptor)


@asynccontextmanager
async def serve_descriptors(source: int, sink: int, *, line_bound: int) -> AsyncGenerator[MessageStreams, None]:
    """Message streams over two open descriptors, which stay the caller's to close."""
    pair = make_streams()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_read, source, pair, pair.outer[1].clone(), line_bound)
        tasks.start_soon(_write, sink, pair)
        try:
            yield pair.outer
        finally:
            pair.close()
            tasks.cancel_scope.cancel()


async def _read(
    source: int, pair: StreamPair, replies: MemoryObjectSendStream[SessionMessage], line_bound: int
) -> None:
    splitter = LineSplitter(line_bound)
    with pair.incoming, replies, suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        while data := await _read_some(source):
            for line in splitter.feed(data):
                await _forward(line, pair, replies, line_bound)
        for line in splitter.close():
            await _forward(line, pair, replies, line_bound)


async def _forward(
    line: Line | LongLine, pair: StreamPair, replies: MemoryObjectSendStream[SessionMessage], line_bound: int
) -> None:
    if isinstance(line, LongLine):
        await replies.send(parse_error_message(f"a message of {line.length} bytes is over the limit of {line_bound}"))
        return
    if not line.data.strip():
        return
    message = parse_line(line.data)
    if isinstance(message, ValueError):
        get_logger("gateway.serve").debug("client sent a line that is no JSON-RPC message", bytes=len(line.data))
        await replies.send(parse_error_message("the line is no JSON-RPC message"))
        return
    await pair.incoming.send(message)


async def _write(sink: int, pair: StreamPair) -> None:
    try:
        async for message in pair.outgoing:
            await _write_all(sink, encode_message(message))
    except (OSError, anyio.ClosedResourceError):
        # The client no longer reads, or we are leaving: there is nobody left to serve.
        pair.incoming.close()


async def _read_some(source: int) -> bytes:
    # A regular file can't be waited for, and need not be: it never blocks.
    with suppress(PermissionError):
        await anyio.wait_readable(source)
    return os.read(source, _READ)


async def _write_all(sink: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        with suppress(PermissionError):
            await anyio.wait_writable(sink)
        rest = rest[os.write(sink, rest[:_WRITE]) :]
