"""A transport whose requests are spans: what is sent to the server carries the trace context.

Wraps the transport if tracing is on; if it is off, a call passes through none of this code. It knows no collector.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal

from gateway.config.model import UpstreamConfig
from gateway.proxy.results import WrittenIds
from gateway.proxy.transport.interface import Pending, Transport

if TYPE_CHECKING:
    from gateway.observe.tracing import Tracing


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
