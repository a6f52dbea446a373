"""A wire whose requests are spans: what the server is sent carries the trace's context.

Stands around the wire of stdio or HTTP where tracing is on; where it is off there is none of it on the path of a call.
It knows no collector.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal

from gateway.config.model import UpstreamConfig
from gateway.proxy.transport.protocol import Pending, Wire

if TYPE_CHECKING:
    from gateway.observe.tracing import Tracing


class TracedWire:
    """A `Wire` around another one."""

    def __init__(self, wire: Wire, config: UpstreamConfig, tracing: "Tracing") -> None:
        self._wire = wire
        self._server = config.name
        self._transport: Literal["tcp", "pipe"] = "pipe" if config.command is not None else "tcp"
        self._tracing = tracing
        self._version: str | None = None

    @property
    def closed(self) -> asyncio.Event:
        """As `Wire`."""
        return self._wire.closed

    @property
    def correlates(self) -> bool:
        """As `Wire`."""
        return self._wire.correlates

    def speak(self, version: str) -> None:
        """As `Wire`."""
        self._version = version
        self._wire.speak(version)

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        exchange: Pending | None = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """As `Wire`, inside a client span; our own housekeeping is none."""
        if not self._tracing.wants(method):
            return await self._wire.request(method, params, exchange, headers=headers)
        with self._tracing.client_span(
            self._server, method, params, version=self._version, transport=self._transport
        ) as traced:
            result = await self._wire.request(method, traced.params, exchange, headers=headers)
            traced.answered(result)
            return result

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """As `Wire`."""
        await self._wire.notify(method, params)


@asynccontextmanager
async def traced_wire(
    opening: AbstractAsyncContextManager[Wire], config: UpstreamConfig, tracing: "Tracing"
) -> AsyncGenerator[Wire, None]:
    """The wire that `opening` opens, with spans around its requests."""
    async with opening as wire:
        yield TracedWire(wire, config, tracing)
