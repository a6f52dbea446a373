"""Requests of 2026-07-28 over HTTP: each a POST of its own, without a session.

Turns a POST into an answer: JSON if nothing was pushed before it, else a stream of events that ends with it. The
headers must agree with the body; a client that leaves ends its request. This path is meant to be fast: the request runs
in the task in which it came. It knows no server.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, cast

from gateway.deadlines import Deadlines
from gateway.errors import OwnerGone, ReplicaBusy
from gateway.protocol.eras import MODERN_VERSIONS
from gateway.protocol.headers import (
    ERROR_STATUS,
    ROUTING_HEADERS,
    VERSION_HEADER,
    check_envelope,
    check_param_headers,
    mismatch,
    unsupported,
)
from gateway.protocol.lines import encode_message
from gateway.protocol.messages import INVALID_REQUEST, Malformed, Notification, Request, parse_message
from gateway.proxy.bridge import PARKED, is_parked, unknown_state
from gateway.proxy.caller import Principal
from gateway.replicas import Replica, Replicas
from gateway.serve.http.error_answers import replay_body
from gateway.serve.mcp.http import (
    RETRY_AFTER,
    HttpReply,
    HttpRequest,
    Rejected,
    read_message_body,
    refuse_late,
    send_empty,
    send_frame,
)
from gateway.serve.mcp.large_result_links import no_result, result_name
from gateway.serve.mcp.methods import McpCore, WrittenAnswer, error_answer
from gateway.serve.mcp.outbox import Outbox
from gateway.serve.mcp.sessions import enveloped_call

_ALLOW: Final = ((b"allow", b"POST"),)
_NO_REQUEST: Final = "the body must be one request or one notification"


class ModernHttp:
    """Answers requests of the modern era."""

    def __init__(self, core: McpCore, replicas: Replicas, *, body_bytes: int, dropped: Callable[[], None]) -> None:
        """`dropped` is called for every notification that a client loses because it does not read.

        `replicas`: the others, which have the calls that wait for their clients elsewhere.
        """
        self._core = core
        self._replicas = replicas
        self._body_bytes = body_bytes
        self._open = partial(_Pushes, dropped)
        self._deadlines = Deadlines()

    async def serve(self, request: HttpRequest) -> None:
        """Answer one HTTP request. Raises Rejected and ClientGone."""
        if request.method != "POST":
            raise Rejected(405, "this version of MCP uses POST only: it has no sessions and no GET", headers=_ALLOW)
        body = await read_message_body(request, self._body_bytes)
        message = parse_message(body)
        if isinstance(message, Request):
            error = self._fault(message, request)
            if error is None:
                if not is_parked(message.params):
                    refuse_late(request)
                if (owner := self._owner(message, request)) is not None:
                    await self._forward(owner, message, body, request)
                    return
                await self._run(message, request)
                return
            await _send_answer(request, error_answer(message.id, error))
        elif isinstance(message, Notification):
            # This era has no notifications that a server acts on: a client cancels by closing the stream.
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
        """What is wrong with the envelope or the headers, as an error; None: nothing."""
        if request.repeated and (twice := [name for name in ROUTING_HEADERS if name in request.repeated]):
            return mismatch(f"the {twice[0]} header was sent more than once")
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
        given = cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else {}
        return check_param_headers(annotations, given, request.headers, request.repeated)

    def _owner(self, message: Request, request: HttpRequest) -> Replica | None:
        """The other replica that holds the parked call that a request continues, or the kept result that it reads;
        None: no other replica does."""
        principal, scope = request.principal.name, request.scope
        if is_parked(message.params):
            name = message.params["requestState"].removeprefix(PARKED)
            return self._replicas.owner("parked call", name, principal, scope)
        if message.method == "resources/read" and (name := result_name(message.params.get("uri"))) is not None:
            return self._replicas.owner("result", name, principal, scope)
        return None

    async def _forward(self, owner: Replica, message: Request, body: bytes, request: HttpRequest) -> None:
        scope, receive = replay_body(request.scope, request.receive, body)
        try:
            await self._replicas.forward(owner, scope, receive, request.send)
        except ReplicaBusy as error:
            raise Rejected(503, error.message, headers=RETRY_AFTER) from None
        except OwnerGone as error:
            is_call = is_parked(message.params)
            gone = unknown_state(error.message) if is_call else no_result(message.params["uri"])
            await _send_answer(request, error_answer(message.id, gone.error))

    async def _run(self, message: Request, request: HttpRequest) -> None:
        with HttpReply(request, self._open, self._deadlines) as reply:
            token_map = request.token_map or self._core.session_map
            call = enveloped_call(message.params, request.principal, token_map, reply, request.size, request.headers)
            frame, code = await self._core.answer(message.id, message.method, message.params, call)
            await reply.finish(frame, ERROR_STATUS.get(code, 200))


class _Pushes:
    """The events of one response, for which no client can come back."""

    def __init__(self, dropped: Callable[[], None]) -> None:
        self.ready = asyncio.Event()
        self.over = False
        self.stream = Outbox(self.ready.set, dropped)

    def finish(self, frame: bytes | None) -> None:
        self.over = True
        if frame is not None:
            self.stream.put(frame)

    def take(self) -> bytes:
        return b"".join(map(encode_message, self.stream.take()))

    def leave(self) -> bool:
        """Return False: the client is gone for good."""
        return False

    def detach(self) -> None:
        """Do nothing: nothing of the response is kept."""


async def _send_answer(request: HttpRequest, answer: WrittenAnswer) -> None:
    frame, code = answer
    await send_frame(request.send, ERROR_STATUS.get(code, 200), frame)
