"""One session of the handshake era over HTTP: its requests, its streams, its end.

Implements `ClientSession` for a client that sends each message as a POST and reads what we have to say from the answers
and from one GET stream. A request goes on where its client loses the connection, if that may come back for the answer.
It reads no HTTP.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.errors import RpcError
from gateway.protocol.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    Failure,
    Notification,
    Request,
    RequestId,
    Response,
)
from gateway.proxy.caller import Principal
from gateway.proxy.shares import Shares
from gateway.serve.mcp.core import CANCELLED, OWN_NOTIFICATIONS, Core, error_answer
from gateway.serve.mcp.event_log import EventLog
from gateway.serve.mcp.events import EventStream, History
from gateway.serve.mcp.http import HttpRequest
from gateway.serve.mcp.outbox import Stream
from gateway.serve.mcp.sessions import Session, session_call
from leaf_sdk.vocab import TokenMap

_RUNNING: Final = 1024
_ORPHANS: Final = 64
"""Streams with an unread answer that wait for their client to come back."""
_ORPHAN_BYTES: Final = 4 * 1024 * 1024
"""Bytes on all of them, besides the newest: what is older is forgotten."""
_NOTES: Final = 256
"""Notifications of a client that are being passed on."""
_COMES_BACK: Final = 2.0
"""Seconds in which a client comes back for an answer that it has not read, if it is still there."""
_GET_TIME: Final = 10.0
"""Seconds to wait for a client's GET stream before it counts as one that can't be asked."""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Bounds of the sessions of one gateway."""

    body_bytes: int
    sessions: Shares
    idle: float
    """Seconds without use after which a session ends."""
    close_after: float | None
    """Seconds after which the stream of a request is closed, for its client to come back; None: it stays open."""


@dataclass(slots=True, eq=False)
class _Running:
    """A request of a client that was taken up."""

    cancelled: bool = False
    _task: asyncio.Task[Any] | None = None
    """In which it runs; None: it does not yet, or is answered."""

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """It runs in this task."""
        self._task = asyncio.current_task(loop)

    def end(self) -> None:
        """It is answered: what ends the task from now on is not for it."""
        self._task = None

    def cancel(self) -> None:
        """Its client wants no answer any more. What ends it may take a while, and is not ended by saying so twice."""
        if self._task is not None and not self.cancelled:
            self._task.cancel()
        self.cancelled = True

    def take_back(self) -> bool:
        """The task goes on, with the answer that says so; False: somebody else has cancelled it as well, or alone."""
        return self.cancelled and self._task is not None and self._task.uncancel() == 0


class HttpSession(Session):
    """A client of the handshake era over HTTP."""

    def __init__(
        self,
        core: Core,
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

        `log`: has its events for other replicas as well.
        """
        self._history = History(log)
        self.standing = EventStream(0, self._history, dropped)
        """What belongs to no request; read by GET."""
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
        self._running: dict[RequestId, _Running] = {}
        self._notes: set[asyncio.Task[None]] = set()
        self._listened = asyncio.Event()

    @property
    def idle_since(self) -> float | None:
        """The loop's time since when nobody has used it; None: it is in use."""
        busy = self._running or any(stream.attached for stream in self._streams.values())
        return None if busy else self.last_used

    @property
    def unfinished(self) -> bool:
        """Whether a request runs, or has an answer that the client, whose connection broke, may be about to fetch."""
        unread = len(self._streams) > 1 and self._loop.time() - self.last_used < _COMES_BACK
        return bool(self._running) or unread

    def touch(self) -> None:
        """Its client sent something."""
        self.times_heard += 1
        self.last_used = self._loop.time()

    def admit(self, messages: Sequence[Request]) -> None:
        """Take up the requests of a POST, each of which is to be given its `answer`; then `dismiss` them.

        Raises:
            RpcError: a request with that id is running, or too many are; none is taken up.
        """
        if len(self._running) + len(messages) > _RUNNING:
            raise RpcError({"code": INTERNAL_ERROR, "message": f"{_RUNNING} requests are running: wait for one"})
        for before, message in enumerate(messages):
            if message.id in self._running:
                self.dismiss(messages[:before])
                raise RpcError({"code": INVALID_REQUEST, "message": f"a request with id {message.id!r} is running"})
            self._running[message.id] = _Running()

    async def answer(self, message: Request, request: HttpRequest, stream: Stream) -> bytes:
        """Run a request that was taken up, in this task; `stream` carries what is pushed meanwhile."""
        running = self._running[message.id]
        if running.cancelled:
            # It was in the turn in which it came, and never began.
            return _cancelled(message.id)
        call = session_call(self, stream, request.size, request.headers, request.token_map)
        running.begin(self._loop)
        try:
            frame, _ = await self._core.answer(message.id, message.method, message.params, call)
        except asyncio.CancelledError:
            if not running.take_back():
                raise
            return _cancelled(message.id)
        finally:
            running.end()
        return frame

    def dismiss(self, messages: Sequence[Request]) -> None:
        """The POST of these requests is over."""
        for message in messages:
            self._running.pop(message.id, None)
        self.last_used = self._loop.time()

    def open_stream(self) -> EventStream:
        """A stream for what belongs to a POST."""
        self._number += 1
        stream = self._streams[self._number] = EventStream(self._number, self._history, self._dropped)
        return stream

    def cancel(self, request_id: object) -> None:
        """Stop a request, if it runs."""
        running = self._running.get(request_id) if isinstance(request_id, int | str) else None
        if running is not None and not isinstance(request_id, bool):
            running.cancel()

    def take(self, message: Notification | Response | Failure) -> None:
        """What the client told us: an answer to a request of ours, a cancellation, or news for the servers."""
        if isinstance(message, Response | Failure):
            self.asks.settle(message)
        elif message.method == "notifications/cancelled":
            self.cancel(message.params.get("requestId"))
        elif message.method not in OWN_NOTIFICATIONS and len(self._notes) < _NOTES:
            self._spawn(self._core.pass_on(message, self))

    def find(self, event_id: str) -> tuple[EventStream, int] | None:
        """The stream of an event, and the event's number in it; None: it can't be taken up any more."""
        if (place := place_of(event_id)) is None:
            return None
        number, after = place
        stream = self._streams.get(number)
        if stream is None and self._history.after(number, after):
            stream = EventStream(number, self._history, self._dropped)
            stream.finish()
        return None if stream is None else (stream, after)

    def listening(self) -> None:
        """The client opened its GET stream."""
        self._listened.set()

    def release(self, stream: EventStream) -> None:
        """No response carries the stream any more."""
        self.last_used = self._loop.time()
        if stream is self.standing or not stream.finished:
            return
        if not stream.waiting:
            # What was written can still be asked for again: the history has it.
            self._streams.pop(stream.number, None)
            return
        orphans = [each for each in self._streams.values() if each.finished and not each.attached]
        size = 0
        for younger, orphan in enumerate(reversed(orphans)):
            size += orphan.size if younger else 0
            if younger >= _ORPHANS or size > _ORPHAN_BYTES:
                del self._streams[orphan.number]

    async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """A request to the client, outside of any request of its own: it has to read its GET stream."""
        try:
            async with asyncio.timeout(_GET_TIME):
                await self._listened.wait()
        except TimeoutError:
            message = f"the client reads no stream by which it could be asked {method!r}"
            raise RpcError({"code": INTERNAL_ERROR, "message": message}) from None
        return await super().asked(method, params)

    def end(self) -> None:
        """Everything stops: running requests, whose answers end their streams, what belongs to none, questions."""
        self.asks.close()
        for each in (*self._running.values(), *self._notes):
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
        """`after`: as of `EventStream.attach`."""
        self._session = session
        self.stream = stream
        self._reader = stream.attach(after)
        self._closing: asyncio.TimerHandle | None = None

    def close_after(self, seconds: float, retry_ms: int) -> None:
        """Close the response early, for its client to come back."""
        self._reader.prime(retry_ms)
        self._closing = asyncio.get_running_loop().call_later(seconds, self._reader.close)

    def finish(self, frame: bytes | None) -> None:
        """The last frame; it waits for its client where that is gone."""
        self.stream.finish(frame)
        if not self.stream.attached:
            self._session.release(self.stream)

    @property
    def ready(self) -> asyncio.Event:
        """Set when there is something to take, or when it is over."""
        return self._reader.ready

    @property
    def over(self) -> bool:
        """Whether this response ends."""
        return self._reader.over

    def take(self) -> bytes:
        """The events that wait."""
        return self._reader.take()

    def leave(self) -> bool:
        """Its client is gone. It may come back only where it has the id of an event."""
        self._reader.close()
        return self._reader.resumable

    def detach(self) -> None:
        """The response is over."""
        if self._closing is not None:
            self._closing.cancel()
        self.stream.detach(self._reader)
        self._session.release(self.stream)


def _cancelled(request_id: RequestId) -> bytes:
    """The stream of a request ends with an answer, and with nothing else."""
    frame, _ = error_answer(request_id, {"code": CANCELLED, "message": "the request was cancelled"})
    return frame


def place_of(event_id: str) -> tuple[int, int] | None:
    """The stream and the number that an event's id names; None: it is none."""
    stream, _, number = event_id.partition("-")
    return (int(stream), int(number)) if _is_number(stream) and _is_number(number) else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 15
