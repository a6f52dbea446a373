"""Who is talking to us: a client of the handshake era from its `initialize` on, and any one request while it runs.

Implements what the proxy knows about a client (`ClientSession`, `Caller`) over a `Stream`, regardless of the transport.
It knows no methods.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway.errors import RpcError
from gateway.protocol.eras import CAPABILITIES_KEY, LOG_LEVEL_KEY, meta_of
from gateway.protocol.messages import METHOD_NOT_FOUND
from gateway.proxy.caller import Principal
from gateway.serve.mcp.client_requests import Asks
from gateway.serve.mcp.outbox import Stream
from leaf_sdk.vocab import TokenMap


class Session:
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
        self.session_id = session_id
        self.asks = Asks(capabilities)
        self.stream = stream

    def announce(self, version: str, capabilities: Mapping[str, Any], token_map: TokenMap | None) -> None:
        """Take what `initialize` says, where the session was there before it."""
        self.version, self.capabilities, self.token_map = version, capabilities, token_map
        self.asks = Asks(capabilities)

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
class Call:
    """One request of a client while it runs."""

    modern: bool
    capabilities: Mapping[str, Any]
    log_level: str | None
    principal: Principal
    session: Session | None
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
            raise RpcError({"code": METHOD_NOT_FOUND, "message": f"a client of 2026-07-28 can't be asked {method!r}"})
        return await self.session.asks.ask(self.stream, method, params)


def session_call(
    session: Session,
    stream: Stream,
    size: int,
    headers: Mapping[str, str] | None = None,
    token_map: TokenMap | None = None,
    principal: Principal | None = None,
) -> Call:
    """The call of a request in a session of the handshake era.

    Args:
        token_map: overrides the session's map.
        principal: the session's, with the headers of this request; None: as the session has it.
    """
    is_modern = False
    # Arguments by position, here and below: by name the call takes twice the time.
    return Call(
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
) -> Call:
    """The call of a 2026-07-28 request whose envelope was checked. Its `_meta` describes the client."""
    meta = meta_of(params)
    level: object = meta.get(LOG_LEVEL_KEY)
    is_modern, log_level, session = True, level if isinstance(level, str) else None, None
    return Call(is_modern, meta[CAPABILITIES_KEY], log_level, principal, session, token_map, stream, size, headers)
