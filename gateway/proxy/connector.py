"""Opens the connection to each server: to a program, a URL, or bolt-on tools.

Holds what all connections share (the HTTP client, the watchdog, the accepted token maps) as long as the proxy lives.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from gateway.config.gateway_config import LimitsConfig, UpstreamConfig
from gateway.observe.logs import get_logger
from gateway.observe.metrics import Metrics
from gateway.proxy.bolt_on import HeldMaps, KnownMaps, open_bolt_on
from gateway.proxy.results import WrittenIds
from gateway.proxy.transport.http.client import Authorizer
from gateway.proxy.transport.http.http_transport import HttpClient, open_http, open_http_client
from gateway.proxy.transport.oauth.discovery import fetcher_for
from gateway.proxy.transport.oauth.grants import GrantStore
from gateway.proxy.transport.oauth.token_endpoint import TokenExchange
from gateway.proxy.transport.oauth.token_renewal import SignedIn, authorizer_for
from gateway.proxy.transport.stdio.server_process import Watchdog
from gateway.proxy.transport.stdio.stdio_transport import open_stdio
from gateway.proxy.transport.transport_interface import Pending, Transport
from gateway.proxy.upstream.session.session import ForNobody, Session
from gateway.proxy.upstream.supervision.session_member import Connect

if TYPE_CHECKING:
    from gateway.observe.tracing import Tracing


# If tracing is off, a call passes through none of this code.


class TracedTransport:
    """A `Transport` around another one."""

    def __init__(self, transport: Transport, config: UpstreamConfig, tracing: "Tracing") -> None:
        self._transport = transport
        self._server = config.name
        self._kind: Literal["tcp", "pipe"] = "pipe" if config.command is not None else "tcp"
        self._tracing = tracing
        self._version: str | None = None

    @property
    def closed(self) -> asyncio.Event:
        """See `Transport`."""
        return self._transport.closed

    @property
    def first_number(self) -> int:
        """See `Transport`."""
        return self._transport.first_number

    @property
    def unread(self) -> str:
        """See `Transport.unread`."""
        return self._transport.unread

    def use_version(self, version: str) -> None:
        """See `Transport`."""
        self._version = version
        self._transport.use_version(version)

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        exchange: Pending | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        written: WrittenIds | None = None,
    ) -> dict[str, Any]:
        """See `Transport.request`. Runs in a client span; requests for our own housekeeping get none."""
        if not self._tracing.wants(method):
            return await self._transport.request(method, params, exchange, headers=headers, written=written)
        with self._tracing.client_span(
            self._server, method, params, version=self._version, transport=self._kind
        ) as traced:
            result = await self._transport.request(method, traced.params, exchange, headers=headers, written=written)
            traced.answered(result)
            return result

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """See `Transport`."""
        await self._transport.notify(method, params)


@asynccontextmanager
async def traced_transport(
    opening: AbstractAsyncContextManager[Transport], config: UpstreamConfig, tracing: "Tracing"
) -> AsyncGenerator[Transport, None]:
    """Open the transport that `opening` opens, with spans around its requests."""
    async with opening as transport:
        yield TracedTransport(transport, config, tracing)


_FRAME: Final = 1024
"""Bytes of a message in addition to its result: id, version, braces."""


class Connector:
    """Makes transports. Enter it once, around everything that opens connections."""

    def __init__(
        self,
        limits: LimitsConfig,
        metrics: Metrics,
        known: KnownMaps,
        tracing: "Tracing | None",
        host: Path | None = None,
        grants: GrantStore | None = None,
    ) -> None:
        """Opens nothing before the context is entered.

        Args:
            known: the accepted token maps.
            tracing: makes spans for requests; None: there are none.
            host: socket of the parent that runs the servers' processes for several workers; None: we run them.
            grants: the sign-ins; None: those of this machine alone.
        """
        self.maps = HeldMaps(known)
        """The accepted token maps, for bolt-ons."""
        self._metrics = metrics
        self._tracing = tracing
        self._bound = limits.result_bytes + _FRAME
        self._stack = AsyncExitStack()
        self._client: HttpClient | None = None
        self._watchdog = Watchdog()
        self.grants = grants or GrantStore()
        """The sign-ins at servers."""
        self._host = host

    async def __aenter__(self) -> Self:
        """Open what the connections share."""
        self._stack.push_async_callback(self._watchdog.close)
        self._client = await self._stack.enter_async_context(open_http_client())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close what the connections share. Every transport must be closed by then."""
        await self._stack.aclose()

    def sign_in(self, config: UpstreamConfig, owner: str) -> SignedIn:
        """The sign-in of one owner at this server."""
        if self._client is None:
            raise RuntimeError("connected outside `async with connector`")
        log = get_logger("gateway.proxy").bind(server=config.name)
        return SignedIn(config, owner, fetcher_for(config, self._client), self.grants, log)

    def exchange(self, config: UpstreamConfig) -> TokenExchange:
        """What exchanges one principal's access tokens for those of this server."""
        if self._client is None or config.exchange is None or config.url is None:
            raise RuntimeError("connected outside `async with connector`, or to a server that exchanges no tokens")
        log = get_logger("gateway.proxy").bind(server=config.name)
        return TokenExchange(config.url, config.exchange, self._client, log)

    def connect(self, config: UpstreamConfig, authorizer: Authorizer | None = None) -> Connect:
        """Return the function that opens a transport to this server. `authorizer`: whose tokens are sent; None: those
        that every caller uses."""
        log = get_logger("gateway.proxy").bind(server=config.name)
        metrics, tracing = self._metrics, self._tracing

        def connect(session: Session) -> AbstractAsyncContextManager[Transport]:
            if config.command is not None and self._host is not None:
                # Imported here because a gateway of one process does not need it.
                from gateway.proxy.transport.stdio.hosted import open_hosted

                unclaimed = ForNobody(session) if session.main else None
                return open_hosted(config, session, self._host, unclaimed=unclaimed, line_bound=self._bound, log=log)
            if config.command is not None:
                return open_stdio(config, session, line_bound=self._bound, log=log, watchdog=self._watchdog)
            if self._client is None:
                raise RuntimeError("connected outside `async with connector`")
            if config.manifest is not None:
                return open_bolt_on(
                    config,
                    session,
                    bound=self._bound,
                    log=log,
                    client=self._client,
                    maps=self.maps,
                    metrics=metrics,
                    called=metrics.servers.bolt_on_called,
                )
            tokens = authorizer or authorizer_for(config, self._client, self.grants, log)
            return open_http(config, session, bound=self._bound, log=log, client=self._client, authorizer=tokens)

        return connect if tracing is None else lambda session: traced_transport(connect(session), config, tracing)
