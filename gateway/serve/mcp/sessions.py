"""Who speaks to us: a client of the handshake era from its `initialize` on, and any one request while it runs.

Implements what the proxy knows of a client (`ClientSession`, `Caller`) over a `Stream`, whatever that is written to. It
knows no method and no transport.
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
        """What its `initialize` said.

        Args:
            session_id: its name in HTTP's headers.
            version: the negotiated one.
            stream: where goes what belongs to no request of the client's.
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

    @property
    def idle_since(self) -> float | None:
        """One that is connected all the time is never idle."""
        return None

    def notified(self, method: str, params: dict[str, Any]) -> None:
        """A notification for the client, outside of any request."""
        self.stream.tell(method, params)

    async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """A request to the client, outside of any request of its own. Raises RpcError."""
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
    """The map that its result is to speak."""
    stream: Stream
    """Where goes what belongs to this request."""
    size: int
    """Bytes that it came in."""
    headers: Mapping[str, str] | None
    """Those of HTTP; None: it came over none."""

    def notified(self, method: str, params: dict[str, Any]) -> None:
        """A notification that belongs to this request. A modern client hears log messages only if it asked for them."""
        if self.modern and self.log_level is None and method == "notifications/message":
            return
        self.stream.tell(method, params)

    async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """A request that belongs to this one. Raises RpcError, always in the modern era: nobody can be asked there."""
        if self.session is None:
            raise RpcError({"code": METHOD_NOT_FOUND, "message": f"a client of 2026-07-28 can't be asked {method!r}"})
        return await self.session.asks.ask(self.stream, method, params)


def session_call(
    session: Session,
    stream: Stream,
    size: int,
    headers: Mapping[str, str] | None = None,
    token_map: TokenMap | None = None,
) -> Call:
    """A request in a session of the handshake era; `token_map`: where it names another than its session did."""
    is_modern = False
    # By position, here and below: by name it takes twice the time.
    return Call(
        is_modern,
        session.capabilities,
        session.log_level,
        session.principal,
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
    """A request of 2026-07-28, whose envelope is in order: what it says of its client stands in its `_meta`."""
    meta = meta_of(params)
    level: object = meta.get(LOG_LEVEL_KEY)
    is_modern, log_level, session = True, level if isinstance(level, str) else None, None
    return Call(is_modern, meta[CAPABILITIES_KEY], log_level, principal, session, token_map, stream, size, headers)
