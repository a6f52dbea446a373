"""Requests that the gateway sends to a handshake-era client: sampling, elicitation, roots.

Turns a request into a frame with an id of the gateway's own, and the client's answer into the result. If nobody waits
for the answer any more, the client is told. It knows no transport.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from gateway.errors import RpcError
from gateway.protocol.client_bounds import excess_of_answer
from gateway.protocol.messages import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    Failure,
    Response,
    encode_notification,
    encode_request,
)
from gateway.serve.mcp.outbox import Stream

_MOST: Final = 64
_NEEDS: Final = {
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
    "roots/list": "roots",
}
"""By method, the capability that a client must have announced to be asked."""


class Asks:
    """The requests that one client was sent and has not answered. Their ids are the texts `g1`, `g2`, ..."""

    def __init__(self, capabilities: Mapping[str, Any]) -> None:
        """`capabilities`: what the client announced."""
        self._capabilities = capabilities
        self._number = 0
        self._waiting: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._closed = False

    async def ask(self, stream: Stream, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the client; returns its raw result. If the caller is cancelled, the client is told.

        Raises:
            RpcError: the client refuses, did not announce the capability, has too many unanswered requests, does not
                read, or is gone; or its answer exceeds the bounds of what is passed on.
        """
        if (needed := _NEEDS.get(method)) is not None and needed not in self._capabilities:
            raise RpcError({"code": METHOD_NOT_FOUND, "message": f"the client did not announce {needed!r}"})
        if self._closed or len(self._waiting) >= _MOST:
            cause = "is gone" if self._closed else f"has {_MOST} unanswered requests"
            raise RpcError({"code": INTERNAL_ERROR, "message": f"the client {cause}: {method!r} was not asked"})
        self._number += 1
        own_id = f"g{self._number}"
        if not stream.offer(encode_request(own_id, method, params)):
            cause = "does not read what it is sent"
            raise RpcError({"code": INTERNAL_ERROR, "message": f"the client {cause}: {method!r} was not asked"})
        future = self._waiting[own_id] = asyncio.get_running_loop().create_future()
        try:
            result = await future
        except asyncio.CancelledError:
            told = {"requestId": own_id, "reason": "the answer is no longer needed"}
            stream.put(encode_notification("notifications/cancelled", told))
            raise
        finally:
            self._waiting.pop(own_id, None)
        if (why := excess_of_answer(method, result)) is not None:
            raise RpcError({"code": INTERNAL_ERROR, "message": why})
        return result

    def settle(self, message: Response | Failure) -> None:
        """Take an answer of the client's. An answer that nobody waits for is ignored."""
        future = self._waiting.get(message.id) if isinstance(message.id, str) else None
        if future is None or future.done():
            return
        if isinstance(message, Response):
            future.set_result(message.result)
        else:
            future.set_exception(RpcError(message.error))

    def close(self) -> None:
        """End all waiting with an error: the client is gone."""
        self._closed = True
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(RpcError({"code": INTERNAL_ERROR, "message": "the client is gone"}))
