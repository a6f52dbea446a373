"""The services that need no engine: servers, the ids of their results, and the records of calls.

Turns the settings and the accepted maps into a proxy and all that it needs. `stdio` has only these; with an engine,
`services.py` adds the agent. The two are separate modules because a desktop client has to wait for every import.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from gateway.app.records import Records, open_records
from gateway.app.shared import open_shared
from gateway.config import GatewayConfig
from gateway.config.replicas import NOTHING_SHARED, ReplicasConfig, SharedConfig
from gateway.engine.start.maps import MapSet
from gateway.observe.logs import get_logger
from gateway.observe.metrics import Metrics
from gateway.observe.notices import TokenNotices
from gateway.proxy import Proxy, ResultTokens
from gateway.proxy.transport.oauth.grants import GrantStore
from gateway.proxy.upstream.server_lists import ListCache
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
    """The store that all replicas share; None: there is none, and each keeps its own state."""

    def mcp_endpoint(self, session_map: str | None = None) -> McpEndpoint:
        """Create the endpoint for MCP clients. `session_map`: the map of those that name none."""
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
    shared: SharedConfig = NOTHING_SHARED,
    list_cache: ListCache | None = None,
) -> AsyncGenerator[McpServices]:
    """Wire up the proxy, which the caller has yet to enter. Raises `ConfigError`.

    Args:
        proven: whether an engine has proved the maps by now.
        shared: the store that all replicas share.
        list_cache: see `Proxy`.
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
        proxy = Proxy(
            *(config, metrics, records.tracing),
            maps=maps,
            name_call=name_call,
            list_cache=list_cache,
            grants=GrantStore(shared=store),
        )
        yield McpServices(proxy, maps, tokens, notices, metrics, records, replicas, store)


def replicas_of(config: ReplicasConfig) -> Replicas:
    """The other replicas, as the settings describe them. Raises `ConfigError` if the secret can't be read."""
    if config.address is None:
        return ALONE
    # Importing the cryptography takes time, and a gateway without replicas does not need it.
    from gateway.replicas.connected import Connected
    from gateway.replicas.keys import ReplicaKeys

    return Connected(ReplicaKeys(config.read_secrets()), config.address, config.port)
