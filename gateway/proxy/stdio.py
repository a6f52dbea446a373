"""A child process into the two message streams that an MCP dispatcher runs on.

Starts the command in a process group of its own with the few variables a child needs, splits its standard output into
bounded lines, puts its standard error into our log, and ends it as the MCP lifecycle asks (close stdin, wait, TERM,
KILL). It knows JSON-RPC messages only as far as parsing goes: no method, no MCP. `link.py` stands above, `lines.py` and
`sdk.py` below. Written by hand because a line of the SDK's own transport has no bound and costs quadratic time.
"""

import os
import signal
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final, cast

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, Process
from structlog.typing import FilteringBoundLogger

from gateway.config.model import UpstreamConfig
from gateway.config.nesting import DEPTH_VARIABLE, nesting_depth
from gateway.observe.escape import escape_text
from gateway.rpc.lines import Line, LineSplitter, LongLine
from gateway.proxy.sdk import (
    MessageStreams,
    StreamPair,
    encode_message,
    make_streams,
    parse_line,
    rescue_line,
    too_long_message,
)

INHERITED: Final = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER")
"""What a child sees of our environment: no secret that it was not given by name (MCP's own list, and the locale)."""
_STDERR_LINE: Final = 4096
_EXIT_GRACE: Final = 2.0
"""Seconds a child gets to leave after its stdin closed, and again after TERM."""
_POLL: Final = 0.01
_Pipes = tuple[ByteSendStream, ByteReceiveStream, ByteReceiveStream]
_BROKEN: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError)


def child_environment(extra: Mapping[str, str], outer: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The whole environment of a child: the inherited few, how deep it stands, then what the configuration adds."""
    inherited = {name: outer[name] for name in INHERITED if name in outer}
    return {**inherited, DEPTH_VARIABLE: str(nesting_depth(outer) + 1), **extra}


@asynccontextmanager
async def open_stdio(
    config: UpstreamConfig, *, line_bound: int, log: FilteringBoundLogger
) -> AsyncGenerator[MessageStreams, None]:
    """Run the command and give its message streams; leaving the context ends the process, whatever it does.

    Args:
        config: an upstream whose `command` is set.
        line_bound: longest message that is read, in bytes.
        log: receives the child's standard error, one event a line.

    Raises:
        OSError: the program can't be started.
    """
    process = await anyio.open_process(
        [config.command or "", *config.args],
        env=child_environment(config.env),
        cwd=config.cwd,
        start_new_session=True,
    )
    # All three are pipes: that is `open_process`'s default.
    stdin, stdout, stderr = cast(_Pipes, (process.stdin, process.stdout, process.stderr))
    pair = make_streams()
    async with anyio.create_task_group() as tasks:
        try:
            tasks.start_soon(_read_messages, stdout, pair, line_bound, log)
            tasks.start_soon(_write_messages, stdin, pair)
            tasks.start_soon(_log_stderr, stderr, log)
            yield pair.outer
        finally:
            with anyio.CancelScope(shield=True):
                pair.close()
                await _end(process, stdin, log)
            tasks.cancel_scope.cancel()


async def _read_messages(
    stdout: ByteReceiveStream, pair: StreamPair, line_bound: int, log: FilteringBoundLogger
) -> None:
    """Forward every message; the end of the child's output closes the stream, which fails all waiting calls at once."""
    splitter = LineSplitter(line_bound)
    with pair.incoming:
        async for data in _chunks(stdout):
            for line in splitter.feed(data):
                await _forward(line, pair, line_bound, log)
        if unfinished := splitter.close():
            log.warning("upstream's output ended in the middle of a line", bytes=_length(unfinished[0]))


async def _forward(line: Line | LongLine, pair: StreamPair, line_bound: int, log: FilteringBoundLogger) -> None:
    if isinstance(line, LongLine):
        log.warning("upstream sent a message over the limit", bytes=line.length, limit=line_bound)
        message = too_long_message(line, line_bound)
    elif not line.data.strip():
        return
    else:
        message = parse_line(line.data)
    if isinstance(message, ValueError) and isinstance(line, Line) and (rescued := rescue_line(line.data)):
        log.warning("upstream sent a message that strict JSON refuses", line=escape_text(_start(line), 200))
        message = rescued
    if isinstance(message, ValueError):
        log.warning("upstream printed a line that is no JSON-RPC message", line=escape_text(_start(line), 200))
        return
    # Closed at our end: the connection is going away and the rest of the output interests nobody.
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        await pair.incoming.send(message)


async def _write_messages(stdin: ByteSendStream, pair: StreamPair) -> None:
    try:
        async for message in pair.outgoing:
            await stdin.send(encode_message(message))
    except _BROKEN:
        # It no longer listens, alive or not: end the conversation rather than let every call wait out its time.
        pair.incoming.close()


async def _log_stderr(stderr: ByteReceiveStream, log: FilteringBoundLogger) -> None:
    splitter = LineSplitter(_STDERR_LINE)
    async for data in _chunks(stderr):
        for line in splitter.feed(data):
            if text := _start(line).strip():
                log.info("upstream stderr", line=escape_text(text, _STDERR_LINE))


async def _chunks(stream: ByteReceiveStream) -> AsyncGenerator[bytes, None]:
    with suppress(anyio.EndOfStream, *_BROKEN):
        while True:
            yield await stream.receive()


async def _end(process: Process, stdin: ByteSendStream, log: FilteringBoundLogger) -> None:
    """Close its stdin, wait, TERM its group, wait, KILL its group (MCP lifecycle, "Shutdown": stdio)."""
    with suppress(*_BROKEN):
        await stdin.aclose()
    for number in (signal.SIGTERM, signal.SIGKILL):
        if await _has_exited(process):
            break
        log.debug("upstream did not leave", pid=process.pid, signal=number.name)
        _signal_group(process, number)
    if not await _has_exited(process):
        log.warning("upstream process survives being killed", pid=process.pid)
        return
    await _end_orphans(process)
    with anyio.move_on_after(_EXIT_GRACE):
        await process.aclose()


async def _end_orphans(process: Process) -> None:
    """What the process started, and left behind in its group when it left by itself: TERM, wait, KILL.

    The group's number is not given to anyone else while one of it lives.
    """
    with anyio.move_on_after(_EXIT_GRACE):
        number = signal.SIGTERM
        while _signal_group(process, number):
            number = 0
            await anyio.sleep(_POLL)
    _signal_group(process, signal.SIGKILL)


def _signal_group(process: Process, number: int) -> bool:
    """Whether there was anyone in the process's group to signal; 0 only asks."""
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


async def _has_exited(process: Process) -> bool:
    """Whether it leaves within the grace. Polled: `wait()` also waits for pipes that a grandchild may hold open."""
    with anyio.move_on_after(_EXIT_GRACE):
        while process.returncode is None:  # noqa: ASYNC110 - see above: the one event there is comes too late
            await anyio.sleep(_POLL)
    return process.returncode is not None


def _start(line: Line | LongLine) -> str:
    data = line.head if isinstance(line, LongLine) else line.data
    return data.decode("utf-8", "backslashreplace")


def _length(line: Line | LongLine) -> int:
    return line.length if isinstance(line, LongLine) else len(line.data)
