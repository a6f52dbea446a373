"""Requests of 2026-07-28 over HTTP: each a POST of its own, without a session.

Turns a POST into an answer: JSON where nothing was pushed before it, else a stream of events that ends with it. The
headers must say what the body says; a client that leaves ends its request. This is the path that is meant to be quick:
the request runs in the task that it came in. It knows no server.
"""

import asyncio
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, cast

from gateway.deadlines import Deadlines
from gateway.errors import OwnerGone, ReplicaBusy
from gateway.protocol.annotations import check_param_headers
from gateway.protocol.eras import MODERN_VERSIONS
from gateway.protocol.headers import (
    ERROR_STATUS,
    ROUTING_HEADERS,
    VERSION_HEADER,
    check_envelope,
    mismatch,
    unsupported,
)
from gateway.protocol.messages import INVALID_REQUEST, Malformed, Notification, Request, parse_message
from gateway.protocol.sse import encode_event
from gateway.proxy.bridge import unknown_state
from gateway.proxy.caller import Principal
from gateway.proxy.round_states import PARKED, is_parked
from gateway.replicas import Replica, Replicas
from gateway.serve.http.elsewhere import again
from gateway.serve.mcp.core import Answer, Core, error_answer
from gateway.serve.mcp.http import (
    AGAIN,
    HttpRequest,
    Rejected,
    Watch,
    read_message_body,
    refuse_late,
    send_empty,
    send_frame,
    write_events,
)
from gateway.serve.mcp.outbox import Outbox
from gateway.serve.mcp.sessions import enveloped_call

_ALLOW: Final = ((b"allow", b"POST"),)
_NO_REQUEST: Final = "the body must be one request or one notification"


class ModernHttp:
    """Answers requests of the modern era."""

    def __init__(self, core: Core, replicas: Replicas, *, body_bytes: int, dropped: Callable[[], None]) -> None:
        """`dropped` is called for every notification that a client loses because it does not read.

        `replicas` have the calls that wait for their clients elsewhere.
        """
        self._core = core
        self._replicas = replicas
        self._body_bytes = body_bytes
        self._dropped = dropped
        self._deadlines = Deadlines()

    async def serve(self, request: HttpRequest) -> None:
        """Answer one HTTP request. Raises Rejected and ClientGone."""
        if request.method != "POST":
            raise Rejected(405, "this version of MCP has POST only: it has neither sessions nor GET", headers=_ALLOW)
        body = await read_message_body(request, self._body_bytes)
        message = parse_message(body)
        if isinstance(message, Request):
            error = self._fault(message, request)
            if error is None:
                if not is_parked(message.params):
                    refuse_late(request)
                if (owner := self._owner(message.params, request)) is not None:
                    await self._forward(owner, message, body, request)
                    return
                await self._run(message, request)
                return
            await _send_answer(request, error_answer(message.id, error))
        elif isinstance(message, Notification):
            # The era has none that a server acts on: who wants to cancel closes the stream.
            version = request.headers[VERSION_HEADER]
            if version not in MODERN_VERSIONS:
                await _send_answer(request, error_answer(None, unsupported(version)))
            else:
                await send_empty(request.send, 202)
        else:
            code, detail = INVALID_REQUEST, _NO_REQUEST
            if isinstance(message, Malformed):
                code, detail = message.code, message.detail
            await _send_answer(request, error_answer(message.id, {"code": code, "message": detail}))

    def _fault(self, message: Request, request: HttpRequest) -> dict[str, Any] | None:
        """What is wrong with the envelope, as an error; None: nothing."""
        if request.repeated and (twice := [name for name in ROUTING_HEADERS if name in request.repeated]):
            return mismatch(f"the {twice[0]} header came more than once")
        error = check_envelope(message.method, message.params, request.headers)
        if error is not None or message.method != "tools/call":
            return error
        return self._check_arguments(message.params, request, request.principal)

    def _check_arguments(
        self, params: Mapping[str, Any], request: HttpRequest, principal: Principal
    ) -> dict[str, Any] | None:
        name: object = params.get("name")
        annotations = self._core.servers.annotations(name, principal) if isinstance(name, str) else ()
        if not annotations:
            return None
        arguments: object = params.get("arguments")
        given = cast(dict[str, Any], arguments) if isinstance(arguments, dict) else {}
        return check_param_headers(annotations, given, request.headers, request.repeated)

    def _owner(self, params: Mapping[str, Any], request: HttpRequest) -> Replica | None:
        """The other replica in which a call waits that a request goes on with."""
        if not is_parked(params):
            return None
        name = params["requestState"].removeprefix(PARKED)
        return self._replicas.owner("parked call", name, request.principal.name, request.scope)

    async def _forward(self, owner: Replica, message: Request, body: bytes, request: HttpRequest) -> None:
        scope, receive = again(request.scope, request.receive, body)
        try:
            await self._replicas.forward(owner, scope, receive, request.send)
        except ReplicaBusy as error:
            raise Rejected(503, error.message, headers=AGAIN) from None
        except OwnerGone as error:
            await _send_answer(request, error_answer(message.id, unknown_state(error.message).error))

    async def _run(self, message: Request, request: HttpRequest) -> None:
        reply = _Reply(request, self._dropped, self._deadlines)
        token_map = request.token_map or self._core.session_map
        call = enveloped_call(message.params, request.principal, token_map, reply, request.size, request.headers)
        try:
            await reply.finish(await self._core.answer(message.id, message.method, message.params, call))
        except asyncio.CancelledError:
            if not reply.gone:
                raise
            # It was the client's going that cancelled us, and nothing outside knows of it.
            cast(asyncio.Task[None], asyncio.current_task()).uncancel()
        finally:
            reply.close()


class _Reply:
    """Where the answer to one request goes, and what is pushed before it."""

    __slots__ = ("_dropped", "_outbox", "_over", "_ready", "_request", "_task", "_watch", "_writer", "gone")

    def __init__(self, request: HttpRequest, dropped: Callable[[], None], deadlines: Deadlines) -> None:
        self._request = request
        self._dropped = dropped
        self._task: asyncio.Task[Any] | None = asyncio.current_task()
        self._watch = Watch(request.receive, self._leave, self._begin, deadlines)
        self._outbox: Outbox | None = None
        self._writer: asyncio.Task[None] | None = None
        self._over = False
        self.gone = False

    def tell(self, method: str, params: Mapping[str, Any], key: Hashable = None) -> None:
        """A notification; it begins the stream."""
        self._begin().tell(method, params, key)

    def offer(self, data: bytes) -> bool:
        """A request of ours, if there is room; it begins the stream."""
        return self._begin().offer(data)

    def put(self, data: bytes) -> None:
        """A frame that must arrive; it begins the stream."""
        self._begin().put(data)

    async def finish(self, answer: Answer) -> None:
        """Write the answer."""
        frame, code = answer
        if self._writer is None or self._outbox is None:
            await send_frame(self._request.send, ERROR_STATUS.get(code, 200), frame)
            return
        self._over = True
        self._outbox.put(frame)
        await self._writer

    def close(self) -> None:
        """Nothing is owed any more."""
        self._watch.stop()
        self._task = None
        if self._writer is not None:
            self._writer.cancel()

    @property
    def ready(self) -> asyncio.Event:
        """Set when there is something to write."""
        return self._ready

    @property
    def over(self) -> bool:
        """Whether the answer is among what waits."""
        return self._over

    def take(self) -> bytes:
        """The events that wait."""
        return b"".join(map(encode_event, self._outbox.take())) if self._outbox is not None else b""

    def _begin(self) -> Outbox:
        if self._outbox is None:
            self._ready = asyncio.Event()
            self._outbox = Outbox(self._ready.set, self._dropped)
            self._writer = asyncio.get_running_loop().create_task(self._write())
            self._watch.look()
        return self._outbox

    async def _write(self) -> None:
        await write_events(self._request.send, self)
        if not self._over:
            # It was cut off because it did not read.
            self._leave()

    def _leave(self) -> None:
        if self._task is not None:
            self.gone = True
            self._task.cancel()


async def _send_answer(request: HttpRequest, answer: Answer) -> None:
    frame, code = answer
    await send_frame(request.send, ERROR_STATUS.get(code, 200), frame)
