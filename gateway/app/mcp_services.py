"""The services that need no engine: servers, the ids of their results, and the records of calls.

Turns the settings and the accepted maps into a proxy and all that it needs. `stdio` has only these; with an engine,
`services.py` adds the agent. The two are separate modules because a desktop client has to wait for every import.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import anyio

from gateway.config.access import TelemetryConfig
from gateway.config.gateway_config import GatewayConfig
from gateway.config.replicas import NOTHING_SHARED, ReplicasConfig, SharedConfig
from gateway.config.show import secrets_of
from gateway.context.large_result_store import ResultStore
from gateway.engine.embedded.engine_process import embedded_model
from gateway.engine.slots.slot_save_restore import model_digest
from gateway.engine.start.maps import MapSet
from gateway.errors import ConfigError
from gateway.observe.audit import Audit
from gateway.observe.backend_metrics import SharedMetrics
from gateway.observe.client_metrics import AccessMetrics
from gateway.observe.logs import TokenNotices, get_logger
from gateway.observe.metrics import Metrics
from gateway.observe.trajectories import TrajectoryLog
from gateway.proxy.proxy import Proxy
from gateway.proxy.result_tokens import ResultTokens
from gateway.proxy.transport.oauth.grants import GrantStore
from gateway.proxy.upstream.server_lists import ListCache
from gateway.replicas import ALONE, Replicas
from gateway.serve.mcp import McpEndpoint
from gateway.shared import Shared

if TYPE_CHECKING:
    from gateway.observe.tracing import Tracing


# Without `[telemetry]` no part of OpenTelemetry is ever loaded.

_FLUSH_SECONDS: Final = 3.0
_TRACES_PATH: Final = "/v1/traces"
_TALKATIVE: Final = ("opentelemetry.baggage.propagation", "opentelemetry.trace.propagation")
"""They warn about every malformed header, and strangers may send any header."""


@asynccontextmanager
async def open_tracing(config: TelemetryConfig) -> AsyncGenerator["Tracing | None"]:
    """Send traces to the configured collector while the context lasts; yields None if there is no collector. Raises
    `ConfigError`: a collector is configured, but the extra `otel` is not installed."""
    if config.otlp_endpoint is None:
        yield None
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        from gateway.observe.tracing import Tracing
    except ImportError:
        raise ConfigError(
            "telemetry.otlp_endpoint is set, but OpenTelemetry is not installed: pip install 'codec-gateway[otel]'"
        ) from None
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.ERROR)
    service = {"service.name": config.service_name, "service.version": version("codec-gateway")}
    # This context shuts the provider down; its own hook at exit would wait for a collector that does not answer.
    provider = TracerProvider(resource=Resource.create(service), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=traces_url(config.otlp_endpoint))))
    try:
        yield Tracing(provider)
    finally:
        with anyio.move_on_after(_FLUSH_SECONDS, shield=True):
            await anyio.to_thread.run_sync(provider.shutdown, abandon_on_cancel=True)


def traces_url(endpoint: str) -> str:
    """The URL that spans are sent to: a collector's address without a path gets the standard path (OTLP/HTTP)."""
    return endpoint if urlsplit(endpoint).path.strip("/") else endpoint.rstrip("/") + _TRACES_PATH


@dataclass(frozen=True, slots=True)
class OpenRecords:
    """Where calls are recorded."""

    audit: Audit | None = None
    tracing: "Tracing | None" = None


@asynccontextmanager
async def open_records(config: GatewayConfig, metrics: AccessMetrics) -> AsyncGenerator[OpenRecords]:
    """Open both; what was recorded is written before the context ends. Raises `ConfigError`: the audit log can't be
    written, or OpenTelemetry is not installed."""
    path, arguments = config.audit.path, config.audit.arguments
    audit = None if path is None else Audit(path, metrics, arguments=arguments, secrets=secrets_of(config))
    async with open_tracing(config.telemetry) as tracing:
        with audit or nullcontext():
            yield OpenRecords(audit, tracing)


@contextmanager
def open_trajectories(config: GatewayConfig, metrics: AccessMetrics) -> Generator[TrajectoryLog | None]:
    """Open the file of trajectories; what was recorded is written before the context ends. Raises `ConfigError`: it
    can't be written."""

    def digest() -> str | None:
        # Which file an engine that is not embedded has loaded is not known here.
        engines = config.members.values()
        models = {embedded_model(each) for each in engines if each.kind == "embedded"}
        known = len(models) == 1 and all(each.kind == "embedded" for each in engines)
        return f"sha256:{model_digest(models.pop())}" if known else None

    if config.trajectories.path is None:
        yield None
        return
    secrets, logprobs = secrets_of(config), config.trajectories.logprobs
    with TrajectoryLog(
        config.trajectories.path, metrics, logprobs=logprobs, secrets=secrets, model_digest=digest
    ) as trajectories:
        yield trajectories


@asynccontextmanager
async def open_shared(
    config: SharedConfig, replicas: Replicas, metrics: SharedMetrics
) -> AsyncGenerator[Shared | None]:
    """Open the store; yields None if none is configured. Nothing waits for a store that is unreachable. Raises
    `ConfigError`: its address is invalid, or the extra `shared` is not installed."""
    if config.url is None:
        yield None
        return
    try:
        from gateway.shared.shared_store import store_of
    except ImportError:
        raise ConfigError(
            "shared.url is set, but the package 'redis' is not installed: pip install 'codec-gateway[shared]'"
        ) from None
    store = store_of(config, replicas.shared_keys("store"), metrics)
    async with store.running():
        yield store


@dataclass(frozen=True, slots=True)
class McpServices:
    """What MCP clients need."""

    proxy: Proxy
    maps: MapSet
    tokens: ResultTokens
    notices: TokenNotices
    metrics: Metrics
    records: OpenRecords
    replicas: Replicas
    shared: Shared | None
    """The store that all replicas share; None: there is none, and each keeps its own state."""
    results: ResultStore

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
            results=self.results,
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
        results = ResultStore(config.limits, metrics, config.agent.result_files)
        yield McpServices(proxy, maps, tokens, notices, metrics, records, replicas, store, results)


def replicas_of(config: ReplicasConfig) -> Replicas:
    """The other replicas, as the settings describe them. Raises `ConfigError` if the secret can't be read."""
    if config.address is None:
        return ALONE
    # Importing the cryptography takes time, and a gateway without replicas does not need it.
    from gateway.replicas.connected import Connected
    from gateway.replicas.sealed_records import ReplicaKeys

    return Connected(ReplicaKeys(config.read_secrets()), config.address, config.port)


# A command that renewed or ended a sign-in of this machine without the store that replicas share would take it from
# them.


@asynccontextmanager
async def open_sign_ins(config: GatewayConfig) -> AsyncGenerator[GrantStore]:
    """Open the shared store, if there is one, for as long as the context lasts. Raises `ConfigError`."""
    if config.shared.url is None:
        yield GrantStore()
        return
    async with open_shared(config.shared, replicas_of(config.replicas), Metrics().shared) as shared:
        yield GrantStore(shared=shared)
