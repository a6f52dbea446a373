"""All upstreams of one gateway: started together, exchanged on a reload, ended together; and their status in figures.

Turns the servers of a `GatewayConfig` into running upstreams, in the one dictionary that all of `proxy` reads. A reload
does not touch those whose configuration stays the same. It knows no public names, no requests, and no client except
the one that all main sessions may belong to.
"""

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio

from gateway.config.gateway_config import GatewayConfig, TransportName, UpstreamConfig
from gateway.observe.metrics import Metrics
from gateway.proxy.bolt_on import BoltOnStatus
from gateway.proxy.caller import ClientSession
from gateway.proxy.connector import Connector
from gateway.proxy.per_user import ExchangeAccounts, PerUser, SignInAccounts
from gateway.proxy.shares import ShareRule
from gateway.proxy.transport.http.client import Authorizer
from gateway.proxy.upstream.items.item_reader import MalformedField
from gateway.proxy.upstream.server_lists import ListCache
from gateway.proxy.upstream.supervision.lifecycle import State
from gateway.proxy.upstream.upstream import ChangeListener, Upstream

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from gateway.proxy.upstream.session.session import ListKind


@dataclass(frozen=True, slots=True)
class UpstreamStatus:
    """The status of one upstream, for people, metrics and health checks."""

    name: str
    transport: TransportName
    state: State
    tools: int
    """How many tools it lists now; 0 while it is not up."""
    last_error: str | None
    restarts: int
    protocol: str | None
    """The negotiated MCP version, from the last time it was up; None: it was never up."""
    sessions: int
    in_flight: int
    queued: int
    breaker: Literal["closed", "open", "half_open"]
    prompts: int = 0
    resources: int = 0
    """How many resources it lists now, without templates."""
    offers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Its capabilities, from the last time it was up."""
    bolt_ons: tuple[BoltOnStatus, ...] = ()
    """How each of its tools is called, if they are bolt-ons and up."""
    invalid_tools: Mapping[str, str] = field(default_factory=dict[str, str])
    """Its tools that are not offered, by their own names, and why."""
    malformed: tuple[MalformedField, ...] = ()
    """What clients could not have read of its lists as they came."""


def status_of(upstream: Upstream, now: float, bolt_ons: tuple[BoltOnStatus, ...]) -> UpstreamStatus:
    """The status at `now`, in seconds of the loop's clock."""
    lifecycle, last = upstream.supervisor.lifecycle, upstream.supervisor.last
    return UpstreamStatus(
        name=upstream.config.name,
        transport=upstream.config.transport,
        state=lifecycle.state,
        tools=upstream.count("tools"),
        last_error=lifecycle.last_error,
        restarts=lifecycle.restarts,
        protocol=None if last is None else last.session.version,
        sessions=upstream.sessions(),
        in_flight=upstream.dispatcher.gate.inside,
        queued=upstream.dispatcher.gate.waiting,
        breaker=upstream.dispatcher.breaker.state(now),
        prompts=upstream.count("prompts"),
        resources=upstream.count("resources"),
        offers=upstream.offers,
        bolt_ons=bolt_ons,
        invalid_tools=upstream.invalid_tools,
        malformed=upstream.reader.malformed,
    )


_STOP_GRACE: Final = 10.0


class _OfOwner:
    """Reports what one principal's upstream reports (`ChangeListener`), to its clients only."""

    def __init__(self, listener: ChangeListener, owner: str) -> None:
        self._listener = listener
        self._owner = owner

    def upstream_changed(
        self, server: str, kind: "ListKind | None", session: ClientSession | None, owner: str | None = None
    ) -> None:
        self._listener.upstream_changed(server, kind, session, owner or self._owner)

    def resource_updated(self, server: str, uri: str) -> None:
        """Nobody watches resources there (`ChangeFeed.watch`)."""

    def own_resource_updated(self, server: str, params: Mapping[str, Any], session: ClientSession) -> None:
        self._listener.own_resource_updated(server, params, session)


class ServerRegistry:
    """All upstreams of one gateway."""

    def __init__(
        self,
        config: GatewayConfig,
        metrics: Metrics,
        connector: Connector,
        upstreams: dict[str, Upstream],
        listener: ChangeListener,
        share_rule: ShareRule,
        list_cache: ListCache | None,
    ) -> None:
        """Starts nothing before `running`.

        Args:
            upstreams: filled with the upstreams, by name and in the configuration's order.
            listener: told what the servers report.
            share_rule: how much of a server's bounds one principal may use.
            list_cache: see `Upstream`.
        """
        self._limits = config.limits
        self._share_rule = share_rule
        self._metrics = metrics
        self._connector = connector
        self._upstreams = upstreams
        self._listener = listener
        self._list_cache = list_cache
        self._adopted: ClientSession | None = None
        self._tasks: TaskGroup | None = None
        upstreams.update({each.name: self._make(each) for each in config.upstreams})

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Start all upstreams; `ready` waits for them. On leaving, all are ended: no process or task is left."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            for upstream in self._upstreams.values():
                tasks.start_soon(upstream.run)
            try:
                yield
            finally:
                self.stop()
                with anyio.move_on_after(_STOP_GRACE, shield=True):
                    for upstream in list(self._upstreams.values()):
                        await upstream.ended()
                tasks.cancel_scope.cancel()

    async def exchange(self, config: GatewayConfig) -> list[str]:
        """Switch to the servers of this configuration. Return the names of those that are new or changed.

        New and changed servers are started and waited for before anything is exchanged; calls that run on a removed
        or changed server finish there.
        """
        running = self._upstreams
        made = {
            each.name: self._make(each)
            for each in config.upstreams
            if each.name not in running or not running[each.name].config.runs_like(each)
        }
        for upstream in made.values():
            self.start_soon(upstream.run)
        await self._settled(made.values())
        fresh = {each.name: made.get(each.name) or running[each.name] for each in config.upstreams}
        retired = [each for name, each in running.items() if fresh.get(name) is not each]
        self._upstreams.clear()
        self._upstreams.update(fresh)
        for upstream in retired:
            self.start_soon(self._retire, upstream, config.limits.drain)
        return list(made)

    def start_soon(self, run: Callable[..., Coroutine[Any, Any, object]], *given: object) -> None:
        """Run a task that is cancelled when the servers end."""
        if self._tasks is None:
            raise RuntimeError("a proxy works only inside `async with proxy`")
        self._tasks.start_soon(run, *given)

    async def ready(self, start_wait: float) -> None:
        """Wait, at most `start_wait` seconds, until every upstream that starts by itself is up or has failed once."""
        await self._settled(self._upstreams.values(), start_wait)

    def stop(self) -> None:
        """Begin to end every upstream: running calls get an error result, and nothing is started again."""
        for upstream in self._upstreams.values():
            upstream.stop()

    def adopt(self, session: ClientSession) -> None:
        """Make the main sessions this client's own; it is the only one there will be. Call it before the start."""
        self._adopted = session
        for upstream in self._upstreams.values():
            upstream.supervisor.adopt(session)

    def _make(self, config: UpstreamConfig) -> Upstream:
        connect = self._connector.connect(config)
        given = (self._listener, self._share_rule, self._list_cache)
        made = Upstream(config, self._limits, self._metrics, connect, *given)
        if config.is_per_user:
            made.separate(self._users_of(made))
        if self._adopted is not None:
            made.supervisor.adopt(self._adopted)
        return made

    def _users_of(self, common: Upstream) -> PerUser:
        config = common.config

        def make(owner: str, authorizer: Authorizer) -> Upstream:
            listener = _OfOwner(self._listener, owner)
            connect = self._connector.connect(config, authorizer)
            own = Upstream(
                replace(config, start="eager", idle_stop=0.0),
                *(self._limits, self._metrics, connect, listener, self._share_rule, None, common),
            )
            self.start_soon(own.run)
            return own

        def end(own: Upstream) -> None:
            self.start_soon(self._retire, own, self._limits.drain)

        def changed(owner: str) -> None:
            self._listener.upstream_changed(config.name, None, None, owner)

        kind = SignInAccounts if config.exchange is None else ExchangeAccounts
        share = self._share_rule.most(config.most_client_sessions)
        return PerUser(config, kind(config, self._connector), share, make, end, changed)

    async def _settled(self, upstreams: Iterable[Upstream], start_wait: float = inf) -> None:
        with anyio.move_on_after(min(self._limits.start_timeout + 1.0, start_wait)):
            for upstream in list(upstreams):
                await upstream.supervisor.settled.wait()

    async def _retire(self, upstream: Upstream, grace: float) -> None:
        with anyio.move_on_after(grace):
            await upstream.unused()
        upstream.stop()
