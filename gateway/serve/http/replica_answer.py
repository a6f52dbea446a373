"""The answer to a request that another replica has to give.

Turns a request, whose body may have been read already, into one that is sent on complete. The caller says what answers
if the other replica does not.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.errors import NotAnswered
from gateway.replicas import Replica, Replicas

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
