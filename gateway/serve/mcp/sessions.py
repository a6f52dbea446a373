"""Who is talking to us: a client of the handshake era from its `initialize` on, and any one request while it runs.

Implements what the proxy knows about a client (`ClientSession`, `Caller`) over a `Stream`, regardless of the transport.
It knows no methods.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gateway.errors import RpcError, rpc_error
from gateway.protocol.eras import CAPABILITIES_KEY, LOG_LEVEL_KEY, excess_of_answer, meta_of
from gateway.protocol.messages import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    Failure,
    Response,
    encode_notification,
    encode_request,
)
from gateway.proxy.caller import Principal
from gateway.serve.mcp.outbox import Stream
from leaf_sdk.vocab import TokenMap

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
            raise rpc_error(METHOD_NOT_FOUND, f"the client did not announce {needed!r}")
        if self._closed or len(self._waiting) >= _MOST:
            cause = "is gone" if self._closed else f"has {_MOST} unanswered requests"
            raise rpc_error(INTERNAL_ERROR, f"the client {cause}: {method!r} was not asked")
        self._number += 1
        own_id = f"g{self._number}"
        if not stream.offer(encode_request(own_id, method, params)):
            cause = "does not read what it is sent"
            raise rpc_error(INTERNAL_ERROR, f"the client {cause}: {method!r} was not asked")
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
            raise rpc_error(INTERNAL_ERROR, why)
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
                future.set_exception(rpc_error(INTERNAL_ERROR, "the client is gone"))


class McpSession:
    """A client of the handshake era."""

    def __init__(
        self,
        *,
        version: str,
        capabilities: Mapping[str, Any],
        principal: Principal,
        token_map: TokenMap | None,
        stream: Stream,
        session_id: str = "",
    ) -> None:
        """Make a session from what its `initialize` said.

        Args:
            session_id: its id in HTTP's headers; empty on other transports.
            version: the negotiated protocol version.
            stream: gets everything that belongs to no request of the client's.
        """
        self.version = version
        self.capabilities = capabilities
        self.principal = principal
        self.token_map = token_map
        self.log_level: str | None = None
        self.times_heard = 0
        self.result_limit: int | None = None
        """Characters of a result that the client said it takes, in its `initialize`; None: it said nothing."""
        self.session_id = session_id
        self.asks = Asks(capabilities)
        self.stream = stream

    def announce(self, version: str, capabilities: Mapping[str, Any], token_map: TokenMap | None) -> None:
        """Take what `initialize` says, where the session was there before it."""
        self.version, self.capabilities, self.token_map = version, capabilities, token_map
        self.asks = Asks(capabilities)

    def take_results_up_to(self, characters: int | None) -> None:
        """Note how many characters of a result the client takes."""
        self.result_limit = characters

    @property
    def idle_since(self) -> float | None:
        """Always None: a client that stays connected is never idle."""
        return None

    def notified(self, method: str, params: dict[str, Any]) -> None:
        """Send the client a notification, outside of any request."""
        self.stream.tell(method, params)

    async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send the client a request, outside of any request of its own; returns its result. Raises RpcError."""
        return await self.asks.ask(self.stream, method, params)


@dataclass(slots=True, eq=False)
class ClientCall:
    """One request of a client while it runs."""

    modern: bool
    capabilities: Mapping[str, Any]
    log_level: str | None
    principal: Principal
    session: McpSession | None
    token_map: TokenMap | None
    """The map whose ids its result is to carry; None: no ids."""
    stream: Stream
    """Gets everything that belongs to this request."""
    size: int
    """Size of the request in bytes."""
    headers: Mapping[str, str] | None
    """The HTTP headers; None: it did not come over HTTP."""

    def notified(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification that belongs to this request. A modern client gets log messages only if it asked for
        them.
        """
        if self.modern and self.log_level is None and method == "notifications/message":
            return
        self.stream.tell(method, params)

    async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Ask the client something that belongs to this request. Raises RpcError, always so in the modern era, whose
        clients can't be asked.
        """
        if self.session is None:
            raise rpc_error(METHOD_NOT_FOUND, f"a client of 2026-07-28 can't be asked {method!r}")
        return await self.session.asks.ask(self.stream, method, params)


def session_call(
    session: McpSession,
    stream: Stream,
    size: int,
    headers: Mapping[str, str] | None = None,
    token_map: TokenMap | None = None,
    principal: Principal | None = None,
) -> ClientCall:
    """The call of a request in a session of the handshake era. `token_map`: overrides the session's map. `principal`:
    the session's, with the headers of this request; None: as the session has it."""
    is_modern = False
    # Arguments by position, here and below: by name the call takes twice the time.
    return ClientCall(
        is_modern,
        session.capabilities,
        session.log_level,
        session.principal if principal is None else principal,
        session,
        token_map or session.token_map,
        stream,
        size,
        headers,
    )


def enveloped_call(
    params: Mapping[str, Any],
    principal: Principal,
    token_map: TokenMap | None,
    stream: Stream,
    size: int,
    headers: Mapping[str, str] | None = None,
) -> ClientCall:
    """The call of a 2026-07-28 request whose envelope was checked. Its `_meta` describes the client."""
    meta = meta_of(params)
    level: object = meta.get(LOG_LEVEL_KEY)
    is_modern, log_level, session = True, level if isinstance(level, str) else None, None
    return ClientCall(
        is_modern, meta[CAPABILITIES_KEY], log_level, principal, session, token_map, stream, size, headers
    )
