"""One MCP server behind a pipe, as a `Transport`.

Turns requests into lines for a process, and its lines into answers, pushes and questions, in the order of the pipe and
without a task of its own: the bytes that the loop reads settle the futures that callers wait for. A line that can't be
read fails the call that it would have answered, never the server. It knows no MCP methods except `ping` and
`notifications/cancelled`, and not who runs the process: this gateway (below) or its parent (`hosted.py`).
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol

import anyio
from structlog.typing import FilteringBoundLogger

from gateway.config.gateway_config import UpstreamConfig
from gateway.escape import escape_text
from gateway.protocol.lines import LineSplitter, LongLine
from gateway.protocol.mending import BrokenAnswer, mend_message, number_of, read_batch
from gateway.protocol.messages import (
    Failure,
    Malformed,
    Notification,
    Request,
    RequestId,
    Response,
    RpcMessage,
    encode_notification,
    is_json,
    parse_answer,
    parse_message,
)
from gateway.proxy.caller import Exchange
from gateway.proxy.results import WrittenIds
from gateway.proxy.transport.stdio.server_process import Child, Watchdog, run_child
from gateway.proxy.transport.transport_interface import (
    CANCELLED,
    NEVER_CANCELLED,
    LinkLost,
    NoAnswer,
    PeerError,
    Pending,
    ServerLog,
    ServerQuestions,
    Transport,
    Unfit,
    encode_or_refuse,
    too_long,
)

_NOTIFY_TIME: Final = 5.0
"""Seconds a notification waits for a server that does not read."""
_MOST_CANCELLATIONS: Final = 64
"""Cancellations that are written to a server that does not read; more would be no use."""
_LATE: Final = 1024
"""Abandoned requests whose late answers are still recognised, at most."""


class ProcessPipe(Protocol):
    """What lines for a process are written to."""

    @property
    def full(self) -> bool:
        """Whether `room` is clear; cheap enough to check for every call."""
        ...

    @property
    def room(self) -> asyncio.Event:
        """Clear while the process does not read what was written to it; set for good when it has ended."""
        ...

    def write(self, data: bytes) -> None:
        """Write these bytes, whether or not there is `room`. After the end they are dropped."""
        ...


class StdioTransport:
    """The conversation with one process."""

    def __init__(self, pushes: Exchange, *, line_bound: int, log: FilteringBoundLogger) -> None:
        """`talk_over` must be called before anything is sent."""
        self.closed = asyncio.Event()
        self.pipe: ProcessPipe
        self.first_number = 0
        """See `Transport.first_number`; requests are numbered from there as well."""
        self.server_log = ServerLog(log)
        self._pushes = pushes
        self._bound = line_bound
        self._questions = ServerQuestions(self._send, self.server_log)
        self._waiting: dict[RequestId, asyncio.Future[dict[str, Any]]] = {}
        self._given_up: dict[RequestId, Pending] = {}
        self._sent = 0
        self._cause = ""
        self._version = ""
        self._has_answered = False
        """Whether it has answered anything: words before a message are a greeting, later they may be quoted text."""
        self._unread, self._first_unread = 0, ""
        self._may_mean_notification = False
        """Whether a notification was sent since the last answer, so that an error without an id may be about it."""
        self._unread_cancellations = 0

    def talk_over(self, pipe: ProcessPipe) -> None:
        """Write to this pipe from now on."""
        self._loop = asyncio.get_running_loop()
        self.pipe = pipe

    def count_from(self, number: int) -> None:
        """Use request numbers and progress tokens above this number."""
        self.first_number = number

    @property
    def unread(self) -> str:
        """See `Transport.unread`."""
        if not self._unread:
            return ""
        lines = "a line that is" if self._unread == 1 else f"{self._unread} lines that are"
        return f"it wrote {lines} not JSON-RPC, the first: {self._first_unread!r}"

    def use_version(self, version: str) -> None:
        """See `Transport.use_version`. On a pipe the version decides whether there may be batches."""
        self._version = version

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        exchange: Pending | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        written: WrittenIds | None = None,
    ) -> dict[str, Any]:
        """See `Transport.request`. On a pipe nothing says which request a push belongs to."""
        self._sent += 1
        number = self.first_number + self._sent
        line = encode_or_refuse(number, method, params) + b"\n"
        if self.pipe.full or self._cause:
            await self._await_room()
        future: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._waiting[number] = future
        self.pipe.write(line)
        try:
            return await future
        except asyncio.CancelledError:
            if not future.cancelled():
                # It was settled at the same moment; asyncio would log an error that nobody retrieves.
                future.exception()
            elif method not in NEVER_CANCELLED:
                self._tell_cancelled(number)
                self._give_up(number, exchange)
            raise
        finally:
            del self._waiting[number]

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """See `Transport.notify`."""
        self._may_mean_notification = True
        with anyio.move_on_after(_NOTIFY_TIME) as waiting:
            await self._send(encode_notification(method, params))
        if waiting.cancelled_caught:
            self.server_log.warning("notification dropped: upstream does not read its input", method=method)

    def take(self, data: bytes) -> None:
        """Handle a line of the process."""
        message = parse_answer(data)
        if isinstance(message, Response):
            self._settle(message.id, message.result)
        elif isinstance(message, Malformed):
            self._take_malformed(data, message)
        else:
            self._take_other(message)

    def take_question(self, data: bytes, exchange: Exchange) -> None:
        """Handle a line of the process that is a request; `exchange` answers it."""
        message = parse_message(data)
        if isinstance(message, Request):
            self._questions.take(message, exchange)

    def warn_of_length(self, length: int) -> None:
        """Log that a line of this many bytes was too long to be kept."""
        self.server_log.warning("upstream sent a message over the limit", bytes=length, limit=self._bound)

    def fail_too_long(self, number: RequestId) -> None:
        """Fail this request: its answer was too long."""
        self._settle(number, Unfit(too_long(self._bound)))

    def lose(self, cause: str) -> None:
        """Fail all requests: the process has exited, or closed its input or output."""
        self._cause = cause
        self._questions.close()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(LinkLost(cause))
        self.closed.set()

    async def _await_room(self) -> None:
        """Wait until the process reads. Raises `LinkLost`: the process is gone; nothing was sent."""
        while not self.pipe.room.is_set():
            await self.pipe.room.wait()
        if self.closed.is_set():
            raise LinkLost(self._cause, sent=False)

    async def _send(self, message: bytes) -> None:
        try:
            await self._await_room()
        except LinkLost:
            return
        self.pipe.write(message + b"\n")

    def _give_up(self, number: int, exchange: Pending | None) -> None:
        if exchange is not None:
            exchange.given_up()
            if len(self._given_up) < _LATE:
                self._given_up[number] = exchange

    def _tell_cancelled(self, number: int) -> None:
        self._unread_cancellations = 0 if self.pipe.room.is_set() else self._unread_cancellations + 1
        if self._unread_cancellations > _MOST_CANCELLATIONS:
            return
        self._may_mean_notification = True
        params = {"requestId": number, "reason": "nobody waits for the answer any more"}
        self.pipe.write(encode_notification(CANCELLED, params) + b"\n")

    def _take_other(self, message: RpcMessage) -> None:
        if isinstance(message, Notification):
            if message.method == CANCELLED:
                self._questions.take_back(message.params.get("requestId"))
            else:
                self._pushes.notified(message.method, message.params)
        elif isinstance(message, Request):
            self._questions.take(message, self._pushes)
        elif isinstance(message, Response):
            self._settle(message.id, message.result)
        else:
            self._take_failure(message)

    def _take_failure(self, failure: Failure) -> None:
        if failure.id is None and len(self._waiting) == 1 and not self._may_mean_notification:
            # A server that could not read a request does not know its id; there is only one that it can mean.
            self._settle(next(iter(self._waiting)), PeerError(failure.error))
        elif failure.id is None:
            words = escape_text(str(failure.error.get("message", "")), 200)
            self.server_log.warning("upstream could not read a message from the gateway", error=words)
        else:
            self._settle(failure.id, PeerError(failure.error))

    def _take_malformed(self, data: bytes, refused: Malformed) -> None:
        if not data.strip():
            return
        shown = escape_text(data[:400].decode("utf-8", "backslashreplace"), 200)
        batch = read_batch(data, self._version)
        for message in batch or (mend_message(data, refused, after_words=not self._has_answered),):
            if isinstance(message, BrokenAnswer):
                self.server_log.warning("upstream sent an answer that can't be used", line=shown)
                self._settle(message.id, NoAnswer(message.detail))
            elif isinstance(message, Malformed):
                self.server_log.warning("upstream printed a line that is not a JSON-RPC message", line=shown)
                self._note_unread(shown)
                if message.id is not None:
                    self._questions.refuse(message.id, message.code, message.detail)
            else:
                if not batch:
                    self.server_log.warning("upstream sent a message that is not strictly valid JSON", line=shown)
                self._take_other(message)

    def _note_unread(self, shown: str) -> None:
        if not self._has_answered:
            self._unread += 1
            self._first_unread = self._first_unread or shown

    def _settle(self, number: RequestId, outcome: dict[str, Any] | Exception) -> None:
        """Give the outcome to the caller that waits for it. A late one only marks an abandoned request as answered."""
        self._may_mean_notification, self._has_answered = False, True
        if type(number) is not int and (meant := number_of(number)) is not None:
            number = meant
        future = self._waiting.get(number)
        if (late := self._given_up.pop(number, None)) is not None:
            late.answered()
        if future is None or future.done():
            return
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


class _Reader:
    def __init__(self, transport: StdioTransport, line_bound: int) -> None:
        self._transport = transport
        self._splitter = LineSplitter(line_bound)

    def read(self, data: bytes) -> None:
        for line in self._splitter.feed(data):
            if isinstance(line, LongLine):
                self._transport.warn_of_length(line.length)
                self._fail(line)
            else:
                self._transport.take(line)
        if data[-1:] != b"\n" and (over := self._splitter.over) is not None:
            # The rest of the line must be read to get to the next one, but no request waits for it any more.
            self._fail(over)

    def lose(self, cause: str) -> None:
        for line in self._splitter.close():
            if isinstance(line, bytes) and is_json(line):
                # Only its line end is missing.
                self._transport.take(line)
            else:
                self._transport.server_log.warning("upstream's output ended in the middle of a line")
        self._transport.lose(cause)

    def _fail(self, line: LongLine) -> None:
        if (number := line.answered_id()) is not None:
            self._transport.fail_too_long(number)


@asynccontextmanager
async def open_stdio(
    config: UpstreamConfig,
    pushes: Exchange,
    *,
    line_bound: int,
    log: FilteringBoundLogger,
    watchdog: Watchdog | None = None,
) -> AsyncGenerator[Transport]:
    """Run the command and talk to it; leaving the context ends the process, whatever it does.

    Args:
        config: an upstream whose `command` is set.
        pushes: takes and answers what the server sends of its own accord.
        line_bound: longest message that is read, in bytes.
        log: receives the child's standard error, one event for each line.
        watchdog: ends the process if the gateway itself can't.

    Raises:
        OSError: the program can't be started.
    """
    transport = StdioTransport(pushes, line_bound=line_bound, log=log)
    reader = _Reader(transport, line_bound)
    child = Child(reader.read, reader.lose, log, transport.server_log)
    transport.talk_over(child)
    async with run_child(config, child, watchdog):
        yield transport
