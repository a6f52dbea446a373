"""One gateway process, from its settings to its end.

Builds every room and wires them (nothing below creates anything at import), listens, and stops in order: readiness
goes first, running requests finish or are told, then upstreams and the engine end. Above: `gateway.cli.serve`.
"""

import os
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from gateway.agent import Agent, CallRunner
from gateway.config import GatewayConfig
from gateway.engine.route import EngineRoute
from gateway.errors import ConfigError
from gateway.observe.logs import get_logger
from gateway.observe.metrics import Metrics
from gateway.observe.notices import TokenNotices
from gateway.proxy import Proxy, ResultTokens, UpstreamStatus
from gateway.serve.auth import BearerAuth, HostGuard, guard_admin, own_hosts
from gateway.serve.drain import Drain
from gateway.serve.errors import no_such_path
from gateway.serve.health import Readiness, admin_app
from gateway.serve.mcp import McpFace
from gateway.serve.openai import OpenAiFace
from gateway.serve.shutdown import Shutdown

log = get_logger("serve")


@dataclass(frozen=True, slots=True)
class Rooms:
    """The rooms of a running gateway."""

    route: EngineRoute
    proxy: Proxy
    tokens: ResultTokens
    agent: Agent
    metrics: Metrics
    readiness: Readiness


class _EngineState:
    """Tells metrics and readiness how the engine is, and whoever asks."""

    def __init__(self, metrics: Metrics, readiness: Readiness) -> None:
        self._metrics = metrics
        self._readiness = readiness
        self.is_up = False
        """Whether an engine runs that proved every map."""

    def engine_up(self, up: bool, reason: str) -> None:
        self.is_up = up
        self._metrics.engine_up(up)
        self._readiness.set("engine", up, reason)


@asynccontextmanager
async def open_rooms(config: GatewayConfig) -> AsyncGenerator[Rooms]:
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
    proxy = Proxy(config, metrics)
    readiness.inform("upstreams", lambda: {status.name: _show_upstream(status) for status in proxy.statuses()})
    async with proxy, route.running():
        runner = CallRunner(proxy, tokens, config.limits)
        agent = Agent(route, runner, config.limits, metrics, hold_calls=config.engine.hold_calls)
        yield Rooms(route, proxy, tokens, agent, metrics, readiness)


def _show_upstream(status: UpstreamStatus) -> dict[str, Any]:
    """Without its last error: the words of a server are for the log, which masks secrets, and this page asks no key."""
    return {"state": status.state, "transport": status.transport, "tools": status.tools, "restarts": status.restarts}


@asynccontextmanager
async def open_app(rooms: Rooms, config: GatewayConfig) -> AsyncGenerator[ASGIApp]:
    """The faces as one ASGI app: /v1 and /mcp, behind the token and the host check."""
    mcp = McpFace(rooms.proxy, config, tokens=rooms.tokens, maps=rooms.route.maps.accepted)
    openai = OpenAiFace(rooms.agent, rooms.route, config.limits, rooms.metrics)
    app: ASGIApp = Starlette(
        routes=[*openai.routes(), Route("/mcp", endpoint=mcp), Mount("/mcp", app=mcp)],
        exception_handlers={404: no_such_path, 405: no_such_path},
    )
    app = HostGuard(app, own_hosts(config.serve))
    if config.serve.token is not None:
        app = BearerAuth(app, config.serve.token)
    async with mcp.running():
        yield app


async def run_gateway(config: GatewayConfig) -> None:
    """Serve until SIGINT or SIGTERM, then drain.

    Raises `ConfigError` when a port is taken or a setting can't work, and KeyboardInterrupt when Ctrl-C comes before
    the gateway is ready.
    """
    shutdown = Shutdown(anyio.CancelScope())
    with shutdown.scope:
        async with anyio.create_task_group() as tasks:
            await tasks.start(shutdown.watch)
            await _run(config, shutdown)
            tasks.cancel_scope.cancel()
    if shutdown.interrupted:
        raise KeyboardInterrupt


async def _run(config: GatewayConfig, shutdown: Shutdown) -> None:
    async with AsyncExitStack() as stack:
        faces = stack.enter_context(_listening(config.serve.host, config.serve.port, "--port"))
        admin = stack.enter_context(_listening(config.serve.admin_host, config.serve.admin_port, "--admin-port"))
        rooms = await stack.enter_async_context(open_rooms(config))
        app = Drain(await stack.enter_async_context(open_app(rooms, config)))
        servers = [_server(app), _server(guard_admin(admin_app(rooms.metrics, rooms.readiness), config.serve))]

        async def drain() -> None:
            rooms.readiness.drain()
            cut = await app.drained(config.limits.drain, rooms.proxy.stop)
            log.info("stopped", requests_cut=cut)
            for server in servers:
                server.should_exit = True

        shutdown.ready(drain)
        _announce(config, rooms, _url(config.serve.host, faces), _url(config.serve.admin_host, admin))
        async with anyio.create_task_group() as serving:
            for server, listener in zip(servers, (faces, admin), strict=True):
                serving.start_soon(server.serve, [listener])


def _announce(config: GatewayConfig, rooms: Rooms, url: str, admin: str) -> None:
    rooms.readiness.set("gateway", True)
    log.info(
        "gateway ready",
        url=url,
        admin=admin,
        upstreams=len(config.upstreams),
        tools=len(rooms.proxy.tools()),
        engine=config.engine.kind,
    )


def _url(host: str, listener: socket.socket) -> str:
    """Where a listener is reached: the setting may have said port 0, any free one."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listener.getsockname()[1]}"


@contextmanager
def _listening(host: str, port: int, flag: str) -> Generator[socket.socket]:
    """A bound socket. Raises `ConfigError` when the address is taken or not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ConfigError(
            f"can't listen on {host}:{port} ({os.strerror(error.errno or 0)}); "
            f"stop what listens there or choose another with {flag}"
        ) from error
    with listener:
        yield listener


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to `_stop_on_signal`: there are two servers, and one plan."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def _server(app: ASGIApp) -> _Server:
    settings = uvicorn.Config(
        app,
        loop="none",
        http="httptools",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    return _Server(settings)
