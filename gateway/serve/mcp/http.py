"""What MCP over HTTP shares between both eras: reading a request, answering it at once or as a stream of events.

Plain ASGI, so that no call pays for framework objects. Turns a scope into an `HttpRequest`, a body into bytes within a
bound, and frames into JSON or server-sent events. It knows no method.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import Any, Final, Protocol, Self

import anyio
from starlette.types import Receive, Scope, Send

from gateway.deadlines import Deadline, Deadlines
from gateway.errors import RequestInvalid
from gateway.protocol.messages import INVALID_REQUEST
from gateway.proxy.caller import Principal
from gateway.serve.http.error_answers import RETRY_SOON
from gateway.serve.http.middleware import LATE
from gateway.serve.http.request_parts import check_values, media_type
from gateway.serve.mcp.methods import error_answer
from gateway.serve.mcp.outbox import Stream
from leaf_sdk.vocab import TokenMap

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
SESSION_HEADER: Final = "mcp-session-id"
RESUME_HEADER: Final = "last-event-id"
PING: Final = 15.0
"""Seconds of silence after which a stream sends a ping."""
_LOOK: Final = 0.1
"""Seconds that a request may take before we check whether its client is still connected."""
RETRY_AFTER: Final = tuple((name.encode(), value.encode()) for name, value in RETRY_SOON.items())
"""Header of a refusal that is only temporary."""
STOPPING: Final = "the gateway is stopping; try again"
_PING_FRAME: Final = b": ping\n\n"
_JSON_TYPE: Final = (b"content-type", b"application/json")
_STREAM_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]

Extra = Iterable[tuple[bytes, bytes]]


class Rejected(Exception):
    """The refusal of a request: an HTTP status, and a message for the client."""

    def __init__(self, status: int, message: str, *, headers: Extra = ()) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers


class ClientGone(Exception):
    """The client has disconnected: nobody is left to answer."""


@dataclass(slots=True, eq=False)
class HttpRequest:
    """One HTTP request."""

    method: str
    headers: dict[str, str]
    """Values by lower-case name; of a header that came more than once, the first."""
    repeated: set[str]
    principal: Principal
    token_map: TokenMap | None
    """The map that the `X-Codec-Map` header names; None: there is no such header."""
    scope: Scope
    receive: Receive
    send: Send
    size: int = 0
    """Bytes of the body, once it has been read."""


def refuse_late(request: HttpRequest) -> None:
    """Raise `Rejected` if the request came after a stop had begun; call this where it would start something."""
    if LATE in request.scope:
        raise Rejected(503, STOPPING, headers=(*RETRY_AFTER, (b"connection", b"close")))


@lru_cache(maxsize=256)
def accepts(accept: str, *media_types: str) -> bool:
    """Whether an `Accept` header names all these media types, possibly by wildcards (RFC 9110, 12.5.1).

    `accept`: empty: a client that sends none takes any.
    """
    named = {part.split(";")[0].strip().lower() for part in (accept or "*/*").split(",")}
    return all(not named.isdisjoint((each, each.split("/")[0] + "/*", "*/*")) for each in media_types)


def read_message_body(request: HttpRequest, bound: int) -> Awaitable[bytes]:
    """The body of a POST of Streamable HTTP.

    Raises:
        Rejected: the client does not accept both kinds of answer; or as `read_json_body`.
        ClientGone: the client left before the end of the body.
    """
    if not accepts(request.headers.get("accept", ""), JSON, EVENTS):
        raise Rejected(406, f"the Accept header must name {JSON} and {EVENTS}")
    return read_json_body(request, bound)


async def read_json_body(request: HttpRequest, bound: int) -> bytes:
    """The body of a POST.

    Raises:
        Rejected: its type is not JSON, it is over the bound, or it holds too many values.
        ClientGone: the client left before the end of the body.
    """
    if (kind := request.headers.get("content-type", "")) != JSON and media_type(kind) != JSON:
        raise Rejected(415, f"the Content-Type header must be {JSON}")
    announced = request.headers.get("content-length", "")
    if len(announced) > 15 or (announced.isdecimal() and int(announced) > bound):
        raise Rejected(413, f"the body is over the limit of {bound} bytes (limits.body_bytes)")
    message = await request.receive()
    body: bytes = message.get("body", b"")
    if message.get("more_body") or len(body) > bound or message["type"] != "http.request":
        body = await _read_rest(request.receive, message, bound)
    request.size = len(body)
    try:
        check_values(body)
    except RequestInvalid as error:
        raise Rejected(400, error.message) from None
    return body


async def _read_rest(receive: Receive, message: Any, bound: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        if message["type"] != "http.request":
            raise ClientGone
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > bound:
            raise Rejected(413, f"the body is over the limit of {bound} bytes (limits.body_bytes)")
        parts.append(part)
        if not message.get("more_body"):
            return b"".join(parts)
        message = await receive()


async def send_frame(send: Send, status: int, frame: bytes, extra: Extra = ()) -> None:
    """Answer with one JSON frame."""
    length = (b"content-length", str(len(frame)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [_JSON_TYPE, length, *extra]})
    await send({"type": "http.response.body", "body": frame})


async def send_empty(send: Send, status: int, extra: Extra = ()) -> None:
    """Answer without a body."""
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0"), *extra]})
    await send({"type": "http.response.body", "body": b""})


async def send_rejection(send: Send, rejected: Rejected) -> None:
    """Answer with what is wrong, without an id, because no JSON-RPC request was read."""
    frame, _ = error_answer(None, {"code": INVALID_REQUEST, "message": rejected.message})
    await send_frame(send, rejected.status, frame, rejected.headers)


class Events(Protocol):
    """The server-sent events for one response."""

    @property
    def ready(self) -> asyncio.Event:
        """Set when there is something to take, or when the response is over."""
        ...

    @property
    def over(self) -> bool:
        """Whether no more events will come."""
        ...

    def take(self) -> bytes:
        """Take the waiting events."""
        ...


async def write_events(send: Send, events: Events) -> None:
    """Write events until they are over. A client that does not read slows this down until its connection ends."""
    await send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
    while True:
        events.ready.clear()
        data = events.take()
        if not data:
            if events.over:
                break
            with anyio.move_on_after(PING) as silence:
                await events.ready.wait()
            if not silence.cancelled_caught:
                continue
            data = _PING_FRAME
        await send({"type": "http.response.body", "body": data, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


class ClientWatch(Deadline):
    """Watches a request that takes long: notices when its client leaves, and when it is time for a sign of life.

    A quick answer costs one deadline and nothing else. `stop` must be called in the end.
    """

    __slots__ = ("_deadlines", "_looking", "_receive")

    def __init__(self, receive: Receive, deadlines: Deadlines) -> None:
        """Start watching now."""
        self._receive = receive
        self._looking: asyncio.Task[None] | None = None
        self._deadlines = deadlines
        deadlines.set(self, _LOOK)

    def left(self) -> None:
        """Called when the client has left."""
        raise NotImplementedError

    def late(self) -> None:
        """Called when there has been no answer for about `PING` seconds."""

    def expire(self) -> None:
        """Start looking for a disconnect; if already looking, report that the answer is late."""
        if self._looking is None:
            self.look()
        else:
            self.late()

    def look(self) -> None:
        """Look for a disconnect from now on."""
        self.cancel()
        if self._looking is None:
            self._looking = self._deadlines.loop.create_task(self._wait())
        self._deadlines.set(self, PING - _LOOK)

    def stop(self) -> None:
        """Stop watching: the answer has been made."""
        self.cancel()
        if self._looking is not None:
            self._looking.cancel()
            # A cancelled task keeps its frames, and so this object, until the garbage collector runs.
            self._looking = None

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.left()


# The request runs in the task in which it came, and goes on there after its client has left if the client may come
# back; only a stream needs another task, which writes it.


class PushedEvents(Events, Protocol):
    """The events of one response."""

    @property
    def stream(self) -> Stream:
        """Takes what is pushed."""
        ...

    def finish(self, frame: bytes | None) -> None:
        """End the events, with a last frame if there is one."""
        ...

    def leave(self) -> bool:
        """Record that the client is gone. Returns whether it may come back for the rest."""
        ...

    def detach(self) -> None:
        """Record that the response is over."""
        ...


class HttpReply(ClientWatch):
    """Sends the answer to one POST, and what is pushed before it. A context for the task that makes the answer."""

    __slots__ = ("_gone", "_open", "_over", "_pushes", "_request", "_task", "_writer")

    def __init__(self, request: HttpRequest, open_pushes: Callable[[], PushedEvents], deadlines: Deadlines) -> None:
        """`open_pushes` is called once the answer is to be a stream."""
        self._request = request
        self._open = open_pushes
        self._pushes: PushedEvents | None = None
        self._writer: asyncio.Task[None] | None = None
        self._over = False
        self._gone = False
        self._task: asyncio.Task[Any] = asyncio.current_task(deadlines.loop)  # pyright: ignore[reportAttributeAccessIssue]
        # Calling by `super()` takes twice the time of calling by the class's name.
        ClientWatch.__init__(self, request.receive, deadlines)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Stop the watch and the writer. Withdraws our own cancellation of a request whose client left."""
        if not self._over or self._pushes is not None:
            self.stop()
        if self._pushes is not None and self._writer is not None:
            if not self._over:
                self._pushes.finish(None)
            self._writer.cancel()
        self._over = True
        # Our own cancellation is private. If it was not the only one, somebody else's must go on.
        return self._gone and self._task.uncancel() == 0 and kind is asyncio.CancelledError

    def tell(self, method: str, params: Mapping[str, Any], key: Hashable = None) -> None:
        """Send a notification; this begins the stream."""
        if not self._over:
            self._begun().stream.tell(method, params, key)

    def offer(self, data: bytes) -> bool:
        """Send a request of the gateway's, if there is room; this begins the stream. Returns whether it was sent."""
        return not self._over and self._begun().stream.offer(data)

    def put(self, data: bytes) -> None:
        """Send a frame that must arrive; this begins the stream."""
        if not self._over:
            self._begun().stream.put(data)

    def begin(self) -> None:
        """Answer by a stream, even if there is nothing for it yet."""
        self._begun()

    def late(self) -> None:
        """Begin a stream, whose pings show the client that we are still there."""
        self._begun()

    def left(self) -> None:
        """Cancel the request: its client left, so nobody needs the answer, unless the stream can be resumed."""
        if self._over and self._writer is not None and self._writer.done():
            # The client has everything: after a complete response, it looks as if the client had left.
            return
        if self._pushes is None or not self._pushes.leave():
            self._gone = True
            self._task.cancel()

    async def finish(self, frame: bytes | None, status: int = 200) -> None:
        """Write the answer. `frame`: the last one; None: the stream has had all. `status`: of an answer in JSON."""
        self._over = True
        if self._pushes is None or self._writer is None:
            self.stop()
            await send_frame(self._request.send, status, frame or b"")
            return
        self._pushes.finish(frame)
        await self._writer

    def _begun(self) -> PushedEvents:
        if self._pushes is None:
            self._pushes = pushes = self._open()
            self._writer = asyncio.get_running_loop().create_task(write_events(self._request.send, pushes))
            self._writer.add_done_callback(lambda _: pushes.detach())
            self.look()
        return self._pushes
