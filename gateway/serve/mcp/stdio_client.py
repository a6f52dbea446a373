"""One client on standard input and output, in whichever era it speaks.

Turns lines into requests, each in a task of its own, and answers into lines. Each request shows which era it belongs
to: one with an envelope is served by the rules of 2026-07-28, any other needs a session, which `initialize` opens. All
frames of one turn of the event loop leave in one write.
"""

import asyncio
import os
import stat
from collections import deque
from collections.abc import Callable, Generator, Hashable, Mapping
from contextlib import contextmanager
from typing import Any, Final

from gateway.errors import MapUnknown, RpcError
from gateway.observe.logs import get_logger
from gateway.protocol.eras import VERSION_KEY, meta_of
from gateway.protocol.headers import check_envelope
from gateway.protocol.lines import LineSplitter, LongLine
from gateway.protocol.mending import VERSIONS as BATCH_VERSIONS
from gateway.protocol.mending import split_batch
from gateway.protocol.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    Malformed,
    Notification,
    Request,
    RequestId,
    encode_response,
    parse_message,
)
from gateway.proxy.caller import ANYBODY
from gateway.serve.mcp.methods import OWN_NOTIFICATIONS, McpCore, check_greeting, error_answer
from gateway.serve.mcp.outbox import HeldStream, Outbox
from gateway.serve.mcp.sessions import ClientCall, McpSession, enveloped_call, session_call

# A descriptor that can't be polled (a regular file, `/dev/null`) is read and written directly, because it never blocks.
# `claim_stdio` reserves standard input and output for the protocol: anything else that is printed meanwhile goes to
# standard error, so that no stray print can break the protocol.

_READ = 256 * 1024


@contextmanager
def claim_stdio() -> Generator[tuple[int, int]]:
    """Copies of the descriptors of standard input and output, which are `/dev/null` and standard error meanwhile."""
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    try:
        yield source, sink
    finally:
        os.dup2(source, 0)
        os.dup2(sink, 1)
        for descriptor in (source, sink, nothing):
            os.close(descriptor)


class Pipe:
    """Lines in, frames out."""

    def __init__(
        self,
        source: int,
        sink: int,
        *,
        line_bound: int,
        received: Callable[[bytes | LongLine], None],
        ended: Callable[[], None],
        drained: Callable[[], None],
    ) -> None:
        """Use two open descriptors, which the caller must close.

        Args:
            line_bound: bytes of the longest line that is kept.
            received: called with each line.
            ended: called when nothing more will come in, or when nobody reads what goes out.
            drained: called whenever the rest of writes that did not complete at once has been written.
        """
        self._source = source
        self._sink = sink
        self._splitter = LineSplitter(line_bound)
        self._received = received
        self._ended = ended
        self._drained_now = drained
        self._loop = asyncio.get_running_loop()
        self._waits_for_source = _is_pipe(source) or os.isatty(source)
        self._waits_for_sink = _is_pipe(sink)
        self._blocking = os.get_blocking(sink)
        self._reading = False
        self._over = False
        self._left: deque[memoryview] = deque()
        self._unwritten = 0
        self._drained = asyncio.Event()
        self._drained.set()

    @property
    def is_file(self) -> bool:
        """Whether the input is a file, whose end does not mean that a client left."""
        return stat.S_ISREG(os.fstat(self._source).st_mode)

    @property
    def unwritten(self) -> int:
        """Bytes that the other side has not taken yet."""
        return self._unwritten

    def open(self) -> None:
        """Start reading."""
        if self._waits_for_sink:
            os.set_blocking(self._sink, False)
        self.resume()

    def close(self) -> None:
        """Stop reading and writing, and restore the mode of the descriptors."""
        self._over = True
        self.pause()
        self._stop_writing()
        os.set_blocking(self._sink, self._blocking)

    def pause(self) -> None:
        """Stop reading for now."""
        if self._reading and self._waits_for_source:
            self._loop.remove_reader(self._source)
        self._reading = False

    def resume(self) -> None:
        """Read again."""
        if self._reading or self._over:
            return
        self._reading = True
        if self._waits_for_source:
            self._loop.add_reader(self._source, self._read)
        else:
            self._loop.call_soon(self._read_file)

    def write(self, data: bytes) -> None:
        """Write as much as the other side takes now, and the rest when it can take more."""
        if self._over:
            return
        self._left.append(memoryview(data))
        self._unwritten += len(data)
        if not self._drained.is_set():
            return
        self._write_some()
        if self._left:
            self._drained.clear()
            self._loop.add_writer(self._sink, self._write_rest)

    async def flushed(self) -> None:
        """Return when everything is written, or nothing more can be."""
        await self._drained.wait()

    def _read_file(self) -> None:
        if self._reading:
            self._read()
        if self._reading:
            self._loop.call_soon(self._read_file)

    def _read(self) -> None:
        try:
            data = os.read(self._source, _READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        lines = self._splitter.feed(data) if data else self._splitter.close()
        for line in lines:
            self._received(line)
        if not data:
            self.pause()
            self._ended()

    def _write_rest(self) -> None:
        self._write_some()
        if not self._left:
            self._stop_writing()
            if not self._over:
                self._drained_now()

    def _write_some(self) -> None:
        try:
            while self._left:
                head = self._left[0]
                written = os.write(self._sink, head)
                self._unwritten -= written
                if written == len(head):
                    self._left.popleft()
                else:
                    self._left[0] = head[written:]
        except BlockingIOError:
            return
        except OSError:
            self._over = True
            self._stop_writing()
            self._ended()

    def _stop_writing(self) -> None:
        self._left.clear()
        self._unwritten = 0
        if not self._drained.is_set():
            self._loop.remove_writer(self._sink)
            self._drained.set()


def _is_pipe(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


_RUNNING: Final = 1024
_NOTES: Final = 256
"""The most notifications from the client that are being passed on at the same time."""
_FULL: Final = 8 * 1024 * 1024
"""Unread bytes beyond which nothing more is read from the client either."""


class StdioClient:
    """The client at the other end of two descriptors."""

    def __init__(self, core: McpCore, source: int, sink: int, *, line_bound: int, dropped: Callable[[], None]) -> None:
        """`dropped` is called for every notification that the client loses because it does not read."""
        self._core = core
        self._line_bound = line_bound
        self._log = get_logger("gateway.serve.mcp")
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._pipe = Pipe(
            source,
            sink,
            line_bound=line_bound,
            received=self._take_line,
            ended=self._end,
            drained=self._drained,
        )
        self._outbox = Outbox(self._wake, dropped)
        # Starting servers may ask something at once, but a client must not be asked before it is initialized.
        self._standing = HeldStream(self._outbox, dropped)
        self._flush_due = False
        self._running: dict[RequestId, asyncio.Task[None]] = {}
        self._notes: set[asyncio.Task[None]] = set()
        self._session: McpSession | None = None
        self._opening: asyncio.Task[None] | None = None
        self._opened = asyncio.Event()
        self.asked_or_left = asyncio.Event()
        """Set by the client's first request, or when it leaves without one."""
        self.asked = False
        """Whether the client has sent a request."""

    @property
    def session(self) -> McpSession | None:
        """The client's session of the handshake era; None before its `initialize` has been answered."""
        return self._session if self._opened.is_set() else None

    async def serve(self) -> None:
        """Serve until the input ends. Requests that still run are then cancelled, unless the input was a file."""
        self._pipe.open()
        try:
            await self._over.wait()
            if self._opening is not None:
                await self._opening
            if self._pipe.is_file and self._running:
                await asyncio.wait(self._running.values())
            self._flush()
            await self._pipe.flushed()
        finally:
            await self._stop()

    def tell(self, method: str, params: Mapping[str, Any], key: Hashable = None) -> None:
        """Send a notification, if there is room."""
        self._outbox.tell(method, params, key)

    def offer(self, data: bytes) -> bool:
        """Send a request of the gateway's, if there is room. Returns whether there was."""
        return self._outbox.offer(data)

    def put(self, data: bytes) -> None:
        """Send a frame that must arrive."""
        self._outbox.put(data)

    async def _stop(self) -> None:
        tasks = [*self._running.values(), *self._notes]
        if self._opening is not None:
            tasks.append(self._opening)
        for task in tasks:
            task.cancel()
        if self._session is not None:
            self._session.asks.close()
        if tasks:
            await asyncio.wait(tasks)
        if self._session is not None:
            self._core.servers.session_ended(self._session)
        self._pipe.close()

    def _wake(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Write what waits. While the client has not read the last write, the rest stays where it can be dropped."""
        self._flush_due = False
        if self._pipe.unwritten:
            if self._outbox.size > _FULL:
                self._pipe.pause()
            return
        frames = self._outbox.take()
        if frames:
            frames.append(b"")
            self._pipe.write(b"\n".join(frames))

    def _end(self) -> None:
        self.asked_or_left.set()
        self._over.set()

    def _drained(self) -> None:
        if not self._over.is_set():
            self._pipe.resume()
        self._flush()

    def _take_line(self, line: bytes | LongLine) -> None:
        if isinstance(line, LongLine):
            detail = f"a message of {line.length} bytes is over the limit of {self._line_bound} (limits.body_bytes)"
            self._refuse(None, PARSE_ERROR, detail)
            return
        if not line.strip():
            return
        has_batches = self._session is not None and self._session.version in BATCH_VERSIONS
        for data in (split_batch(line) if has_batches else ()) or (line,):
            self._take_message(data)

    def _take_message(self, data: bytes) -> None:
        message = parse_message(data)
        if isinstance(message, Request):
            self._take_request(message, len(data))
        elif isinstance(message, Notification):
            self._take_notification(message)
        elif isinstance(message, Malformed):
            self._log.debug("client sent a line that is not a JSON-RPC message", bytes=len(data))
            self._refuse(message.id, message.code, message.detail)
        elif self._session is not None:
            self._session.asks.settle(message)

    def _take_request(self, message: Request, size: int) -> None:
        self._choose(message, size)
        self.asked = True
        self.asked_or_left.set()

    def _choose(self, message: Request, size: int) -> None:
        if message.id in self._running:
            self._refuse(message.id, INVALID_REQUEST, f"a request with id {message.id!r} is already running")
        elif len(self._running) >= _RUNNING:
            self._refuse(message.id, INTERNAL_ERROR, f"{_RUNNING} requests are running: wait until one ends")
        elif message.method == "initialize":
            self._open(message)
        elif VERSION_KEY in meta_of(message.params):
            error = check_envelope(message.method, message.params)
            if error is not None:
                self.put(error_answer(message.id, error)[0])
                return
            self._start(message, enveloped_call(message.params, ANYBODY, self._core.session_map, self, size))
        elif self._session is not None:
            if self._opened.is_set() and message.method != "ping":
                self._standing.release()
            self._start(message, session_call(self._session, self, size))
        elif message.method == "ping":
            self.put(encode_response(message.id, {}))
        else:
            detail = f"{message.method[:64]!r} came before initialize: send initialize first"
            self._refuse(message.id, INVALID_REQUEST, detail)

    def _take_notification(self, message: Notification) -> None:
        if message.method == "notifications/cancelled":
            request_id: object = message.params.get("requestId")
            if isinstance(request_id, int | str) and not isinstance(request_id, bool) and request_id in self._running:
                self._running[request_id].cancel()
        elif message.method == "notifications/initialized":
            self._standing.release()
        elif message.method not in OWN_NOTIFICATIONS and self._session is not None and len(self._notes) < _NOTES:
            task = self._loop.create_task(self._core.pass_on(message, self._session))
            self._notes.add(task)
            task.add_done_callback(self._notes.discard)

    def _start(self, message: Request, call: ClientCall) -> None:
        task = self._running[message.id] = self._loop.create_task(self._run(message, call))
        # Not at the end of `_run`: a task that is cancelled in the turn in which it was created never starts.
        task.add_done_callback(lambda _: self._running.pop(message.id, None))

    async def _run(self, message: Request, call: ClientCall) -> None:
        # A cancelled request gets no answer (MCP, "Cancellation"): nothing is written then.
        if not call.modern and not self._opened.is_set():
            await self._opened.wait()
        frame, _ = await self._core.answer(message.id, message.method, message.params, call)
        self.put(frame)

    def _open(self, message: Request) -> None:
        if self._session is not None:
            self._refuse(message.id, INVALID_REQUEST, "this session is already initialized")
            return
        try:
            self._session = self._make(message.params)
        except RpcError as error:
            self.put(error_answer(message.id, error.error)[0])
        except MapUnknown as error:
            self._refuse(message.id, INVALID_REQUEST, error.message)
        else:
            self._opening = self._loop.create_task(self._greet(message, self._session))

    def _make(self, params: Mapping[str, Any]) -> McpSession:
        version, capabilities = check_greeting(params)
        token_map = self._core.maps.choose(params, self._core.session_map)
        return McpSession(
            version=version, capabilities=capabilities, principal=ANYBODY, token_map=token_map, stream=self._standing
        )

    async def _greet(self, message: Request, session: McpSession) -> None:
        frame, _ = await self._core.greet(message, session, None, alone=True)
        self.put(frame)
        self._opened.set()

    def _refuse(self, request_id: RequestId | None, code: int, message: str) -> None:
        self.put(error_answer(request_id, {"code": code, "message": message})[0])
