"""Each conversation of `/v1` is answered by one of several workers, in which it is remembered: its home.

An ASGI layer before the endpoints. Turns the first question of a conversation and the principal who asks it into a
worker (`engine/pool/engine_choice.py`), and sends the request on to it. If that worker can't be reached, the request is
answered here. A request that names a stored response is left to its endpoint, which knows where that response lives.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, cast

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.engine.pool.engine_choice import key_of, order_of
from gateway.errors import GatewayError, NotAnswered
from gateway.replicas import Replica, Replicas
from gateway.serve.http.error_answers import RETRY_SOON, ReplicaAnswer, error_answer, error_response
from gateway.serve.http.request_parts import new_request_id, principal_of, read_body
from gateway.serve.messages.message_reply import form_of
from gateway.serve.openai.chat_reply import OPENAI
from gateway.serve.responses.items import named_by
from gateway.serve.responses.response_request import broken_off


def _broken_chat(error: NotAnswered, _events: int) -> bytes:
    return OPENAI.events([error_answer(error)[1]]) + OPENAI.last


def _broken_messages(error: NotAnswered, _events: int) -> bytes:
    form = form_of(new_request_id())
    return form.events([form.refuse(error)[1]])


_BROKEN: Final[Mapping[str, Callable[[NotAnswered, int], bytes]]] = {
    "/v1/chat/completions": _broken_chat,
    "/v1/messages": _broken_messages,
    "/v1/responses": broken_off,
}
"""For each path that serves conversations: makes the events that end a stream that broke off."""


class AtHome:
    """Wraps the endpoints of one of several workers."""

    def __init__(self, app: ASGIApp, replicas: Replicas, peers: Sequence[str], most: int) -> None:
        """`peers`: addresses of all workers; `most`: how many bytes a body may have."""
        self._app = app
        self._replicas = replicas
        self._peers = peers
        self._most = most

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer a request here, or send it on to the home of its conversation."""
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] not in _BROKEN:
            return self._app(scope, receive, send)
        return self._choose(scope, receive, send)

    async def _choose(self, scope: Scope, receive: Receive, send: Send) -> None:
        parts = await _read(receive, self._most)
        again = _replay(parts, receive)
        home = await self._home(scope, _replay(parts, receive))
        if home is None:
            await self._app(scope, again, send)
            return

        async def unanswered(error: NotAnswered) -> ASGIApp:
            if error.asked:
                return error_response(503, f"{error.message}: ask again", code="replica_lost", headers=RETRY_SOON)
            return lambda scope, _, send: self._app(scope, _replay(parts, receive), send)

        broken = _BROKEN[scope["path"]]
        await ReplicaAnswer(self._replicas, home, None, unanswered=unanswered, broken=broken)(scope, again, send)

    async def _home(self, scope: Scope, receive: Receive) -> Replica | None:
        """The other worker that is the home of the conversation. None: the request is answered here."""
        try:
            asked = json.loads(await read_body(Request(scope, receive), self._most))
        except (GatewayError, ValueError, RecursionError):
            # The endpoint says what is wrong with the request.
            return None
        question = _first_question(cast("dict[str, Any]", asked)) if isinstance(asked, dict) else None
        if question is None:
            return None
        return self._replicas.at(self._peers[home_of(principal_of(scope).name, question, len(self._peers))], scope)


def home_of(principal: str, question: str, workers: int) -> int:
    """The number of the worker that is the home of a conversation. Numbers, because addresses change at each start."""
    return int(order_of(key_of(principal, question), map(str, range(workers)))[0])


def _first_question(asked: Mapping[str, Any]) -> str | None:
    """The question that decides a conversation's home: all that follows it or stands beside it may change."""
    given = asked.get("input")
    if "stream_format" in asked or named_by(asked.get("previous_response_id"), given).routing_id is not None:
        # Frames are not events: the worker that is asked for them makes them.
        return None
    if isinstance(given, str):
        return given
    messages = asked.get("messages", given)
    for each in cast("list[Any]", messages) if isinstance(messages, list) else []:
        if isinstance(each, Mapping) and cast("Mapping[str, Any]", each).get("role") == "user":
            return _text(cast("Mapping[str, Any]", each).get("content"))
    return None


def _text(content: object) -> str:
    """The text of a message, without what clients add to it for a single request."""
    if isinstance(content, str):
        return content
    parts = cast("list[Any]", content) if isinstance(content, list) else []
    return "\n".join(str(cast("Mapping[str, Any]", part).get("text")) for part in parts if isinstance(part, Mapping))


async def _read(receive: Receive, most: int) -> list[Message]:
    """The parts of a body, up to its end or a little beyond the bound."""
    parts: list[Message] = []
    size = 0
    while not parts or (parts[-1].get("more_body", False) and size <= most):
        parts.append(await receive())
        size += len(parts[-1].get("body", b""))
    return parts


def _replay(parts: Sequence[Message], receive: Receive) -> Receive:
    """A `Receive` that gives a request again from its beginning: first these parts, then what follows them."""
    unread = iter(parts)

    async def read() -> Message:
        message = next(unread, None)
        return await receive() if message is None else message

    return read
