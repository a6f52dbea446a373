"""One answer being made, and the two ways to send it as JSON: whole, or as server-sent events.

Turns a run of the agent and a reply (which knows the API's shape) into an HTTP response. When a client disconnects, its
generation is cancelled. Errors before the first event are HTTP errors; after it, an error event ends the stream, so
that no answer is cut silently. Where the API has an event for it, a silent stream shows that it is alive. It knows no
endpoint.
"""

from asyncio import CancelledError
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Final, Literal, Protocol

import anyio
from anyio.abc import TaskGroup
from pydantic_core import to_json
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from gateway.agent.events import AgentEvent, Emit
from gateway.errors import EngineUnavailable
from gateway.serve.http.error_answers import RETRY_SOON
from gateway.serve.http.middleware import EXPIRED, note_failure

# How an API writes its answers: the shape of a reply, and what all answers share: stream events, errors, headers.

Chunk = dict[str, Any]

_STREAM_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_AGAIN: Final = frozenset({503, 529})
"""Statuses that ask the client to try again later (529 is Anthropic's)."""
_json: Final = partial(to_json, inf_nan_mode="null")
"""An engine's vectors may hold numbers that JSON does not have."""


class Reply(Protocol):
    """An answer in the JSON shape of an API."""

    def begin(self) -> list[Chunk]:
        """Chunks that a stream begins with, before those of the first event."""
        ...

    def feed(self, event: AgentEvent) -> list[Chunk]:
        """Chunks for one event."""
        ...

    def completion(self) -> Chunk:
        """The whole answer."""
        ...

    def fail(self, error: Exception) -> list[Chunk]:
        """Chunks that end a stream after an error, and say why."""
        ...

    def ping(self) -> list[Chunk] | None:
        """Chunks that show that a silent stream is alive; []: none has a place now. None: the API has none."""
        ...


@dataclass(frozen=True, slots=True)
class ApiForm:
    """How an API writes what all its answers share: the events of its streams, and its errors."""

    refuse: Callable[[Exception], tuple[int, Chunk]]
    """Returns the status and the body of an HTTP error."""
    names_events: bool = False
    """Whether each event of a stream also has an `event:` line with its chunk's `type`."""
    last: bytes = b""
    """Bytes that end a stream, after all chunks."""
    write: Callable[[Chunk], bytes] = _json
    """Returns the JSON of a whole answer."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers of every answer."""

    def refused(self, error: Exception) -> JSONResponse:
        """The HTTP response for an error that occurred before anything was sent."""
        status, body = self.refuse(error)
        headers = {**self.headers, **RETRY_SOON} if status in _AGAIN else self.headers
        return JSONResponse(body, status, headers)

    def whole(self, chunk: Chunk, status: int = 200) -> Response:
        """A whole answer."""
        return Response(self.write(chunk), status, headers=dict(self.headers), media_type="application/json")

    @property
    def stream_headers(self) -> list[tuple[bytes, bytes]]:
        """The response headers of a stream."""
        return [*_STREAM_HEADERS, *((name.encode(), value.encode()) for name, value in self.headers.items())]

    def events(self, chunks: Iterable[Chunk]) -> bytes:
        """Chunks as server-sent events."""
        return b"".join([self._event(chunk) for chunk in chunks])

    def _event(self, chunk: Chunk) -> bytes:
        data = b"data: " + to_json(chunk) + b"\n\n"
        return b"event: " + str(chunk["type"]).encode() + b"\n" + data if self.names_events else data


Outcome = Literal["ok", "client_error", "engine_error", "cancelled"]

_COMMENT: Final = b": still at work\n\n"
"""What readers of server-sent events skip, and what keeps a connection open in proxies."""
_SILENCE: Final = 5.0
"""Seconds between checks for silence: if nothing was sent since the last check, a ping is sent, where the API has one.

A generation that fails before anything was sent becomes an HTTP error.
"""


class Answering:
    """Makes one answer, once."""

    def __init__(self, make: Callable[[Emit], Awaitable[object]], count: Callable[[Outcome], None]) -> None:
        """`make` runs the agent; `count` is called with the outcome."""
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
        """Make the answer and return the error, if any. `beside` runs meanwhile, and is cancelled when that is done.

        The answer is cancelled when the client disconnects, and when the gateway stops; the latter returns an error.
        """
        expired: anyio.Event | None = scope.get(EXPIRED)
        outcome: Outcome = "cancelled"
        try:
            outcome, failure = await self._made(receive, expired, emit, beside)
        finally:
            self._count(outcome)
        if outcome == "cancelled" and expired is not None and expired.is_set():
            failure = EngineUnavailable(
                "the gateway is stopping and could not wait for this answer to finish: send the request again"
            )
        else:
            self.client_left = outcome == "cancelled"
        if (error := CancelledError() if self.client_left else failure) is not None:
            note_failure(scope, error)
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

    def __init__(self, answering: Answering, new_reply: Callable[[], Reply], form: ApiForm) -> None:
        self._answering = answering
        self._new_reply = new_reply
        self._form = form
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Wait for the whole answer, then send it."""
        reply = self._new_reply()

        async def keep(event: AgentEvent) -> None:
            reply.feed(event)

        failure = await self._answering.run(scope, receive, keep)
        if self._answering.client_left:
            return
        refused = None if failure is None else self._form.refused(failure)
        await (refused or self._form.whole(reply.completion()))(scope, receive, send)


@dataclass(frozen=True, slots=True)
class _Opened:
    """A reply, and the events that its stream begins with."""

    reply: Reply
    events: bytes


class StreamedAnswer(Response):
    """The answer as server-sent events, each sent as soon as it is available."""

    def __init__(
        self, answering: Answering, new_reply: Callable[[], Reply], form: ApiForm, silence: float = _SILENCE
    ) -> None:
        """`new_reply` is called once, while the engine works; `silence`: seconds between checks for silence."""
        self._answering = answering
        self._new_reply = new_reply
        self._form = form
        self._silence = silence
        self._begun = False
        self._said = False
        """Whether anything was sent since the last check for silence."""
        self._sending = anyio.Lock()
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send chunks as they come. An error before the first chunk is an HTTP error."""

        async def show(event: AgentEvent) -> None:
            chunks = self._opened.reply.feed(event)
            if chunks:
                await self._send(send, self._form.events(chunks))

        async def open_and_ping() -> None:
            # The engine is working already: prepare the beginning of the stream before its first ids arrive.
            reply = self._opened.reply
            while True:
                await anyio.sleep(self._silence)
                if not self._said:
                    if (chunks := reply.ping()) is None:
                        return
                    # The end of the answer cancels this task, but must not do so between the head and the first events.
                    with anyio.CancelScope(shield=True):
                        await self._send(send, self._form.events(chunks) or _COMMENT)
                self._said = False

        failure = await self._answering.run(scope, receive, show, beside=open_and_ping)
        if self._answering.client_left:
            return
        if failure is not None and not self._begun:
            await self._form.refused(failure)(scope, receive, send)
            return
        ending = b"" if failure is None else self._form.events(self._opened.reply.fail(failure))
        await send({"type": "http.response.body", "body": ending + self._form.last, "more_body": False})

    @cached_property
    def _opened(self) -> _Opened:
        reply = self._new_reply()
        return _Opened(reply, self._form.events(reply.begin()))

    async def _send(self, send: Send, body: bytes) -> None:
        # While a client does not read, a ping must not overtake the head. This runs once per token: the lock is nearly
        # always free, and then taken without a checkpoint.
        try:
            self._sending.acquire_nowait()
        except anyio.WouldBlock:
            await self._sending.acquire()
        try:
            self._said = True
            if not self._begun:
                await send({"type": "http.response.start", "status": 200, "headers": self._form.stream_headers})
                self._begun = True
                body = self._opened.events + body
            await send({"type": "http.response.body", "body": body, "more_body": True})
        finally:
            self._sending.release()


@asynccontextmanager
async def _while_wanted(receive: Receive, expired: anyio.Event | None) -> AsyncGenerator[TaskGroup]:
    """Cancel the body of the context when the client disconnects, or when a stopping gateway has no more time for it.

    Yields a task group whose tasks are cancelled with it.
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
