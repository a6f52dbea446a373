"""One session of the handshake era over HTTP: its requests, its streams, its end.

Implements `ClientSession` for a client that sends each message as a POST and reads our messages from the answers and
from one GET stream. A request whose client loses its connection goes on if the client can come back for the answer. It
reads no HTTP.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from gateway.errors import rpc_error
from gateway.protocol.mending import VERSIONS, split_batch
from gateway.protocol.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    Failure,
    Malformed,
    Notification,
    Request,
    RequestId,
    Response,
    RpcMessage,
    parse_message,
)
from gateway.proxy.caller import Principal
from gateway.proxy.shares import Shares
from gateway.serve.mcp.event_streams import EventHistory, EventLog, EventStream
from gateway.serve.mcp.http import HttpRequest
from gateway.serve.mcp.methods import CANCELLED, OWN_NOTIFICATIONS, McpCore, error_answer
from gateway.serve.mcp.outbox import Stream
from gateway.serve.mcp.sessions import McpSession, session_call
from leaf_sdk.vocab import TokenMap

# Only version 2025-03-26 has batches (`protocol/mending.py`); a batch with an unreadable message is refused as a whole.


class PostMessages(NamedTuple):
    """The messages of a POST."""

    requests: Sequence[Request] = ()
    one_way: Sequence[Notification | Response | Failure] = ()
    """The messages that need no answer."""
    fault: Malformed | None = None
    """The first message that can't be read; None: all can."""
    is_batch: bool = False


def read_post(body: bytes, version: str) -> PostMessages:
    """Read a body. `version`: its session's; empty if the request names no session."""
    parts = split_batch(body) if version in VERSIONS else None
    if not parts:
        return _one(parse_message(body))
    each = [_one(parse_message(part)) for part in parts]
    return PostMessages(
        [request for one in each for request in one.requests],
        [message for one in each for message in one.one_way],
        next((one.fault for one in each if one.fault is not None), None),
        is_batch=True,
    )


def _one(message: RpcMessage | Malformed) -> PostMessages:
    if isinstance(message, Request):
        return PostMessages((message,))
    return PostMessages(fault=message) if isinstance(message, Malformed) else PostMessages(one_way=(message,))


_RUNNING: Final = 1024
_ORPHANS: Final = 64
"""The most streams with an unread answer that wait for their client to come back."""
_ORPHAN_BYTES: Final = 4 * 1024 * 1024
"""The most bytes on all of them except the newest; beyond it the oldest are forgotten."""
_NOTES: Final = 256
"""The most notifications from a client that are being passed on at the same time."""
_COMES_BACK: Final = 2.0
"""Seconds in which a client, if it still exists, comes back for an answer that it has not read."""
_GET_TIME: Final = 10.0
"""Seconds to wait for a client to open its GET stream before the client counts as one that can't be asked."""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Bounds of the sessions of one gateway."""

    body_bytes: int
    sessions: Shares
    idle: float
    """Seconds without use after which a session ends."""
    close_after: float | None
    """Seconds after which a request's stream is closed, so that its client comes back; None: it stays open."""


@dataclass(slots=True, eq=False)
class AdmittedRequest:
    """A request of a client that runs, or is about to."""

    message: Request
    cancelled: bool = False
    _task: asyncio.Task[Any] | None = None
    """The task in which it runs; None: it has not started, or is answered."""

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Record that it runs in the current task."""
        self._task = asyncio.current_task(loop)

    def end(self) -> None:
        """Record that it is answered: later cancellations of the task are not meant for it."""
        self._task = None

    def cancel(self) -> None:
        """Cancel it for its client. A second call does nothing, so that it can't interrupt the first one's clean-up."""
        if self._task is not None and not self.cancelled:
            self._task.cancel()
        self.cancelled = True

    def take_back(self) -> bool:
        """Withdraw the client's cancellation, so that the task can go on and answer that the request was cancelled.

        Returns False if the cancellation was not, or not only, the client's.
        """
        return self.cancelled and self._task is not None and self._task.uncancel() == 0


class HttpSession(McpSession):
    """A client of the handshake era over HTTP."""

    def __init__(
        self,
        core: McpCore,
        *,
        session_id: str,
        version: str,
        capabilities: Mapping[str, Any],
        principal: Principal,
        token_map: TokenMap | None,
        dropped: Callable[[], None],
        log: EventLog | None = None,
    ) -> None:
        """`dropped` is called for every notification that the client loses because it does not read.

        `log`: also gets the session's events, for other replicas.
        """
        self._history = EventHistory(log)
        self.standing = EventStream(0, self._history, dropped)
        """The stream for what belongs to no request; read by GET."""
        super().__init__(
            version=version,
            capabilities=capabilities,
            principal=principal,
            token_map=token_map,
            stream=self.standing,
            session_id=session_id,
        )
        self._loop = asyncio.get_running_loop()
        self.last_used = self._loop.time()
        self._core = core
        self._dropped = dropped
        self._number = 0
        self._streams: dict[int, EventStream] = {0: self.standing}
        self._running: set[AdmittedRequest] = set()
        self._notes: set[asyncio.Task[None]] = set()
        self._listened = asyncio.Event()

    @property
    def idle_since(self) -> float | None:
        """The loop's time since when the session has not been used; None: it is in use."""
        busy = self._running or any(stream.attached for stream in self._streams.values())
        return None if busy else self.last_used

    @property
    def unfinished(self) -> bool:
        """Whether a request runs, or a client whose connection broke may be about to fetch an answer."""
        unread = len(self._streams) > 1 and self._loop.time() - self.last_used < _COMES_BACK
        return bool(self._running) or unread

    def touch(self) -> None:
        """Record that the client sent something."""
        self.times_heard += 1
        self.last_used = self._loop.time()

    def admit(self, messages: Sequence[Request]) -> Sequence[AdmittedRequest]:
        """Admit the requests of a POST. Call `answer` for each of them, and in the end `dismiss` for all.

        Another POST's may have the same id: claude.ai numbers each request 1.

        Raises:
            RpcError: two of them have one id, or too many are running; none is admitted.
        """
        if len(self._running) + len(messages) > _RUNNING:
            raise rpc_error(INTERNAL_ERROR, f"{_RUNNING} requests are running: wait until one ends")
        if len(messages) > 1 and len({message.id for message in messages}) < len(messages):
            raise rpc_error(INVALID_REQUEST, "two requests of the batch have the same id")
        admitted = list(map(AdmittedRequest, messages))
        for each in admitted:
            self._running.add(each)
        return admitted

    def running(self, request_id: RequestId) -> Sequence[AdmittedRequest]:
        """The requests with this id that run."""
        return [each for each in self._running if each.message.id == request_id]

    async def answer(self, admitted: AdmittedRequest, request: HttpRequest, stream: Stream) -> bytes:
        """Run an admitted request in the current task. `stream` carries what is pushed meanwhile."""
        message = admitted.message
        if admitted.cancelled:
            # It was cancelled in the turn in which it came, before it started.
            return _cancelled(message.id)
        call = session_call(self, stream, request.size, request.headers, request.token_map, request.principal)
        admitted.begin(self._loop)
        try:
            frame, _ = await self._core.answer(message.id, message.method, message.params, call)
        except asyncio.CancelledError:
            if not admitted.take_back():
                raise
            return _cancelled(message.id)
        finally:
            admitted.end()
        return frame

    def dismiss(self, admitted: Sequence[AdmittedRequest]) -> None:
        """Record that the POST of these requests is over."""
        for each in admitted:
            self._running.discard(each)
        self.last_used = self._loop.time()

    def open_stream(self) -> EventStream:
        """Open a stream for what belongs to a POST."""
        self._number += 1
        stream = self._streams[self._number] = EventStream(self._number, self._history, self._dropped)
        return stream

    def cancel(self, request_id: object) -> None:
        """Cancel a request, if it runs. Which one of several with this id is meant can't be told."""
        if isinstance(request_id, int | str) and not isinstance(request_id, bool):
            same = self.running(request_id)
            if len(same) == 1:
                same[0].cancel()

    def take(self, message: Notification | Response | Failure) -> None:
        """Take a client's message that is not a request: an answer to one of ours, a cancellation, or a notification
        for the servers.
        """
        if isinstance(message, Response | Failure):
            self.asks.settle(message)
        elif message.method == "notifications/cancelled":
            self.cancel(message.params.get("requestId"))
        elif message.method not in OWN_NOTIFICATIONS and len(self._notes) < _NOTES:
            self._spawn(self._core.pass_on(message, self))

    def find(self, event_id: str) -> tuple[EventStream, int] | None:
        """The stream of an event, and the event's number in it; None: the stream can't be resumed any more."""
        if (place := place_of(event_id)) is None:
            return None
        number, after = place
        stream = self._streams.get(number)
        if stream is None and self._history.after(number, after):
            stream = EventStream(number, self._history, self._dropped)
            stream.finish()
        return None if stream is None else (stream, after)

    def listening(self) -> None:
        """Record that the client opened its GET stream."""
        self._listened.set()

    def release(self, stream: EventStream) -> None:
        """Record that no response carries the stream any more, and forget streams that are not needed."""
        self.last_used = self._loop.time()
        if stream is self.standing or not stream.finished:
            return
        if not stream.waiting:
            # The client can still ask again for what was written: the history has it.
            self._streams.pop(stream.number, None)
            return
        orphans = [each for each in self._streams.values() if each.finished and not each.attached]
        size = 0
        for younger, orphan in enumerate(reversed(orphans)):
            size += orphan.size if younger else 0
            if younger >= _ORPHANS or size > _ORPHAN_BYTES:
                del self._streams[orphan.number]

    async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send the client a request, outside of any request of its own; it must read its GET stream for that."""
        try:
            async with asyncio.timeout(_GET_TIME):
                await self._listened.wait()
        except TimeoutError:
            message = f"the client can't be asked {method!r}: it has not opened its GET stream"
            raise rpc_error(INTERNAL_ERROR, message) from None
        return await super().asked(method, params)

    def end(self) -> None:
        """Stop everything: questions to the client, running requests, whose answers end their streams, and the rest."""
        self.asks.close()
        for each in (*self._running, *self._notes):
            each.cancel()
        self.standing.finish()
        self._core.servers.session_ended(self)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._notes.add(task)
        task.add_done_callback(self._notes.discard)


class CarriedStream:
    """A stream of a session while one response carries it."""

    def __init__(self, session: HttpSession, stream: EventStream, after: int | None = None) -> None:
        """`after`: see `EventStream.attach`."""
        self._session = session
        self.stream = stream
        self._reader = stream.attach(after)
        self._closing: asyncio.TimerHandle | None = None

    def close_after(self, seconds: float, retry_ms: int) -> None:
        """Close the response after `seconds`; the client is to come back for the rest."""
        self._reader.prime(retry_ms)
        self._closing = asyncio.get_running_loop().call_later(seconds, self._reader.close)

    def finish(self, frame: bytes | None) -> None:
        """End the stream with its last frame, which waits if the client is gone."""
        self.stream.finish(frame)
        if not self.stream.attached:
            self._session.release(self.stream)

    @property
    def ready(self) -> asyncio.Event:
        """Set when there is something to take, or when the response is over."""
        return self._reader.ready

    @property
    def over(self) -> bool:
        """Whether this response ends."""
        return self._reader.over

    def take(self) -> bytes:
        """Take the waiting events."""
        return self._reader.take()

    def leave(self) -> bool:
        """Record that the client is gone. Returns whether it can come back, which takes the id of an event."""
        self._reader.close()
        return self._reader.resumable

    def detach(self) -> None:
        """Detach the stream from the response, which is over."""
        if self._closing is not None:
            self._closing.cancel()
        self.stream.detach(self._reader)
        self._session.release(self.stream)


def _cancelled(request_id: RequestId) -> bytes:
    """The answer to a cancelled request, whose stream must end with an answer."""
    frame, _ = error_answer(request_id, {"code": CANCELLED, "message": "the request was cancelled"})
    return frame


def place_of(event_id: str) -> tuple[int, int] | None:
    """The stream and the number that an event's id names; None if it is not an event's id."""
    stream, _, number = event_id.partition("-")
    return (int(stream), int(number)) if _is_number(stream) and _is_number(number) else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 15
