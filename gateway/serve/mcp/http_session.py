"""One session of the handshake era over HTTP: its requests, its streams, its end.

Implements `ClientSession` for a client that sends each message as a POST and reads what we have to say from the answers
and from one GET stream. Requests run in tasks of their own, because a client may lose the connection and come back for
the answer. It reads no HTTP.
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
        self.last_used = asyncio.get_running_loop().time()
        self._core = core
        self._dropped = dropped
        self._number = 0
        self._streams: dict[int, EventStream] = {0: self.standing}
        self._running: dict[RequestId, asyncio.Task[None]] = {}
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
        unread = len(self._streams) > 1 and asyncio.get_running_loop().time() - self.last_used < _COMES_BACK
        return bool(self._running) or unread

    def touch(self) -> None:
        """Its client sent something."""
        self.times_heard += 1
        self.last_used = asyncio.get_running_loop().time()

    def start(self, messages: Sequence[Request], request: HttpRequest) -> tuple[EventStream, list[asyncio.Task[None]]]:
        """Run the requests of a POST; their stream carries what is pushed meanwhile, and ends with the last answer.

        Cancelling a task ends its request with an error.

        Raises:
            RpcError: a request with that id is running, or too many are; none is begun.
        """
        ids: set[RequestId] = set()
        for message in messages:
            if message.id in self._running or message.id in ids:
                raise RpcError({"code": INVALID_REQUEST, "message": f"a request with id {message.id!r} is running"})
            ids.add(message.id)
        if len(self._running) + len(ids) > _RUNNING:
            raise RpcError({"code": INTERNAL_ERROR, "message": f"{_RUNNING} requests are running: wait for one"})
        self._number += 1
        stream = EventStream(self._number, self._history, self._dropped, answers=len(ids))
        self._streams[self._number] = stream
        return stream, [self._begin(message, stream, request) for message in messages]

    def _begin(self, message: Request, stream: EventStream, request: HttpRequest) -> asyncio.Task[None]:
        task = self._running[message.id] = asyncio.get_running_loop().create_task(self._run(message, stream, request))
        task.add_done_callback(lambda ended: self._over(message.id, stream, ended))
        return task

    def cancel(self, request_id: object) -> None:
        """Stop a request, if it runs."""
        task = self._running.get(request_id) if isinstance(request_id, int | str) else None
        if task is not None and not isinstance(request_id, bool):
            task.cancel()

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
        self.last_used = asyncio.get_running_loop().time()
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
        """Everything stops: running requests, streams, questions."""
        self.asks.close()
        for task in (*self._running.values(), *self._notes):
            task.cancel()
        for stream in self._streams.values():
            stream.finish()
        self._core.servers.session_ended(self)

    async def _run(self, message: Request, stream: EventStream, request: HttpRequest) -> None:
        call = session_call(self, stream, request.size, request.headers, request.token_map)
        try:
            frame, _ = await self._core.answer(message.id, message.method, message.params, call)
        except asyncio.CancelledError:
            frame = _cancelled(message.id)
        stream.answer(frame)

    def _over(self, request_id: RequestId, stream: EventStream, task: asyncio.Task[None]) -> None:
        del self._running[request_id]
        if task.cancelled():
            # It was in the turn in which it came, and never began.
            stream.answer(_cancelled(request_id))
        if not stream.attached:
            self.release(stream)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._notes.add(task)
        task.add_done_callback(self._notes.discard)


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
