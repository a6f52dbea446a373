"""The MCP endpoint: serves MCP clients over Streamable HTTP and over standard input and output.

One ASGI app for `/mcp` that tells the two protocol eras apart by the version header, and for `/sse`, which clients of
the transport before Streamable HTTP know; and one server for a client on
standard input and output. It knows neither the servers behind the gateway nor the engine nor who may call:
`app/process.py` wraps it in the layers that do.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
from starlette.types import Receive, Scope, Send

from gateway.config.gateway_config import GatewayConfig
from gateway.context.large_result_store import ResultStore
from gateway.errors import MapUnknown, OwnerGone, ReplicaBusy
from gateway.escape import escape_text
from gateway.observe.audit import Audit
from gateway.observe.metrics import Metrics
from gateway.protocol.eras import HANDSHAKE_VERSIONS, MODERN_VERSIONS
from gateway.protocol.headers import VERSION_HEADER
from gateway.protocol.messages import Request, parse_message
from gateway.proxy.caller import Principal
from gateway.proxy.catalog import ListChange
from gateway.proxy.proxy import Proxy
from gateway.proxy.result_tokens import ResultTokens
from gateway.proxy.shares import ShareRule
from gateway.replicas import ALONE, Replica, Replicas
from gateway.serve.http.error_answers import replay_body
from gateway.serve.http.middleware import LATE
from gateway.serve.http.request_parts import headers_of, principal_of
from gateway.serve.mcp.http import (
    RETRY_AFTER,
    SESSION_HEADER,
    ClientGone,
    HttpRequest,
    Rejected,
    read_message_body,
    refuse_late,
    send_rejection,
)
from gateway.serve.mcp.http_modern import ModernHttp
from gateway.serve.mcp.http_session import SessionLimits
from gateway.serve.mcp.http_sessions import HttpSessions, LeftEvents
from gateway.serve.mcp.http_sse import OLD_PATH, OldSessions, named_session
from gateway.serve.mcp.large_result_links import ResultLinks
from gateway.serve.mcp.methods import McpCore, Subscriptions
from gateway.serve.mcp.outbox import Losses
from gateway.serve.mcp.recorder import Recorder
from gateway.serve.mcp.result_ids import MAP_HEADER, ClientIds, SessionMaps
from gateway.serve.mcp.sessions import McpSession
from gateway.serve.mcp.stdio_client import StdioClient, claim_stdio
from gateway.shared import Shared
from leaf_sdk.vocab import TokenMap

if TYPE_CHECKING:
    from gateway.observe.tracing import Tracing


PATH: Final = "/mcp"
_SHOWN: Final = 64


class McpEndpoint:
    """One MCP server made of many: an ASGI app for `/mcp`, and a server on standard input and output."""

    def __init__(
        self,
        proxy: Proxy,
        config: GatewayConfig,
        *,
        tokens: ResultTokens | None,
        maps: Mapping[str, TokenMap],
        session_map: str | None = None,
        metrics: Metrics | None = None,
        audit: Audit | None = None,
        tracing: "Tracing | None" = None,
        replicas: Replicas = ALONE,
        shared: Shared | None = None,
        results: ResultStore | None = None,
    ) -> None:
        """Nothing runs before `running` or `serve_stdio`.

        Args:
            tokens: turns results into ids; None: text only, and clients can't name a map.
            maps: the allow-listed maps, by map id.
            session_map: the id of the map for clients that name none.
            audit, tracing: record every call; None: not recorded.
            replicas: the other replicas, which have the sessions and calls that are not here.
            shared: keeps the events of sessions whose replica is gone.
            results: keeps large results; None: clients get them whole.

        Raises:
            MapUnknown: `session_map` is not in `maps`.
        """
        held = SessionMaps(maps if tokens is not None else {})
        self._maps = held
        self._proxy = proxy
        self._body_bytes = config.limits.body_bytes
        metrics = metrics or Metrics()
        rule = ShareRule(config.limits.principal_share, metrics.access.bound_refused)
        self._dropped: Callable[[], None] = Losses(partial(metrics.notification_dropped, "slow_client"))
        self._core = McpCore(
            proxy,
            held,
            ids=ClientIds(tokens, config.tokens.min_text_length, sourced=audit is not None),
            links=ResultLinks(results, partial(replicas.name, "result"), config.limits.mcp_result_characters),
            session_map=None if session_map is None else held.from_meta(session_map),
            recorder=None if audit is None and tracing is None else Recorder(proxy, audit, tracing),
            subscriptions=Subscriptions(proxy, rule),
            failed=metrics.servers.answered,
        )
        limits = SessionLimits(
            body_bytes=config.limits.body_bytes,
            sessions=rule.shares("session", config.serve.max_sessions, "sessions", "serve.max_sessions"),
            idle=config.serve.session_idle,
            close_after=config.serve.sse_close_after,
        )
        self._replicas = replicas
        self._left = None
        if shared is not None:
            self._left = LeftEvents(shared, config.limits.principal_share, config.serve.session_idle)
        self._sessions = HttpSessions(self._core, limits, self._dropped, partial(replicas.name, "session"), self._left)
        self._old = OldSessions(self._core, limits, self._dropped, partial(replicas.name, "session"))
        self._modern = ModernHttp(self._core, replicas, body_bytes=config.limits.body_bytes, dropped=self._dropped)
        self._is_running = False

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """The lifespan of the HTTP side: inside it, sessions may be open and changes are announced to them."""
        release = self._proxy.on_change(lambda change: _announce(change, (*self._sessions.live(), *self._old.live())))
        self._is_running = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._sessions.reap)
            try:
                yield
            finally:
                self._is_running = False
                release()
                self.stop_listening()
                self.end_sessions()
                tasks.cancel_scope.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request (ASGI). A header that names an unknown map is refused before anything else."""
        if not self._is_running:
            raise RuntimeError("McpEndpoint serves HTTP only inside `async with endpoint.running()`")
        read = headers_of(scope)
        headers = read.values
        try:
            named = headers.get(MAP_HEADER)
            token_map = None if named is None else self._maps.from_header(named)
            principal = principal_of(scope)
            is_old = False
            if (path := scope["path"]) != PATH:
                is_old = path == OLD_PATH or path.startswith(f"{OLD_PATH}/")
                # Cut once: a view or a server may be called `sse` too.
                principal = self._through_view(path.removeprefix(OLD_PATH if is_old else PATH), principal)
            request = HttpRequest(scope["method"], headers, read.repeated, principal, token_map, scope, receive, send)
            session = named_session(request) if is_old else headers.get(SESSION_HEADER)
            if session is not None and (owner := self._replicas.owner("session", session, principal.name, scope)):
                await self._forward(owner, request)
                return
            if is_old:
                await self._old.serve(request)
                return
            version = headers.get(VERSION_HEADER)
            is_handshake = version is None or version in HANDSHAKE_VERSIONS
            # A session's client that names an unknown version made a mistake in the header: the session tells it so.
            is_handshake = is_handshake or (session is not None and version not in MODERN_VERSIONS)
            await (self._sessions if is_handshake else self._modern).serve(request)
        except Rejected as rejected:
            await send_rejection(send, rejected)
        except MapUnknown as error:
            await send_rejection(send, Rejected(400, error.message))
        except ClientGone:
            return

    def _through_view(self, path: str, principal: Principal) -> Principal:
        """The principal within the view that the rest of a path names."""
        name = path.strip("/")
        through = self._proxy.through_view(principal, name) if name else principal
        if through is None:
            what = f"there is no server and no view {escape_text(name, _SHOWN)!r} here"
            raise Rejected(404, f"{what}: {PATH} serves everything, {PATH}/NAME one server or view")
        return through

    async def _forward(self, owner: Replica, request: HttpRequest) -> None:
        scope, receive = request.scope, request.receive
        if LATE in scope and request.method == "POST":
            # This replica is stopping, but still passes on messages that continue a call elsewhere.
            body = await read_message_body(request, self._body_bytes)
            if isinstance(parse_message(body), Request):
                refuse_late(request)
            scope, receive = replay_body(scope, receive, body)
        try:
            await self._replicas.forward(owner, scope, receive, request.send)
        except ReplicaBusy as error:
            raise Rejected(503, error.message, headers=RETRY_AFTER) from None
        except OwnerGone as error:
            if self._left is not None and await self._left.give(request):
                return
            raise Rejected(404, f"the session has ended ({error.message}): send initialize again") from None

    @property
    def unfinished(self) -> bool:
        """Whether something here awaits its client: to fetch an answer, or to bring one to a server's question."""
        return self._sessions.unfinished or self._proxy.waits_for_clients

    def stop_listening(self) -> None:
        """End every `subscriptions/listen` with its result: they never end by themselves."""
        self._core.subscriptions.close()

    def end_sessions(self) -> None:
        """End every HTTP session of the handshake era with its streams, and the requests that other replicas answer."""
        self._sessions.end_all()
        self._old.end_all()
        self._replicas.stop()

    async def serve_stdio(
        self, start: AbstractAsyncContextManager[object] | None = None, stop: Callable[[], None] | None = None
    ) -> None:
        """Serve one client on standard input and output, until its input ends.

        Args:
            start: entered when the client's first request has come, and left at the end. Servers that it starts then
                know what this client can be asked for.
            stop: called when the client is done; if `start` is still being entered, it should make that end soon.
        """
        with claim_stdio() as (source, sink):
            await self.serve_descriptors(source, sink, start, stop)

    async def serve_descriptors(
        self,
        source: int,
        sink: int,
        start: AbstractAsyncContextManager[object] | None = None,
        stop: Callable[[], None] | None = None,
    ) -> None:
        """Like `serve_stdio`, on two open descriptors, which the caller must close."""
        client = StdioClient(self._core, source, sink, line_bound=self._body_bytes, dropped=self._dropped)
        release = self._proxy.on_change(
            lambda change: _announce(change, () if client.session is None else (client.session,))
        )
        serving = asyncio.get_running_loop().create_task(client.serve())
        if stop is not None:
            serving.add_done_callback(lambda _: stop())
        try:
            await client.asked_or_left.wait()
            async with start if start is not None and client.asked else nullcontext():
                await asyncio.shield(serving)
        finally:
            release()
            serving.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait({serving})


def _announce(change: ListChange, sessions: Iterable[McpSession]) -> None:
    """Tell clients of the handshake era that a list that they see has changed."""
    for session in sessions:
        principal = session.principal
        is_meant = change.session in (None, session) and change.owner in (None, principal.owner)
        if is_meant and principal.sees(change.server):
            session.notified(f"notifications/{change.kind}/list_changed", {})
