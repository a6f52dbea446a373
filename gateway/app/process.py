"""One gateway process, from its settings to its end.

Opens the services (`services.py`), listens, and stops in order: readiness is withdrawn, running requests finish or are
told that their time is over, then upstreams and the engine end.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import anyio
from starlette.applications import Starlette
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.app.loop_watch import LoopWatch, settle_memory
from gateway.app.reload import Reloader, Reread
from gateway.app.role import ALONE, ProcessRole, Shutdown
from gateway.app.services import Services, open_services
from gateway.app.worker_affinity import AtHome
from gateway.config import GatewayConfig
from gateway.config.gateway_config import ServeConfig
from gateway.engine.pool.pool import EnginePool
from gateway.observe.client_metrics import AccessMetrics, ConnectionMetrics
from gateway.observe.logs import get_logger
from gateway.proxy.proxy import Proxy
from gateway.proxy.upstream.items.tool_pins import PinFile
from gateway.serve.admin.admin_pages import admin_app
from gateway.serve.admin.extra_pages import ExtraPages, WithExtraPages, make_extra_pages
from gateway.serve.auth.api_keys import KeyRing
from gateway.serve.auth.bearer import AccessTokens, BearerAuth, ClientHeaders, Credentials, ProtectedResource
from gateway.serve.auth.gateway_token import HostGuard, guard_admin, own_hosts
from gateway.serve.auth.sign_in_pages import Identify, SignInPages
from gateway.serve.codec.frame_negotiation import Documents, WireOffer
from gateway.serve.codec.frames import FrameResponder
from gateway.serve.http.connection_limits import ClientConnections, ForwardedClients, TrustedProxies
from gateway.serve.http.error_answers import RETRY_SOON, error_response, no_such_path
from gateway.serve.http.http_server import FileLimit, http_server, raise_file_limit, url_of_socket
from gateway.serve.http.middleware import Cors, Drain, SpelledPaths, TracedRequests
from gateway.serve.http.plain_pages import NO_PAGES, Home
from gateway.serve.mcp import McpEndpoint
from gateway.serve.mcp.http import RETRY_AFTER, STOPPING, Rejected, send_rejection
from gateway.serve.messages.message_endpoint import MessagesEndpoint
from gateway.serve.openai.chat import ChatEndpoint
from gateway.serve.openai.completions import CompletionsEndpoint
from gateway.serve.openai.model_endpoint import ModelEndpoint
from gateway.serve.responses.response_endpoint import ResponsesEndpoint
from gateway.shared import Shared


async def stopping(scope: Scope, receive: Receive, send: Send) -> None:
    """An ASGI application that refuses every request."""
    if scope["path"].startswith(("/mcp", "/sse")):
        headers = (*RETRY_AFTER, (b"connection", b"close"))
        await send_rejection(send, Rejected(503, STOPPING, headers=headers))
        return
    refusal = error_response(503, STOPPING, code="stopping", headers={**RETRY_SOON, "connection": "close"})
    await refusal(scope, receive, send)


# A gateway where no user signs in for itself loads none of these pages, and spends no time on them.

log = get_logger("serve")


def sign_in_pages(proxy: Proxy, config: GatewayConfig) -> Callable[[ASGIApp, Identify], ASGIApp] | None:
    """What wraps an application in the pages; None: no server needs them. `config`: the one at the start."""
    if not needs_pages(config):
        return None
    from gateway.proxy.transport.oauth.user_sign_ins import UserSignIns

    sign_ins, hosts = UserSignIns(proxy.grants), own_hosts(config.serve)
    return lambda app, identify: SignInPages(
        app, identify, sign_ins, lambda: proxy.config.upstreams, proxy.signed_in, hosts
    )


def reloading(proxy: Proxy, start: GatewayConfig) -> Callable[[GatewayConfig], Awaitable[None]]:
    """What has another configuration served. `start`: the one at the start, which decided whether there are pages."""

    async def reload(fresh: GatewayConfig) -> None:
        await proxy.reload(fresh)
        if needs_pages(fresh) and not needs_pages(start):
            log.warning("users can't sign in before a restart: the first server with `auth.per_user` is new")

    return reload


def needs_pages(config: GatewayConfig) -> bool:
    """Whether users sign in to a server for themselves."""
    return any(each.has_user_pages for each in config.upstreams)


_MOST_OF_ADMIN: Final = 64
_GENERATE: Final = (
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/completions",
    "/v1/completions/codec",
    "/v1/embeddings",
)
"""Paths of requests that an engine computes for: each is a span, where spans are made."""
_START_WAIT: Final = 2.0
"""Seconds to wait for the engine. MCP servers are served without it, and a large model takes minutes to load."""


@asynccontextmanager
async def open_app(
    services: Services, config: GatewayConfig, extra: Mapping[str, ExtraPages] = MappingProxyType({})
) -> AsyncGenerator[tuple[ASGIApp, McpEndpoint]]:
    """Yield all endpoints as one ASGI app (/v1 and /mcp, behind the token and the host check), and the MCP endpoint.

    `extra`: other packages' pages on the admin port, by their paths.
    """
    mcp = services.mcp_endpoint()
    offer = WireOffer.of(config.wire)
    frames = FrameResponder(offer, services.metrics.wire, config.wire.minimum_version)
    bolt_ons = any(upstream.transport == "bolt-on" for upstream in config.upstreams)
    documents = Documents(services.engines.maps, offer, config.wire, runs_bolt_ons=bolt_ons)
    openai = ChatEndpoint(services.agent, config.limits, services.metrics, frames)
    tracing = services.records.tracing
    model = ModelEndpoint(services.agent, services.engines, config.limits, tracing)
    completions = CompletionsEndpoint(services.engines, config.limits, services.metrics, frames, tracing)
    messages = MessagesEndpoint(services.agent, services.engines, config.limits, services.metrics)
    responses = ResponsesEndpoint(services.agent, config.limits, services.metrics, services.replicas, services.shared)
    app: ASGIApp = Starlette(
        routes=[
            *openai.routes(),
            *responses.routes(),
            *messages.routes(),
            *completions.routes(),
            *model.routes(),
            *documents.routes(),
            Route("/mcp", endpoint=mcp),
            Mount("/mcp", app=mcp),
            Route("/sse", endpoint=mcp),
            Mount("/sse", app=mcp),
        ],
        exception_handlers={404: no_such_path, 405: no_such_path},
    )
    if tracing is not None:
        # Inside the guards: strangers make no spans.
        app = TracedRequests(app, tracing, _GENERATE)
    if config.worker is not None:
        app = AtHome(app, services.replicas, config.worker.peers, config.limits.body_bytes)
    app = ClientHeaders(_Shortcut("/mcp", mcp, app), services.proxy)
    signing_in = sign_in_pages(services.proxy, config)
    elsewhere = {path: pages.DESCRIPTION for path, pages in extra.items()}
    app = guard_endpoints(app, config, services.metrics.access, services.shared, signing_in, elsewhere)
    async with mcp.running():
        yield app, mcp


def _is_mcp(scope: Scope) -> bool:
    return scope["path"] in ("/mcp", "/sse") or scope["path"].startswith(("/mcp/", "/sse/"))


class _Shortcut:
    """Takes one path past the router, which saves 30 µs for each MCP request (bench/results/mcp.json)."""

    def __init__(self, path: str, endpoint: ASGIApp, rest: ASGIApp) -> None:
        self._path = path
        self._endpoint = endpoint
        self._rest = rest

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        app = self._endpoint if scope["type"] == "http" and scope["path"] == self._path else self._rest
        return app(scope, receive, send)


async def run_gateway(config: GatewayConfig, reread: Reread, role: ProcessRole = ALONE) -> None:
    """Serve until SIGINT or SIGTERM, then drain. `reread` builds the configuration again when its files change.

    Raises `ConfigError` when a port is taken or a setting can't work, and KeyboardInterrupt when Ctrl-C is pressed
    before the gateway is ready.
    """
    reloader = Reloader(config, reread)
    shutdown = Shutdown(anyio.CancelScope(), reloader.ask)
    with shutdown.scope:
        async with anyio.create_task_group() as tasks:
            await tasks.start(shutdown.watch)
            tasks.start_soon(role.follow, shutdown)
            await _run(config, reloader, shutdown, role)
            tasks.cancel_scope.cancel()
    if shutdown.interrupted:
        raise KeyboardInterrupt


async def _run(config: GatewayConfig, reloader: Reloader, shutdown: Shutdown, role: ProcessRole) -> None:
    limit = raise_file_limit(config.serve.connections.total)
    async with AsyncExitStack() as stack:
        sockets = stack.enter_context(role.listening(config.serve))
        services = await stack.enter_async_context(open_services(config, _START_WAIT))
        # Only the parent reads a worker's admin pages, over a socket of its own, and it shows no other pages.
        private = config.worker is not None
        extra = {} if private else make_extra_pages(services.parts)
        inner, mcp = await stack.enter_async_context(open_app(services, config, extra))
        drained = Drain(inner, stopping, app_refuses=_is_mcp, waits=lambda: mcp.unfinished)
        app = SpelledPaths(drained)
        await stack.enter_async_context(services.replicas.listening(app, sockets.replicas))
        counted = services.metrics.connections
        clients = _connections(config.serve, counted, limit)
        own = admin_app(
            services.metrics,
            services.readiness,
            services.status.make,
            first_page=next(iter(extra), "/status"),
            private=private,
        )
        admin = WithExtraPages(guard_admin(own, config.serve), extra)
        servers = [
            http_server(ForwardedClients(app, clients) if clients.proxies else app, clients),
            http_server(admin, admin_connections(config.serve, counted)),
        ]

        def expire() -> None:
            services.proxy.stop()
            services.replicas.stop()

        async def drain() -> None:
            services.readiness.drain()
            if config.worker is not None:
                # Other workers listen on the same socket: they take new clients, and those that come back.
                servers[0].send_clients_away()
            services.replicas.leave()
            mcp.stop_listening()
            cut = await drained.drained(config.limits.drain, expire)
            mcp.end_sessions()
            log.info("stopped", requests_cut=cut)
            for server in servers:
                server.should_exit = True

        shutdown.ready(drain)
        settle_memory()
        urls = url_of_socket(config.serve.host, sockets.faces), url_of_socket(config.serve.admin_host, sockets.admin)
        await _announce(config, services, *urls, extra)
        role.ready()
        async with anyio.create_task_group() as following:
            following.start_soon(LoopWatch(services.metrics.loop_held).run)
            following.start_soon(
                reloader.follow, reloading(services.proxy, config), {PinFile().path: services.proxy.list_again}
            )
            following.start_soon(
                services.costs.follow, services.proxy, services.metrics.servers, _Advice(services).give
            )
            async with anyio.create_task_group() as serving:
                for server, listener in zip(servers, (sockets.faces, sockets.admin), strict=True):
                    serving.start_soon(server.serve, [listener])
            following.cancel_scope.cancel()


async def _announce(
    config: GatewayConfig, services: Services, url: str, admin: str, extra: Mapping[str, ExtraPages]
) -> None:
    services.readiness.set("gateway", True)
    log.info(
        "gateway ready" if config.worker is None else "worker ready",
        url=url,
        admin=admin,
        upstreams=len(config.upstreams),
        tools=len(services.proxy.tools()),
        engine=_engine_words(config, services.engines),
    )
    for path, pages in extra.items():
        if (start := pages.start_url(admin)) is not None:
            log.info(f"sign in to the {path[1:]} at this address, once, within ten minutes", url=start)


class _Advice:
    """Logs once that definitions take much of the context, when an engine that tells its context is there."""

    def __init__(self, services: Services) -> None:
        self._services: Services | None = services

    async def give(self) -> None:
        if self._services is not None:
            advice = (await self._services.status.make())["definition_advice"]
            if advice is not None:
                self._services = None
                log.warning(advice)


def _engine_words(config: GatewayConfig, engines: EnginePool) -> str:
    """`ready`, `starting`, `down (reason)`, or how many of several are ready."""
    if not config.has_engine:
        return "none"
    state, reason = engines.state()
    if state != "ready":
        return f"{state} ({reason})" if state == "down" else state
    up = sum(each.state == "ready" for each in engines.statuses())
    return state if up == len(config.members) else f"{up} of {len(config.members)} ready"


def _connections(serve: ServeConfig, metrics: ConnectionMetrics, limit: FileLimit) -> ClientConnections:
    proxies = TrustedProxies(serve.trusted_proxies)
    clients = ClientConnections(serve.connections, metrics, proxies=proxies, files=limit.for_clients)
    metrics.follow(clients.__len__)
    return clients


def admin_connections(serve: ServeConfig, metrics: ConnectionMetrics) -> ClientConnections:
    """Bounds for the admin port: few connections, from the part of the open files that clients can't use up."""
    few = replace(serve.connections, total=_MOST_OF_ADMIN, per_address=_MOST_OF_ADMIN)
    return ClientConnections(few, metrics)


# The guards in front of every endpoint, made from the settings: who may call, how much, and under which host names.


def guard_endpoints(
    app: ASGIApp,
    config: GatewayConfig,
    metrics: AccessMetrics,
    shared: Shared | None = None,
    sign_in_pages: Callable[[ASGIApp, Identify], ASGIApp] | None = None,
    admin_pages: Mapping[str, str] = NO_PAGES,
) -> ASGIApp:
    """Wrap the application in the host check, that in the credential check, both in what lets named web pages read the
    answers, and all in the pages at `/` and `/docs`.

    `shared`: counts callers' requests for all replicas; None: each replica counts for itself. `sign_in_pages`: wraps an
    application in the pages at which users sign in to servers; None: there are none. `admin_pages`: what other
    packages' pages on the admin port show, by their paths.

    Raises:
        ConfigError: the key file can't be used.
    """
    serve = config.serve
    credentials = Credentials(serve.token, KeyRing(serve.keys) if serve.keys else None, _access_tokens(config))
    resource = None if serve.oauth is None else ProtectedResource(serve.oauth)
    checked = HostGuard(app, own_hosts(serve), serve.cors_origins)
    auth = BearerAuth(checked, credentials, metrics, resource=resource, shared=shared)
    guarded = auth if sign_in_pages is None else sign_in_pages(auth, auth.identify)
    return Home(Cors(guarded, serve.cors_origins) if serve.cors_origins else guarded, serve, admin_pages)


def _access_tokens(config: GatewayConfig) -> AccessTokens | None:
    if config.serve.oauth is None:
        return None
    # Cryptography and an HTTP client take 20 MB of memory: load them only where an issuer is configured.
    from gateway.serve.auth.oauth import IssuerKeys, TokenVerifier

    return TokenVerifier(config.serve.oauth, IssuerKeys(config.serve.oauth))
