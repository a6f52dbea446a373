"""The services that stand without an engine: servers, their results' ids, and what is written down of calls.

Turns the settings and the accepted maps into a proxy and all that it needs. `stdio` has no more; with an engine,
`services.py` puts the agent on top. Apart from it because a desktop client waits for what is imported.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from gateway.app.records import Records, open_records
from gateway.app.shared import open_shared
from gateway.config import GatewayConfig
from gateway.config.replicas import ReplicasConfig
from gateway.config.shared import NOTHING_SHARED, SharedConfig
from gateway.engine.maps import MapSet
from gateway.observe.logs import get_logger
from gateway.observe.metrics import Metrics
from gateway.observe.notices import TokenNotices
from gateway.proxy import Proxy, ResultTokens
from gateway.proxy.upstream.sampling import Sampler
from gateway.replicas import ALONE, Replicas
from gateway.serve.mcp import McpEndpoint
from gateway.shared import Shared


@dataclass(frozen=True, slots=True)
class McpServices:
    """What MCP clients need."""

    proxy: Proxy
    maps: MapSet
    tokens: ResultTokens
    notices: TokenNotices
    metrics: Metrics
    records: Records
    replicas: Replicas
    shared: Shared | None
    """What all replicas ask; None: each has what it has."""

    def mcp_endpoint(self, session_map: str | None = None) -> McpEndpoint:
        """The endpoint of these clients; `session_map`: of those that name none."""
        return McpEndpoint(
            self.proxy,
            self.proxy.config,
            tokens=self.tokens,
            maps=self.maps.accepted,
            session_map=session_map,
            metrics=self.metrics,
            audit=self.records.audit,
            tracing=self.records.tracing,
            replicas=self.replicas,
            shared=self.shared,
        )


@asynccontextmanager
async def open_mcp_services(
    config: GatewayConfig,
    maps: MapSet,
    *,
    proven: Callable[[], bool] = lambda: False,
    sampler: Sampler | None = None,
    shared: SharedConfig = NOTHING_SHARED,
) -> AsyncGenerator[McpServices]:
    """Wire the proxy, which is to be entered yet. Raises `ConfigError`.

    Args:
        proven: whether an engine has proved the maps by now.
        sampler: generates for the servers that the operator lets sample.
        shared: the store of all replicas.
    """
    metrics = Metrics()
    notices = TokenNotices(get_logger("tokens"))
    tokens = ResultTokens(maps.accepted, level=config.tokens.verify, metrics=metrics, notices=notices, proven=proven)
    replicas = replicas_of(config.replicas)
    async with (
        open_records(config, metrics.access) as records,
        open_shared(shared, replicas, metrics.shared) as store,
    ):
        name_call = partial(replicas.name, "parked call")
        proxy = Proxy(config, metrics, records.tracing, maps=maps, sampler=sampler, name_call=name_call)
        yield McpServices(proxy, maps, tokens, notices, metrics, records, replicas, store)


def replicas_of(config: ReplicasConfig) -> Replicas:
    """The others, as the settings have them. Raises `ConfigError` for a secret that can't be read."""
    if config.address is None:
        return ALONE
    # Cryptography, which a gateway alone does not need, takes its time.
    from gateway.replicas.connected import Connected
    from gateway.replicas.keys import ReplicaKeys

    return Connected(ReplicaKeys(config.read_secrets()), config.address, config.port)
