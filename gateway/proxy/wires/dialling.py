"""How a connection to each server is made: a program or a URL.

Holds what all connections share (the HTTP client) for as long as the proxy lives. `proxy.py` stands above, `stdio.py`
and `http.py` below.
"""

from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from gateway.config.model import LimitsConfig, UpstreamConfig
from gateway.observe.logs import get_logger
from gateway.proxy.upstreams.members import Dial
from gateway.proxy.upstreams.session import Session
from gateway.proxy.wires.http import HttpClient, open_http, open_http_client
from gateway.proxy.wires.stdio import open_stdio
from gateway.proxy.wires.traced import traced_wire
from gateway.proxy.wires.wire import Wire

if TYPE_CHECKING:
    from gateway.observe.tracing import Tracing

_FRAME: Final = 1024
"""Bytes of a message besides its result: id, version, braces."""


class Dialler:
    """Makes wires. Enter it once, around everything that dials."""

    def __init__(self, limits: LimitsConfig, tracing: "Tracing | None" = None) -> None:
        """Nothing is opened before the context is entered. `tracing`: None: no spans are made."""
        self._tracing = tracing
        self._bound = limits.result_bytes + _FRAME
        self._stack = AsyncExitStack()
        self._client: HttpClient | None = None

    async def __aenter__(self) -> Self:
        """Make what the connections share."""
        self._client = await self._stack.enter_async_context(open_http_client())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it. Every wire is to be closed by then."""
        await self._stack.aclose()

    def dial(self, config: UpstreamConfig) -> Dial:
        """What opens a wire to this server."""
        log = get_logger("gateway.proxy").bind(server=config.name)

        def dial(session: Session) -> AbstractAsyncContextManager[Wire]:
            if config.url is None:
                return open_stdio(config, session, line_bound=self._bound, log=log)
            if self._client is None:
                raise RuntimeError("dialled outside `async with dialler`")
            return open_http(config, session, bound=self._bound, log=log, client=self._client)

        tracing = self._tracing
        return dial if tracing is None else lambda session: traced_wire(dial(session), config, tracing)
