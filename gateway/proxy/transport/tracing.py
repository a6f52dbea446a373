"""A transport whose requests are spans: what the server is sent carries the trace's context.

Stands around the transport of stdio or HTTP where tracing is on; where it is off there is none of it on the path of a
call. It knows no collector.
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
        """As `Transport`."""
        return self._transport.closed

    @property
    def correlates(self) -> bool:
        """As `Transport`."""
        return self._transport.correlates

    @property
    def first_number(self) -> int:
        """As `Transport`."""
        return self._transport.first_number

    def speak(self, version: str) -> None:
        """As `Transport`."""
        self._version = version
        self._transport.speak(version)

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        exchange: Pending | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        written: WrittenIds | None = None,
    ) -> dict[str, Any]:
        """As `Transport`, inside a client span; our own housekeeping gets none."""
        if not self._tracing.wants(method):
            return await self._transport.request(method, params, exchange, headers=headers, written=written)
        with self._tracing.client_span(
            self._server, method, params, version=self._version, transport=self._kind
        ) as traced:
            result = await self._transport.request(method, traced.params, exchange, headers=headers, written=written)
            traced.answered(result)
            return result

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """As `Transport`."""
        await self._transport.notify(method, params)


@asynccontextmanager
async def traced_transport(
    opening: AbstractAsyncContextManager[Transport], config: UpstreamConfig, tracing: "Tracing"
) -> AsyncGenerator[Transport, None]:
    """The transport that `opening` opens, with spans around its requests."""
    async with opening as transport:
        yield TracedTransport(transport, config, tracing)
