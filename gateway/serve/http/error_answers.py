"""The gateway's errors as HTTP answers, in OpenAI's shape or in Anthropic's: the only place that decides this.

Our own messages are written for the person who reads them and are sent as they are. An unforeseen error goes to the log
with its traceback, and the client learns only that it happened. What another replica has to answer is sent on to it.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.errors import (
    ContextExceeded,
    EngineLost,
    EngineRefused,
    EngineUnavailable,
    GatewayError,
    MapDiffers,
    MapUnknown,
    ModelUnknown,
    NotAnswered,
    ReplicaBusy,
    RequestInvalid,
    TemplateRefused,
    UnknownTool,
)
from gateway.observe.logs import get_logger
from gateway.replicas import Replica, Replicas
from gateway.serve.http.request_parts import BodyOverLimit, BodyUnread, new_request_id

# Clients of Anthropic's API distinguish errors by `type` and status, and quote `request_id` to the operator of the
# server. Source: Anthropic's API reference, "Errors".

REQUEST_ID: Final = "request-id"
"""The header that holds the request's id in each answer."""
OVERLOADED: Final = 529
"""The status that Anthropic's API uses in place of 503: try again later."""

_PATH: Final = "/v1/messages"
_VERSION: Final = b"anthropic-version"
_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    OVERLOADED: "overloaded_error",
}


def speaks_anthropic(scope: Scope) -> bool:
    """Whether the client reads this shape: by the path, or by the version header, which only such clients send."""
    path = scope["path"]
    return path == _PATH or path.startswith(f"{_PATH}/") or any(name == _VERSION for name, _ in scope["headers"])


def anthropic_error(status: int, message: str, request_id: str) -> tuple[int, dict[str, Any]]:
    """Anthropic's status and body for an error whose ordinary HTTP status is `status`."""
    shown = OVERLOADED if status == 503 else status
    other = "invalid_request_error" if shown < 500 else "api_error"
    error = {"type": _TYPES.get(shown, other), "message": message}
    return shown, {"type": "error", "error": error, "request_id": request_id}


RETRY_SOON: Final[Mapping[str, str]] = {"retry-after": "2"}
"""Header of an answer that asks the client to try again soon."""

log = get_logger("serve")

_KINDS: Final[tuple[tuple[type[GatewayError], int, str, str], ...]] = (
    (BodyOverLimit, 413, "invalid_request_error", "body_too_large"),
    (BodyUnread, 415, "invalid_request_error", "unsupported_media_type"),
    (ModelUnknown, 404, "invalid_request_error", "model_not_found"),
    (ContextExceeded, 400, "invalid_request_error", "context_length_exceeded"),
    (RequestInvalid, 400, "invalid_request_error", "invalid_value"),
    (ReplicaBusy, 503, "server_error", "replica_busy"),
    (NotAnswered, 503, "server_error", "replica_lost"),
    (MapUnknown, 400, "invalid_request_error", "map_unknown"),
    (UnknownTool, 400, "invalid_request_error", "unknown_tool"),
    (TemplateRefused, 400, "invalid_request_error", "template_refused"),
    (MapDiffers, 503, "engine_error", "map_differs"),
    (EngineLost, 503, "engine_error", "engine_lost"),
    (EngineUnavailable, 503, "engine_error", "engine_unavailable"),
    (EngineRefused, 502, "engine_error", "engine_refused"),
)


def error_answer(error: Exception) -> tuple[int, dict[str, Any]]:
    """Status and body for an error. The first matching row of `_KINDS` decides; an unforeseen error is logged."""
    for kind, status, type_name, code in _KINDS:
        if isinstance(error, kind):
            return status, error_body(error.message, type_name, code, getattr(error, "param", None))
    log.error("request failed", exc_info=error)
    return 500, error_body("the gateway failed; its log says why", "server_error", "internal_error", None)


async def no_such_path(request: Request, error: Exception) -> Response:
    """The answer to a path or method that no endpoint has, in the same shape."""
    if isinstance(error, HTTPException) and error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "another method")
        words = f"{request.url.path} does not take {request.method}: send {allowed}"
        return error_response(405, words, code="not_found", headers=error.headers)
    words = (
        f"{request.method} {request.url.path} is not served here; see /v1/chat/completions, /v1/responses, "
        "/v1/messages, /v1/completions, /mcp"
    )
    return error_response(404, words, code="not_found")


class Refusal(Response):
    """The answer to a request that is not served, in the shape of the API that the request was meant for."""

    def __init__(self, status: int, message: str, code: str, headers: Mapping[str, str] | None) -> None:
        self.status_code = status
        self.background = None
        self._message = message
        self._code = code
        self._headers = headers or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        if speaks_anthropic(scope):
            named = new_request_id()
            status, body = anthropic_error(self.status_code, self._message, named)
            answer = JSONResponse(body, status, {**self._headers, REQUEST_ID: named})
        else:
            kind = "server_error" if self.status_code >= 500 else "invalid_request_error"
            body = error_body(self._message, kind, self._code, None)
            answer = JSONResponse(body, self.status_code, self._headers)
        await answer(scope, receive, send)


def error_response(status: int, message: str, *, code: str, headers: Mapping[str, str] | None = None) -> Refusal:
    """The answer to a request that is refused."""
    return Refusal(status, message, code, headers)


def error_body(message: str, type_name: str, code: str, param: str | None) -> dict[str, Any]:
    """An error in OpenAI's shape."""
    return {"error": {"message": message, "type": type_name, "param": param, "code": code}}


_OF_THE_BODY: Final = frozenset({b"content-length", b"content-encoding"})


class ReplicaAnswer(Response):
    """The answer from the replica that owns what a request names."""

    def __init__(
        self,
        replicas: Replicas,
        owner: Replica,
        body: bytes | None,
        *,
        unanswered: Callable[[NotAnswered], Awaitable[ASGIApp]],
        broken: Callable[[NotAnswered, int], bytes],
    ) -> None:
        """Nothing is sent on yet.

        Args:
            body: the request's body, decompressed, if it was read; None: it was not.
            unanswered: gives the answer if the other replica does not answer.
            broken: gives the event that ends a stream which broke off, from the error and the number of events before.
        """
        self._replicas = replicas
        self._owner = owner
        self._body = body
        self._unanswered = unanswered
        self._broken = broken
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have the other replica answer."""
        events = 0

        async def count(message: Message) -> None:
            nonlocal events
            events += message.get("body", b"").count(b"\n\n")
            await send(message)

        def broken(error: NotAnswered) -> bytes:
            return self._broken(error, events)

        asked, read = (scope, receive) if self._body is None else replay_body(scope, receive, self._body)
        try:
            await self._replicas.forward(self._owner, asked, read, count, broken)
            return
        except NotAnswered as error:
            answer = await self._unanswered(error)
        await answer(scope, receive, send)


def replay_body(scope: Scope, receive: Receive, body: bytes) -> tuple[Scope, Receive]:
    """A request whose body was read, made readable again: with this body, whatever its coding was."""
    unread = [body]

    async def read() -> Any:
        return {"type": "http.request", "body": unread.pop()} if unread else await receive()

    headers = [pair for pair in scope["headers"] if pair[0].lower() not in _OF_THE_BODY]
    return {**scope, "headers": [*headers, (b"content-length", b"%d" % len(body))]}, read
