"""The OpenAI face: `POST /v1/chat/completions` and `GET /v1/models`.

Turns requests into turns of the agent, and the agent's events into JSON or an event stream. A client that leaves takes
its generation with it. Errors before the first event are HTTP errors; after it, an `error` event ends the stream, so
that nothing is cut silently. Below: `gateway.agent`; above: `app.py`.
"""

import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import anyio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from gateway.agent import Agent, Conversation
from gateway.agent.events import AgentEvent
from gateway.config import LimitsConfig
from gateway.engine.route import EngineRoute
from gateway.errors import EngineError, EngineUnavailable, GatewayError, RequestInvalid
from gateway.observe.metrics import Metrics
from gateway.serve.chat_reply import ChatReply, Chunk
from gateway.serve.chat_request import ChatRequest
from gateway.serve.drain import EXPIRED
from gateway.serve.errors import error_answer
from gateway.serve.identity import principal_of

Outcome = Literal["ok", "client_error", "engine_error", "cancelled"]


class OpenAiFace:
    """Routes under /v1 over one agent."""

    def __init__(self, agent: Agent, route: EngineRoute, limits: LimitsConfig, metrics: Metrics) -> None:
        self._agent = agent
        self._route = route
        self._limits = limits
        self._metrics = metrics
        self._started = int(time.time())  # noqa: TID251 - the API wants a date

    def routes(self) -> list[Route]:
        """What `app.py` mounts."""
        return [
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
            Route("/v1/models", self._models, methods=["GET"]),
        ]

    async def _models(self, _request: Request) -> Response:
        try:
            ready = self._route.ready()
        except EngineError as error:
            return _refusal(error)
        codec = {"map_id": ready.token_map.map_id, "context": ready.facts.context}
        model = {"id": ready.facts.model, "object": "model", "created": self._started, "owned_by": "llama.cpp"}
        return JSONResponse({"object": "list", "data": [{**model, "codec": codec}]})

    async def _chat(self, request: Request) -> Response:
        try:
            chat, messages = ChatRequest.checked(await self._body(request))
            conversation = await self._agent.open(
                messages,
                choice=chat.choice(),
                client_tools=chat.client_tools(),
                principal=principal_of(request.scope),
            )
        except GatewayError as error:
            self._metrics.chat_request("engine_error" if isinstance(error, EngineError) else "client_error")
            return _refusal(error)
        created = int(time.time())  # noqa: TID251
        reply = ChatReply(conversation.ready.facts.model, created, usage_chunk=chat.usage_chunk)
        answer = _Answering(self._agent, conversation, chat, reply, self._metrics)
        return ChatStream(answer) if chat.stream else ChatWhole(answer)

    async def _body(self, request: Request) -> bytes:
        received = bytearray()
        async for part in request.stream():
            received += part
            if len(received) > self._limits.body_bytes:
                raise RequestInvalid(f"the body is longer than {self._limits.body_bytes} bytes")
        return bytes(received)


class _Answering:
    """One answer being made; the responses below show it whole or as it comes."""

    def __init__(
        self, agent: Agent, conversation: Conversation, chat: ChatRequest, reply: ChatReply, metrics: Metrics
    ) -> None:
        self.reply = reply
        self._agent = agent
        self._conversation = conversation
        self._chat = chat
        self._metrics = metrics
        self.client_left = False

    async def run(
        self, scope: Scope, receive: Receive, show: Callable[[list[Chunk]], Awaitable[None]]
    ) -> Exception | None:
        """Make the answer, giving chunks to `show`; returns what went wrong.

        A client that leaves cancels it, and so does a gateway that stops; then the client is told.
        """
        expired: anyio.Event | None = scope.get(EXPIRED)
        outcome: Outcome = "cancelled"
        failure: Exception | None = None

        async def emit(event: AgentEvent) -> None:
            await show(self.reply.feed(event))

        try:
            async with _while_wanted(receive, expired):
                try:
                    await self._agent.answer(self._conversation, self._chat.options(), emit)
                    outcome = "ok"
                except Exception as error:  # noqa: BLE001 - the boundary to OpenAI's error shape
                    failure = error
                    outcome = "engine_error"
        finally:
            self._metrics.chat_request(outcome)
        if outcome == "cancelled" and expired is not None and expired.is_set():
            return EngineUnavailable("the gateway is stopping and could not wait for this answer; ask again")
        self.client_left = outcome == "cancelled"
        return failure


class ChatWhole(Response):
    """The answer as one JSON object."""

    def __init__(self, answer: _Answering) -> None:
        self._answer = answer
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Wait for the whole answer, then send it."""

        async def keep(_chunks: list[Chunk]) -> None:
            return None

        failure = await self._answer.run(scope, receive, keep)
        if self._answer.client_left:
            return
        response = _refusal(failure) if failure is not None else JSONResponse(self._answer.reply.completion())
        await response(scope, receive, send)


class ChatStream(Response):
    """The answer as server-sent events, each sent as soon as it is there."""

    def __init__(self, answer: _Answering) -> None:
        self._answer = answer
        self._begun = False
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send chunks as they come; the first event decides between a stream and an HTTP error."""

        async def show(chunks: list[Chunk]) -> None:
            if not chunks:
                return
            if not self._begun:
                self._begun = True
                await send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
                chunks = [self._answer.reply.begin(), *chunks]
            await send({"type": "http.response.body", "body": b"".join(map(_event, chunks)), "more_body": True})

        failure = await self._answer.run(scope, receive, show)
        if self._answer.client_left:
            return
        if failure is not None and not self._begun:
            await _refusal(failure)(scope, receive, send)
            return
        last = b"" if failure is None else _event(error_answer(failure)[1])
        await send({"type": "http.response.body", "body": last + b"data: [DONE]\n\n", "more_body": False})


_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def _refusal(error: Exception) -> JSONResponse:
    status, body = error_answer(error)
    headers = {"retry-after": "2"} if status == 503 else None
    return JSONResponse(body, status, headers)


@asynccontextmanager
async def _while_wanted(receive: Receive, expired: anyio.Event | None) -> AsyncGenerator[None]:
    """Cancel the body of the context when the client disconnects, or the gateway has no more time for it."""
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
        yield
        tasks.cancel_scope.cancel()
