"""One answer being made, and the two ways to show it as JSON: whole, or as server-sent events.

Turns a run of the agent and a reply (who knows the shape) into an HTTP response. A client that leaves takes its
generation with it. Errors before the first event are HTTP errors; after it, an `error` event ends the stream, so that
nothing is cut silently. Where an API has an event for it, a stream says that it lives. It knows no endpoint.
"""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, Protocol

import anyio
from anyio.abc import TaskGroup
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from gateway.agent.events import AgentEvent, Emit
from gateway.errors import EngineUnavailable
from gateway.serve.http.drain import EXPIRED

Outcome = Literal["ok", "client_error", "engine_error", "cancelled"]
Chunk = dict[str, Any]

_STREAM_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_AGAIN: Final = frozenset({503, 529})
"""Statuses that mean: later (the second is Anthropic's)."""
_SILENCE: Final = 5.0
"""Seconds in which something comes, be it a ping. A generation that fails sooner than this is an HTTP error."""


def _written(chunk: Chunk) -> bytes:
    return json.dumps(chunk, ensure_ascii=False, separators=(",", ":")).encode()


class Reply(Protocol):
    """An answer in some JSON shape."""

    def begin(self) -> list[Chunk]:
        """Chunks that come before the first."""
        ...

    def feed(self, event: AgentEvent) -> list[Chunk]:
        """Chunks for one event."""
        ...

    def completion(self) -> Chunk:
        """The whole answer."""
        ...

    def fail(self, error: Exception) -> list[Chunk]:
        """Chunks that end a stream which broke, and say why."""
        ...


@dataclass(frozen=True, slots=True)
class ApiForm:
    """How an API writes what is no answer's own: the events of its streams, and its errors."""

    refuse: Callable[[Exception], tuple[int, Chunk]]
    """Gives the status and the body of an HTTP error."""
    names_events: bool = False
    """Whether each event of a stream also says its chunk's `type` in a line of its own."""
    last: bytes = b""
    """What ends a stream, after all chunks."""
    ping: Chunk | None = None
    """What a stream says while nothing comes."""
    write: Callable[[Chunk], bytes] = _written
    """Gives the JSON of a whole answer."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of every answer."""

    def refused(self, error: Exception) -> JSONResponse:
        """The HTTP error for what went wrong before anything was sent."""
        status, body = self.refuse(error)
        again = {"retry-after": "2"} if status in _AGAIN else {}
        return JSONResponse(body, status, {**self.headers, **again})

    def whole(self, chunk: Chunk, status: int = 200) -> Response:
        """A whole answer."""
        return Response(self.write(chunk), status, headers=dict(self.headers), media_type="application/json")

    @property
    def stream_headers(self) -> list[tuple[bytes, bytes]]:
        """The head of a stream."""
        return [*_STREAM_HEADERS, *((name.encode(), value.encode()) for name, value in self.headers.items())]

    def events(self, chunks: Iterable[Chunk]) -> bytes:
        """Chunks as server-sent events."""
        return b"".join([self._event(chunk) for chunk in chunks])

    def _event(self, chunk: Chunk) -> bytes:
        data = b"data: " + _written(chunk) + b"\n\n"
        return b"event: " + str(chunk["type"]).encode() + b"\n" + data if self.names_events else data


class Answering:
    """One answer, made once."""

    def __init__(self, make: Callable[[Emit], Awaitable[object]], count: Callable[[Outcome], None]) -> None:
        """`make` runs the agent; `count` hears how it ended."""
        self._make = make
        self._count = count
        self.client_left = False

    async def run(
        self,
        scope: Scope,
        receive: Receive,
        emit: Emit,
        *,
        beside: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> Exception | None:
        """Make the answer; returns what went wrong. `beside` runs meanwhile, and is cancelled when it is made.

        A client that leaves cancels it, and so does a gateway that stops; then the client is told.
        """
        expired: anyio.Event | None = scope.get(EXPIRED)
        outcome: Outcome = "cancelled"
        try:
            outcome, failure = await self._made(receive, expired, emit, beside)
        finally:
            self._count(outcome)
        if outcome == "cancelled" and expired is not None and expired.is_set():
            return EngineUnavailable("the gateway is stopping and could not wait for this answer; ask again")
        self.client_left = outcome == "cancelled"
        return failure

    async def _made(
        self,
        receive: Receive,
        expired: anyio.Event | None,
        emit: Emit,
        beside: Callable[[], Coroutine[Any, Any, None]] | None,
    ) -> tuple[Outcome, Exception | None]:
        async with _while_wanted(receive, expired) as tasks:
            if beside is not None:
                tasks.start_soon(beside)
            try:
                await self._make(emit)
            except Exception as error:  # noqa: BLE001 - every failure becomes an error in the API's shape
                return "engine_error", error
            return "ok", None
        return "cancelled", None


class WholeAnswer(Response):
    """The answer as one JSON object."""

    def __init__(self, answering: Answering, reply: Reply, form: ApiForm) -> None:
        self._answering = answering
        self._reply = reply
        self._form = form
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Wait for the whole answer, then send it."""

        async def keep(event: AgentEvent) -> None:
            self._reply.feed(event)

        failure = await self._answering.run(scope, receive, keep)
        if self._answering.client_left:
            return
        refused = None if failure is None else self._form.refused(failure)
        await (refused or self._form.whole(self._reply.completion()))(scope, receive, send)


class StreamedAnswer(Response):
    """The answer as server-sent events, each sent as soon as it is there."""

    def __init__(self, answering: Answering, reply: Reply, form: ApiForm, silence: float = _SILENCE) -> None:
        """`silence`: seconds after which a form that has one sends its ping."""
        self._answering = answering
        self._reply = reply
        self._form = form
        self._silence = silence
        self._begun = False
        self._said = False
        """Whether something came since the last look."""
        self._sending = anyio.Lock(fast_acquire=True)
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send chunks as they come; the first event decides between a stream and an HTTP error."""

        async def show(event: AgentEvent) -> None:
            chunks = self._reply.feed(event)
            if chunks:
                await self._send(send, chunks)

        async def ping(chunk: Chunk) -> None:
            while True:
                await anyio.sleep(self._silence)
                if not self._said:
                    # Not cut between the head and what begins the stream: the answer may be made meanwhile.
                    with anyio.CancelScope(shield=True):
                        await self._send(send, [chunk])
                self._said = False

        beside = None if self._form.ping is None else partial(ping, self._form.ping)
        failure = await self._answering.run(scope, receive, show, beside=beside)
        if self._answering.client_left:
            return
        if failure is not None and not self._begun:
            await self._form.refused(failure)(scope, receive, send)
            return
        ending = b"" if failure is None else self._form.events(self._reply.fail(failure))
        await send({"type": "http.response.body", "body": ending + self._form.last, "more_body": False})

    async def _send(self, send: Send, chunks: list[Chunk]) -> None:
        # A ping that comes while a client does not read must not overtake the head.
        async with self._sending:
            self._said = True
            if not self._begun:
                self._begun = True
                await send({"type": "http.response.start", "status": 200, "headers": self._form.stream_headers})
                chunks = [*self._reply.begin(), *chunks]
            await send({"type": "http.response.body", "body": self._form.events(chunks), "more_body": True})


@asynccontextmanager
async def _while_wanted(receive: Receive, expired: anyio.Event | None) -> AsyncGenerator[TaskGroup]:
    """Cancel the body of the context when the client disconnects, or the gateway has no more time for it.

    Gives the tasks that are cancelled with it.
    """
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            tasks.cancel_scope.cancel()

        async def give_up(event: anyio.Event) -> None:
            await event.wait()
            tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        if expired is not None:
            tasks.start_soon(give_up, expired)
        yield tasks
        tasks.cancel_scope.cancel()
