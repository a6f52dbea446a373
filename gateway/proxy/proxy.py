"""Many MCP servers as one: finds the server for every request of a client, and the client for every answer.

Turns a `GatewayConfig` into running upstreams, and a client's method and params into a raw result in the client's era.
If a server is away, slow or broken, the answer is an error result that names it (for a tool) or a JSON-RPC error. What
a server itself answers is passed on unchanged: no typed model stands between a server and its client. It knows no
token ids (`result_tokens.py`), no endpoints and no engine.
"""

import secrets
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import anyio

from gateway.config.gateway_config import GatewayConfig, ResultForm, ViewConfig
from gateway.errors import ConfigError
from gateway.observe.metrics import Metrics
from gateway.protocol.headers import Annotation
from gateway.proxy.bolt_on import KnownMaps, NoMaps
from gateway.proxy.bridge import Bridge
from gateway.proxy.caller import ANYBODY, NOBODY, Caller, ClientSession, Principal
from gateway.proxy.catalog import Catalog, ChangeFeed, Clash, ListChange
from gateway.proxy.connector import Connector
from gateway.proxy.merged_lists import RELAYED, merge_capabilities, merge_instructions
from gateway.proxy.naming import Naming, ToolEntry
from gateway.proxy.per_user import sign_in_advice
from gateway.proxy.results import CallOutcome, LastCalls, WrittenIds
from gateway.proxy.router import Router
from gateway.proxy.server_registry import ServerRegistry, UpstreamStatus, status_of
from gateway.proxy.shares import ShareRule
from gateway.proxy.transport.oauth.grants import GrantStore
from gateway.proxy.upstream.server_lists import ListCache

if TYPE_CHECKING:
    from gateway.observe.tracing import Tracing
    from gateway.proxy.upstream.session.session import ListKind
    from gateway.proxy.upstream.upstream import Upstream

_NO_MAPS: Final = NoMaps()

START_WAIT: Final = 20.0
"""Seconds that a starting gateway waits for its slowest server."""


class Proxy:
    """All upstreams of one gateway. Enter it once; the task that enters it must leave it."""

    def __init__(
        self,
        config: GatewayConfig,
        metrics: Metrics,
        tracing: "Tracing | None" = None,
        *,
        maps: KnownMaps = _NO_MAPS,
        start_wait: float = START_WAIT,
        name_call: Callable[[str], str] = lambda principal: secrets.token_urlsafe(24),
        list_cache: ListCache | None = None,
        grants: GrantStore | None = None,
    ) -> None:
        """Starts nothing before the context is entered.

        Args:
            tracing: makes spans for requests to servers; None: there are none.
            maps: bolt-ons are called with ids of these; `maps_changed` must be called when they change.
            name_call: turns a principal's name into an unguessable token for a call that waits for its client.
            list_cache: what servers listed in earlier runs, which is shown until they have come up; None: it is neither
                read nor written.
            grants: see `Connector`.
            start_wait: seconds that the start waits for the slowest server; a slower one is added when it is up.
        """
        self._start_wait = start_wait
        host = None if config.worker is None else config.worker.servers
        self._connector = Connector(config.limits, metrics, maps, tracing, host, grants)
        share_rule = ShareRule(config.limits.principal_share, metrics.access.bound_refused)
        self._reloading = anyio.Lock()
        self._upstreams: dict[str, Upstream] = {}
        self._catalog = Catalog(Naming(config))
        self._changes = ChangeFeed(self._upstreams, self._catalog, share_rule)
        self._registry = ServerRegistry(
            config, metrics, self._connector, self._upstreams, self._changes, share_rule, list_cache
        )
        self._changes.merge()
        self._bridge = bridge = Bridge(self._registry.start_soon, share_rule, name_call)
        self._metrics = metrics
        self.last_calls = LastCalls()
        self._router = Router(
            self._upstreams,
            self._catalog,
            self._note_call,
            self.watch,
            self.ready,
            bridge,
            searching=lambda: self.config.tool_search is True,
            approvals=config.approvals,
            rule=share_rule,
        )
        self.grants = self._connector.grants
        """The sign-ins at servers."""
        self.config = config
        """The configuration in force; a reload replaces it once the new servers are there."""
        self.client_headers = _client_headers(config)
        """Names of the headers of clients' requests that some server gets."""
        self.exchanges_tokens = _exchanges_tokens(config)
        """Whether some server gets tokens in exchange for clients' access tokens."""
        self._supervision: AbstractAsyncContextManager[None] | None = None

    async def __aenter__(self) -> Self:
        """Start every upstream, and wait as `ready` does; an upstream that fails raises nothing. Raises `ConfigError`:
        two servers offer a tool or a prompt under one public name."""
        self._supervision = self._supervised()
        await self._supervision.__aenter__()
        self._catalog.uris.settle()
        if clashes := [each for each in self._catalog.clashes if not self._is_old(each)]:
            await self._supervision.__aexit__(None, None, None)
            raise ConfigError("; ".join(map(str, clashes[:5])))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every upstream. No process, task or descriptor is left."""
        if self._supervision is not None:
            # The caller's exception is not passed in: the task group would wrap it in an exception group.
            await self._supervision.__aexit__(None, None, None)

    def _is_old(self, clash: Clash) -> bool:
        """Whether it is with what a server listed in an earlier run, and may not list any more."""
        return any(self._upstreams[each].earlier is not None for each in (clash.kept, clash.hidden))

    @asynccontextmanager
    async def _supervised(self) -> AsyncGenerator[None, None]:
        async with self._connector, self._registry.running():
            await self.ready()
            self._router.started()
            yield

    def _note_call(self, server: str, tool: str, principal: str, ended: str, seconds: float) -> None:
        self._metrics.tool_called(server, ended, seconds)
        self.last_calls.note(server, tool, principal, ended, seconds)

    @property
    def waits_for_clients(self) -> bool:
        """Whether a call waits for its client to answer what the server asked."""
        return self._bridge.waits

    async def ready(self) -> None:
        """Wait, at most `start_wait` seconds, until every upstream that starts by itself is up or has failed once."""
        await self._registry.ready(self._start_wait)

    async def reload(self, config: GatewayConfig) -> None:
        """Serve this configuration from now on. Servers whose configuration is the same notice nothing.

        New and changed servers are started and waited for before the names change; calls that run on a removed or
        changed server finish there. Limits stay as they were at the start.
        """
        async with self._reloading:
            taken = await self._registry.exchange(config)
            told: list[tuple[str, ListKind]] = []
            if _shown_to_clients(config) != _shown_to_clients(self.config):
                told = [(name, "tools") for name in self._upstreams]
            self.config, self.client_headers = config, _client_headers(config)
            self.exchanges_tokens = _exchanges_tokens(config)
            self._router.approvals.use(config.approvals)
            self._catalog.name_by(Naming(config))
            self._changes.taken_over(taken)
            self._changes.merge(told)

    def list_again(self) -> None:
        """Ask every running server with pinned tools to list them again, because the pins changed."""
        for upstream in self._upstreams.values():
            if upstream.config.pin != "off":
                upstream.list_again()

    def stop(self) -> None:
        """Begin to end every upstream: running calls get an error result, and nothing is started again."""
        self._registry.stop()

    def maps_changed(self) -> None:
        """Adapt how bolt-ons are called, because the accepted maps have changed."""
        self._connector.maps.changed()

    def adopt(self, session: ClientSession) -> None:
        """Make the main sessions this client's own; it is the only one there will be. Call it before the start."""
        self._registry.adopt(session)

    async def handle(self, method: str, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        """Return the raw answer to a client's request, in the client's era.

        Takes every method except those between client and gateway (`initialize`, `ping`, `server/discover`,
        `subscriptions/listen`). Of what `call_tool` returns it gives only the result.

        Args:
            params: as the client sent them, `_meta` included; names are public names.

        Raises:
            RpcError: the server's own error, unchanged, or ours.
        """
        return await self._router.handle(method, params, caller)

    def call_tool(
        self,
        params: dict[str, Any],
        caller: Caller,
        *,
        seconds: float | None = None,
        written: WrittenIds | None = None,
        approved: bool = False,
    ) -> Coroutine[Any, Any, CallOutcome]:
        """Call a tool. If its server fails (it is away, too slow, too verbose), or the params can't be written as JSON,
        the result is an error that names the server. So it is if the call needs an approval (`approvals.py`) that the
        caller's user does not give; this is the one way to a tool, whoever calls it.

        Args:
            params: of `tools/call`, with the public name.
            seconds: time limit of the call; None: the configured one.
            written: what our own agent knows about the ids of this call.
            approved: whether somebody has approved exactly this call, or makes it by hand.

        Raises:
            UnknownTool: no server offers it.
            RpcError: the server's own error, or the params are not those of a `tools/call`.
        """
        return self._router.call_tool(params, caller, seconds=seconds, written=written, approved=approved)

    async def tell(self, method: str, params: dict[str, Any], session: ClientSession) -> None:
        """Pass a notification of a handshake-era client on to the servers that hold a session for it."""
        for upstream in self._router.resolver.visible(session.principal):
            if (member := upstream.selector.own(session)) is not None:
                await member.session.notify(method, params)

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        meta: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        caller: Caller = NOBODY,
        written: WrittenIds | None = None,
        approved: bool = False,
    ) -> dict[str, Any]:
        """Return only the result of `call_tool`: the upstream's CallToolResult as it came, or an error result.

        Args:
            name: the tool's public name.
            arguments: the tool's arguments, unchecked.
            meta: the request's `_meta`, without the fields that concern only client and gateway.
        """
        params: dict[str, Any] = {"name": name, "arguments": dict(arguments)}
        if meta:
            params["_meta"] = dict(meta)
        return (await self.call_tool(params, caller, seconds=timeout, written=written, approved=approved)).result

    def tools(self, principal: Principal = ANYBODY) -> tuple[ToolEntry, ...]:
        """The tools of the upstreams that are up or asleep, in the configuration's order, then in each server's own."""
        offered = self._changes.offered
        if not principal.alone:
            offered = tuple(self._router.resolver.entries(offered, principal))
        if not offered or not principal.is_limited:
            return offered
        return tuple(entry for entry in offered if principal.may_call(entry.server, entry.name))

    def model_tools(self, principal: Principal = ANYBODY) -> Sequence[ToolEntry]:
        """The same as `tools`, as models are offered them: under aliases where a model API would refuse a name."""
        entries = self.tools(principal)
        if self.config.safe_names is False or not self._catalog.aliases.listed:
            return entries
        return self._catalog.under_aliases(entries)

    def on_tools_changed(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever what `tools()` returns has changed; it must be quick and must not raise."""
        self._changes.on_tools_changed(callback)

    def on_change(self, callback: Callable[[ListChange], None]) -> Callable[[], None]:
        """Call `callback` whenever a list that clients see has changed. Return a function that ends this."""
        return self._changes.on_change(callback)

    async def watch(
        self, uris: Collection[str], principal: Principal, updated: Callable[[str], None]
    ) -> Callable[[], None]:
        """Call `updated` with the URI whenever one of these resources has changed. Return a function that ends this.

        A URI that no server owns is accepted and never reported, like a subscription to a resource that does not exist.

        Raises:
            RpcError: too many resources are watched, by this principal or in total.
        """
        found = [(self._router.resolver.locate(uri, principal), uri) for uri in uris]
        watched = [(located, uri) for located, uri in found if located is not None]
        return await self._changes.watch(watched, principal, updated)

    def through_view(self, principal: Principal, name: str) -> Principal | None:
        """The principal as it sees the gateway at `/mcp/<name>`: a view of the configuration, or else one server; None:
        there is neither, or it may see nothing of it."""
        view = self.config.views.get(name) or ViewConfig(servers=(name,))
        servers = [each for each in view.servers or self._upstreams if each in self._upstreams and principal.sees(each)]
        seen = replace(principal, servers=frozenset(servers), within=view.tools or None, view=name)
        return seen if servers else None

    def capabilities(self, principal: Principal = ANYBODY, *, modern: bool = False) -> dict[str, Any]:
        """What to advertise to this client: what its servers offer, and what those that were not up yet may offer."""
        visible = self._router.resolver.visible(principal)
        offers = [each.offers if each.was_up else RELAYED for each in visible]
        return merge_capabilities(offers, modern=modern)

    def instructions(self, principal: Principal = ANYBODY) -> str | None:
        """The servers' instructions on how to use them."""
        visible = self._router.resolver.visible(principal)
        told = [(each.config.name, sign_in_advice(each, principal) or each.instructions) for each in visible]
        return merge_instructions([(name, text) for name, text in told if text])

    def annotations(self, name: str, principal: Principal) -> tuple[Annotation, ...]:
        """The arguments of a tool, by its public name, that are repeated in headers."""
        entry = self._router.resolver.entry(self._catalog.meant(name, principal.view), principal)
        if entry is None or not entry.annotations or not principal.may_call(entry.server, entry.name):
            return ()
        return entry.annotations

    def input_schema(self, name: str, principal: Principal = ANYBODY) -> Mapping[str, Any] | None:
        """The input schema of a tool, by its public name; None: it is not known."""
        entry = self._router.resolver.entry(name, principal)
        schema: object = None if entry is None else entry.definition.get("inputSchema")
        visible = entry is not None and principal.may_call(entry.server, entry.name)
        return schema if visible and isinstance(schema, dict) else None  # pyright: ignore[reportUnknownVariableType]

    def names_of(self, entry: ToolEntry) -> tuple[str, ...]:
        """All names of a tool by which the operator may mean it."""
        return self._catalog.naming.names(entry.server, entry.tool)

    def result_form(self, server: str) -> ResultForm:
        """How a model reads the results of a server, by the settings in force now."""
        found: list[ResultForm] = [each.results for each in self.config.upstreams if each.name == server]
        return found[0] if found else "as_sent"

    def server_of(self, tool: str, view: str | None = None) -> str | None:
        """The server that owns a tool, by the tool's public name, or its name in a view; None: no owner is known."""
        return self._router.resolver.server_of(self._catalog.meant(tool, view))

    def server_in(self, tool: str) -> str | None:
        """The server that a tool's public name tells, even if the server no longer has it; None: it tells none."""
        return self._router.resolver.server_in(tool)

    def takes_ids(self, tool: str) -> bool:
        """Whether a tool, by its public name, may be called with the ids that a model wrote (`WrittenIds`)."""
        server = self.server_of(tool)
        upstream = None if server is None else self._upstreams.get(server)
        return upstream is not None and upstream.config.manifest is not None

    def session_ended(self, session: ClientSession) -> None:
        """Release what was opened for a client that has disconnected."""
        self._router.resources.forget(session)
        for upstream in self._upstreams.values():
            upstream.release(session)

    def signed_in(self, server: str, owner: str) -> None:
        """Take note that somebody has signed in at a server: their upstream is opened, and their clients are told."""
        upstream = self._upstreams.get(server)
        if upstream is not None and upstream.per_user is not None:
            upstream.per_user.open(owner)

    def statuses(self) -> tuple[UpstreamStatus, ...]:
        """One status for each upstream, in the configuration's order."""
        now = anyio.current_time()
        return tuple(
            status_of(each, now, self._connector.maps.statuses(each.config.name)) for each in self._upstreams.values()
        )


def _exchanges_tokens(config: GatewayConfig) -> bool:
    return any(upstream.exchange is not None for upstream in config.upstreams)


def _client_headers(config: GatewayConfig) -> frozenset[str]:
    return frozenset(name for upstream in config.upstreams for name in upstream.client_headers)


def _shown_to_clients(config: GatewayConfig) -> tuple[object, ...]:
    """What decides how tools are shown to MCP clients, apart from the servers."""
    views = {name: view.overrides for name, view in config.views.items()}
    return config.tool_search is True, config.safe_names is True, views
