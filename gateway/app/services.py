"""The services of one gateway, built and wired.

Turns the settings into a running engine, running servers, and all that builds on them. Nothing below creates anything
at import. It does not listen on any port.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import inf
from typing import Any

from gateway.agent import Agent, CallRunner
from gateway.app.mcp_services import McpServices, open_mcp_services, open_trajectories
from gateway.config import GatewayConfig
from gateway.engine.pool.engine_choice import MemberStatus
from gateway.engine.pool.engines import Engines
from gateway.engine.pool.pool import EnginePool
from gateway.engine.start.readiness import EngineRoute
from gateway.proxy.costs import DefinitionCosts
from gateway.proxy.server_registry import UpstreamStatus
from gateway.serve.admin.admin_pages import Readiness
from gateway.serve.admin.extra_pages import GatewayParts
from gateway.serve.admin.status_report import StatusReport


@dataclass(frozen=True, slots=True)
class Services(McpServices):
    """The services of a running gateway."""

    engines: EnginePool
    routes: Mapping[str, EngineRoute]
    """The route to each engine, by the engine's name."""
    agent: Agent
    readiness: Readiness
    costs: DefinitionCosts
    status: StatusReport

    @property
    def parts(self) -> GatewayParts:
        """What pages on the admin port may read."""
        return GatewayParts(
            proxy=self.proxy,
            tokens=self.tokens,
            notices=self.notices,
            costs=self.costs,
            engines=self.engines,
            agent=self.agent,
            status=self.status,
            metrics=self.metrics,
            audit=self.records.audit,
        )


@asynccontextmanager
async def open_services(config: GatewayConfig, start_wait: float = inf) -> AsyncGenerator[Services]:
    """Start the engine and the upstreams, wired together. Raises `ConfigError`.

    `start_wait`: how many seconds to wait for an engine that neither comes up nor fails.
    """
    readiness = Readiness()

    def engine_changed(name: str, up: bool, reason: str) -> None:
        several = pool.several
        inner.metrics.engine_up(pool.is_open)
        if several:
            inner.metrics.engines.engine_up(name, up)
        readiness.set("engine", pool.is_open, f"{name}: {reason}" if several else reason)
        costs.again()
        # The maps may have come from the engine.
        inner.proxy.maps_changed()

    engines = Engines(
        config, engine_changed, metrics=lambda: inner.metrics.engines, files=lambda: inner.metrics.slot_files
    )
    pool = engines.pool
    async with open_mcp_services(config, pool.maps, proven=lambda: pool.is_open, shared=config.shared) as inner:
        proxy, metrics = inner.proxy, inner.metrics
        metrics.servers.follow(proxy.statuses)
        readiness.inform("upstreams", lambda: {status.name: _show_upstream(status) for status in proxy.statuses()})
        if config.has_engine:
            readiness.set("engine", False, pool.state()[1])
            readiness.inform("engine", lambda: _show_state(pool))
        if pool.several:
            readiness.inform("engines", lambda: {status.name: _show_engine(status) for status in pool.statuses()})
        costs = DefinitionCosts(lambda: pool.maps.session)
        records = inner.records
        runner = CallRunner(proxy, inner.tokens, config.limits, records.audit, costs, records.tracing, inner.results)
        with open_trajectories(config, metrics.access) as trajectories:
            shared = None
            if inner.shared is not None:
                from gateway.context.shared_conversations import SharedMemory

                keys = inner.replicas.shared_keys("memory")
                shared = SharedMemory(inner.shared, keys, config.limits, config.shared.ttl)
            agent = Agent(
                *(pool, runner, config.limits, metrics),
                show_calls=config.agent.show_calls,
                defer_client_tools=config.agent.defer_client_tools,
                suggested_tools=config.agent.suggested_tools,
                volatile=[*dict.fromkeys(each for engine in config.members.values() for each in engine.volatile)],
                trajectories=trajectories,
                shared=shared,
                tracing=records.tracing,
            )
            status = StatusReport(
                *(pool, proxy, readiness, metrics.get_shim_metrics, costs, inner.notices, agent.recall),
                *(metrics.get_prompt_tokens, inner.shared),
            )
            given = (
                proxy,
                pool.maps,
                inner.tokens,
                inner.notices,
                metrics,
                records,
                inner.replicas,
                inner.shared,
                inner.results,
            )
            async with proxy, engines.running(start_wait):
                yield Services(*given, pool, engines.routes, agent, readiness, costs, status)


def _show_upstream(status: UpstreamStatus) -> dict[str, Any]:
    """Without its last error: a server's text belongs in the log, which masks secrets, and this page needs no key."""
    return {"state": status.state, "transport": status.transport, "tools": status.tools, "restarts": status.restarts}


def _show_engine(status: MemberStatus) -> dict[str, Any]:
    """Without a reason, since this page needs no key."""
    return {
        "up": status.ready is not None,
        "state": status.state,
        "answers": status.running,
        "breaker": status.breaker,
    }


def _show_state(pool: EnginePool) -> dict[str, Any]:
    """The reason is among those for not being ready."""
    return {"state": pool.state()[0]}
