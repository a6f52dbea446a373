"""One answer being made, and the two ways to send it as JSON: whole, or as server-sent events.

Turns a run of the agent and a reply (which knows the API's shape) into an HTTP response. When a client disconnects, its
generation is cancelled. Errors before the first event are HTTP errors; after it, an error event ends the stream, so
that no answer is cut silently. Where the API has a ping event, a silent stream sends it. It knows no endpoint.
"""

from asyncio import CancelledError
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

import anyio
from anyio.abc import TaskGroup
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.agent.events import AgentEvent, Emit
from gateway.errors import EngineUnavailable
from gateway.serve.generation.form import ApiForm, Chunk, Reply
from gateway.serve.http.drain import EXPIRED
from gateway.serve.http.traced import note_failure

Outcome = Literal["ok", "client_error", "engine_error", "cancelled"]

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
                await self._send(send, chunks)

        async def open_and_ping() -> None:
            # The engine is working already: prepare the beginning of the stream before its first ids arrive.
            _ = self._opened
            ping = self._form.ping
            while ping is not None:
                await anyio.sleep(self._silence)
                if not self._said:
                    # The end of the answer cancels this task, but must not do so between the head and the first events.
                    with anyio.CancelScope(shield=True):
                        await self._send(send, [ping])
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

    async def _send(self, send: Send, chunks: list[Chunk]) -> None:
        # While a client does not read, a ping must not overtake the head. This runs once per token: the lock is nearly
        # always free, and then taken without a checkpoint.
        try:
            self._sending.acquire_nowait()
        except anyio.WouldBlock:
            await self._sending.acquire()
        try:
            self._said = True
            body = self._form.events(chunks)
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
