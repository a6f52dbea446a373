"""The services of one gateway, built and wired.

Turns the settings into a running engine, running servers, and all that stands on them; nothing below creates anything
at import. It listens nowhere.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from gateway.agent import Agent, CallRunner, EngineSampler
from gateway.app.records import Records, open_records
from gateway.config import GatewayConfig
from gateway.engine.readiness import EngineRoute
from gateway.observe.logs import get_logger
from gateway.observe.metrics import Metrics
from gateway.observe.notices import TokenNotices
from gateway.proxy import Proxy, ResultTokens, UpstreamStatus
from gateway.proxy.costs import DefinitionCosts
from gateway.serve.admin.health import Readiness
from gateway.serve.admin.status import StatusReport


@dataclass(frozen=True, slots=True)
class Services:
    """The services of a running gateway."""

    route: EngineRoute
    proxy: Proxy
    tokens: ResultTokens
    agent: Agent
    metrics: Metrics
    readiness: Readiness
    records: Records
    costs: DefinitionCosts
    status: StatusReport

    async def take_over(self, config: GatewayConfig) -> None:
        """Serve a changed configuration."""
        await self.proxy.reload(config)
        self.status.config = config


class _EngineState:
    """Tells metrics and readiness how the engine is, and whoever asks."""

    def __init__(self, metrics: Metrics, readiness: Readiness) -> None:
        self._metrics = metrics
        self._readiness = readiness
        self.is_up = False
        """Whether an engine runs that proved every map."""
        self.on_change: Callable[[], None] = lambda: None

    def engine_up(self, up: bool, reason: str) -> None:
        self.is_up = up
        self._metrics.engine_up(up)
        self._readiness.set("engine", up, reason)
        self.on_change()


@asynccontextmanager
async def open_services(config: GatewayConfig) -> AsyncGenerator[Services]:
    """Start the engine and the upstreams, wired together. Raises `ConfigError`."""
    metrics, readiness = Metrics(), Readiness()
    notices = TokenNotices(get_logger("tokens"))
    state = _EngineState(metrics, readiness)
    route = EngineRoute(config, state)
    tokens = ResultTokens(
        route.maps.accepted,
        level=config.tokens.verify,
        metrics=metrics,
        notices=notices,
        proven=lambda: state.is_up,
    )
    costs = DefinitionCosts(lambda: route.maps.session)
    async with open_records(config, metrics) as records:
        proxy = Proxy(config, metrics, records.tracing)
        metrics.servers.follow(proxy.statuses)
        proxy.tell_maps(route.maps)

        def engine_changed() -> None:
            costs.again()
            # The engine may have brought the maps.
            proxy.tell_maps(route.maps)

        state.on_change = engine_changed
        readiness.inform("upstreams", lambda: {status.name: _show_upstream(status) for status in proxy.statuses()})
        runner = CallRunner(proxy, tokens, config.limits, records.audit, costs)
        agent = Agent(route, runner, config.limits, metrics, hold_calls=config.engine.hold_calls)
        proxy.sample_with(EngineSampler(agent, route))
        status = StatusReport(config, route, proxy, readiness, metrics, costs, notices)
        async with proxy, route.running():
            yield Services(route, proxy, tokens, agent, metrics, readiness, records, costs, status)


def _show_upstream(status: UpstreamStatus) -> dict[str, Any]:
    """Without its last error: the words of a server are for the log, which masks secrets, and this page asks no key."""
    return {"state": status.state, "transport": status.transport, "tools": status.tools, "restarts": status.restarts}
