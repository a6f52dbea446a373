"""The services of one gateway, built and wired.

Turns the settings into a running engine, running servers, and all that stands on them; nothing below creates anything
at import. It listens nowhere.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from gateway.agent import Agent, CallRunner, EngineSampler
from gateway.app.mcp_services import McpServices, open_mcp_services
from gateway.app.records import open_trajectories
from gateway.config import GatewayConfig
from gateway.engine.readiness import EngineRoute
from gateway.proxy import UpstreamStatus
from gateway.proxy.costs import DefinitionCosts
from gateway.serve.admin.health import Readiness
from gateway.serve.admin.status import StatusReport


@dataclass(frozen=True, slots=True)
class Services(McpServices):
    """The services of a running gateway."""

    route: EngineRoute
    agent: Agent
    readiness: Readiness
    costs: DefinitionCosts
    status: StatusReport


@asynccontextmanager
async def open_services(config: GatewayConfig) -> AsyncGenerator[Services]:
    """Start the engine and the upstreams, wired together. Raises `ConfigError`."""
    readiness = Readiness()

    def engine_changed(up: bool, reason: str) -> None:
        inner.metrics.engine_up(up)
        readiness.set("engine", up, reason)
        costs.again()
        # The engine may have brought the maps.
        inner.proxy.maps_changed()

    route = EngineRoute(config, engine_changed, lambda: inner.metrics.slot_files)
    sampler = EngineSampler(lambda: agent, route)
    async with open_mcp_services(config, route.maps, proven=lambda: route.is_open, sampler=sampler) as inner:
        proxy, metrics = inner.proxy, inner.metrics
        metrics.servers.follow(proxy.statuses)
        readiness.inform("upstreams", lambda: {status.name: _show_upstream(status) for status in proxy.statuses()})
        costs = DefinitionCosts(lambda: route.maps.session)
        runner = CallRunner(proxy, inner.tokens, config.limits, inner.records.audit, costs)
        with open_trajectories(config, metrics.access) as trajectories:
            agent = Agent(
                *(route, runner, config.limits, metrics),
                hold_calls=config.engine.hold_calls,
                show_calls=config.agent.show_calls,
                volatile=config.engine.volatile,
                trajectories=trajectories,
            )
            status = StatusReport(route, proxy, readiness, metrics.get_shim_metrics, costs, inner.notices, agent.recall)
            given = (proxy, route.maps, inner.tokens, inner.notices, metrics, inner.records, inner.replicas)
            async with proxy, route.running():
                yield Services(*given, route, agent, readiness, costs, status)


def _show_upstream(status: UpstreamStatus) -> dict[str, Any]:
    """Without its last error: a server's words are for the log, which masks secrets, and this page needs no key."""
    return {"state": status.state, "transport": status.transport, "tools": status.tools, "restarts": status.restarts}
