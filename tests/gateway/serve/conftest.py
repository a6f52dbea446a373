"""What the tests of the MCP endpoint share: servers that do what a test says, and a running endpoint to speak to."""

import contextlib
import json
import os
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx2
import pytest
import uvicorn
from starlette.types import ASGIApp

from gateway.config.gateway_config import GatewayConfig, LimitsConfig, ServeConfig
from gateway.errors import RpcError, UnknownTool
from gateway.observe.metrics import Metrics
from gateway.protocol.eras import CAPABILITIES_KEY, VERSION_KEY
from gateway.protocol.headers import VERSION_HEADER, Annotation, annotations_of, routing_headers
from gateway.proxy.caller import ANYBODY, Caller, ClientSession, Principal
from gateway.proxy.results import CallOutcome, ending_of
from gateway.serve.mcp import McpEndpoint

ACCEPT = "application/json, text/event-stream"
MODERN = "2026-07-28"
ENVELOPE = {VERSION_KEY: MODERN, CAPABILITIES_KEY: {"elicitation": {}}}
CAPABILITIES = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
}


@dataclass(frozen=True)
class Change:
    kind: str
    server: str = "one"
    session: ClientSession | None = None
    owner: str | None = None


@dataclass
class Servers:
    """Servers without processes: a tool is a coroutine function here."""

    tools: dict[str, Callable[[dict[str, Any], Caller], Awaitable[dict[str, Any] | CallOutcome]]] = field(
        default_factory=dict
    )
    schemas: dict[str, dict[str, Any]] = field(default_factory=dict)
    offered: dict[str, Any] = field(default_factory=lambda: CAPABILITIES)
    callbacks: list[Callable[[Change], None]] = field(default_factory=list)
    watched: dict[str, Callable[[str], None]] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    told: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    callers: list[Caller] = field(default_factory=list)
    adopted: list[ClientSession] = field(default_factory=list)
    ended: list[ClientSession] = field(default_factory=list)
    changed: anyio.Event = field(default_factory=anyio.Event)
    started: anyio.Event | None = None

    def _note(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()

    async def until(self, condition: Callable[[], object]) -> None:
        with anyio.fail_after(20):
            while not condition():
                await self.changed.wait()

    async def handle(self, method: str, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        self.asked.append((method, params))
        self.callers.append(caller)
        self._note()
        if method in ("tools/list", "logging/setLevel", "resources/subscribe"):
            return {"tools": []} if method == "tools/list" else {}
        raise RpcError({"code": -32601, "message": f"unknown method {method!r}"})

    async def call_tool(self, params: dict[str, Any], caller: Caller) -> CallOutcome:
        self.asked.append(("tools/call", params))
        self.callers.append(caller)
        self._note()
        if (tool := self.tools.get(params.get("name", ""))) is None:
            raise UnknownTool(f"unknown tool {params.get('name')!r}")
        answer = await tool(params, caller)
        return answer if isinstance(answer, CallOutcome) else CallOutcome(answer, ending_of(answer), "one")

    async def tell(self, method: str, params: dict[str, Any], session: ClientSession) -> None:
        self.told.append((method, params))
        self._note()

    def capabilities(self, principal: Principal, *, modern: bool) -> dict[str, Any]:
        return self.offered

    def instructions(self, principal: Principal) -> str | None:
        return "be kind"

    async def ready(self) -> None:
        if self.started is not None:
            await self.started.wait()

    @property
    def waits_for_clients(self) -> bool:
        return False

    def adopt(self, session: ClientSession) -> None:
        self.adopted.append(session)

    def session_ended(self, session: ClientSession) -> None:
        self.ended.append(session)
        self._note()

    def on_change(self, callback: Callable[[Any], None]) -> Callable[[], None]:
        self.callbacks.append(callback)
        self._note()
        return lambda: self.callbacks.remove(callback)

    async def watch(self, uris: Any, principal: Principal, updated: Callable[[str], None]) -> Callable[[], None]:
        for uri in uris:
            self.watched[uri] = updated
        self._note()

        def stop() -> None:
            for uri in uris:
                del self.watched[uri]
            self._note()

        return stop

    def through_view(self, principal: Principal, name: str) -> Principal | None:
        return principal

    def annotations(self, name: str, principal: Principal) -> tuple[Annotation, ...]:
        return annotations_of(self.schemas.get(name))

    def server_of(self, tool: str, view: str | None = None) -> str | None:
        return "one" if tool in self.tools else None

    def change(self, kind: str, server: str = "one", owner: str | None = None) -> None:
        for callback in list(self.callbacks):
            callback(Change(kind, server, owner=owner))

    def tool(self, function: Callable[[dict[str, Any], Caller], Awaitable[dict[str, Any] | CallOutcome]]) -> None:
        """Offer a tool under the function's name."""
        self.tools[function.__name__] = function

    def hanging(self) -> tuple[anyio.Event, anyio.Event]:
        """Offer a tool `hang` that never answers: the events of its beginning and of its cancellation."""
        began, cancelled = anyio.Event(), anyio.Event()

        async def hang(_: dict[str, Any], __: Caller) -> dict[str, Any]:
            began.set()
            try:
                await anyio.sleep_forever()
            finally:
                cancelled.set()

        self.tool(hang)
        return began, cancelled


class Session:
    """A client of the handshake era that sees every byte."""

    def __init__(self, http: httpx2.AsyncClient, url: str, version: str, capabilities: dict[str, Any]) -> None:
        self.http = http
        self.url = url
        self.headers = {"accept": ACCEPT, "content-type": "application/json"}
        self._greeting = {
            "protocolVersion": version,
            "capabilities": capabilities,
            "clientInfo": {"name": "t", "version": "1"},
        }

    async def open(self) -> dict[str, Any]:
        """The result of `initialize`."""
        answer = await self.post("initialize", self._greeting, request_id=0)
        assert answer.status_code == 200, answer.text
        self.headers["mcp-session-id"] = answer.headers["mcp-session-id"]
        result = answer.json()["result"]
        self.headers["mcp-protocol-version"] = result["protocolVersion"]
        return result

    def body(self, method: str, params: dict[str, Any] | None = None, request_id: object = 1) -> dict[str, Any]:
        body: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if request_id is not None:
            body["id"] = request_id
        return body if params is None else {**body, "params": params}

    async def post(
        self, method: str, params: dict[str, Any] | None = None, request_id: object = 1, **headers: str
    ) -> httpx2.Response:
        content = json.dumps(self.body(method, params, request_id))
        return await self.http.post(self.url, content=content, headers={**self.headers, **headers})

    async def call(self, tool: str, request_id: object = 1, **headers: str) -> httpx2.Response:
        return await self.post("tools/call", {"name": tool}, request_id, **headers)

    async def answer(self, request_id: object, result: dict[str, Any]) -> httpx2.Response:
        content = json.dumps({"jsonrpc": "2.0", "id": request_id, "result": result})
        return await self.http.post(self.url, content=content, headers=self.headers)

    @asynccontextmanager
    async def stream(
        self, method: str, params: dict[str, Any] | None = None, request_id: object = 1, **headers: str
    ) -> AsyncGenerator["Stream"]:
        """A POST whose answer is read as it comes."""
        sent = {**self.headers, **headers}
        content = json.dumps(self.body(method, params, request_id))
        async with self.http.stream("POST", self.url, content=content, headers=sent) as response:
            yield Stream(response)

    @asynccontextmanager
    async def listen(self, **headers: str) -> AsyncGenerator["Stream"]:
        """The GET stream."""
        sent = {**self.headers, "accept": "text/event-stream", **headers}
        async with self.http.stream("GET", self.url, headers=sent) as response:
            yield Stream(response)


class Stream:
    """Events of one response."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self.ids: list[str] = []
        self.kinds: list[str | None] = []
        """What each event with a message says of its kind."""
        self.retry: str | None = None
        self._lines: AsyncIterator[str] = response.aiter_lines()

    async def event(self) -> dict[str, Any] | None:
        """The next event's data; None: the stream ended. An event without data is an empty object."""
        data: str | None = None
        kind: str | None = None
        with anyio.fail_after(20):
            async for line in self._lines:
                name, _, value = line.partition(": ")
                if name == "id":
                    self.ids.append(value)
                elif name == "event":
                    kind = value
                elif name == "retry":
                    self.retry = value
                elif line.startswith("data"):
                    data = value
                elif not line and data is not None:
                    if not data:
                        return {}
                    self.kinds.append(kind)
                    return json.loads(data)
        return None

    async def events(self) -> list[dict[str, Any]]:
        """All that come until the stream ends."""
        found: list[dict[str, Any]] = []
        while (event := await self.event()) is not None:
            found.append(event)
        return found


class Site:
    """A running endpoint."""

    def __init__(self, url: str, endpoint: McpEndpoint, metrics: Metrics, stack: AsyncExitStack) -> None:
        self.url = url
        self.endpoint = endpoint
        self.metrics = metrics
        self.principal = ANYBODY
        self._stack = stack

    @property
    def port(self) -> int:
        return int(self.url.split(":")[2].split("/")[0])

    async def http(self) -> httpx2.AsyncClient:
        # Without TLS: to read the authorities takes 40 ms for each client.
        return await self._stack.enter_async_context(httpx2.AsyncClient(timeout=20, verify=False))

    async def session(self, version: str = "2025-11-25", capabilities: dict[str, Any] | None = None) -> Session:
        """An open session of a client of its own."""
        session = Session(await self.http(), self.url, version, capabilities or {})
        await session.open()
        return session

    def request(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        request_id: object = 1,
        meta: dict[str, Any] | None = None,
        **headers: str | None,
    ) -> dict[str, Any]:
        """Body and headers of a request of 2026-07-28 in order, save what `headers` changes (None: left out)."""
        params = {**(params or {}), "_meta": {**ENVELOPE, **(meta or {})}}
        sent: dict[str, str | None] = {"accept": ACCEPT, "content-type": "application/json", VERSION_HEADER: MODERN}
        sent |= routing_headers(method, params)
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        body = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        return {
            "content": json.dumps(body),
            "headers": {name: value for name, value in sent.items() if value is not None},
        }

    async def modern(self, method: str, params: dict[str, Any] | None = None, **more: Any) -> httpx2.Response:
        """The answer to one such request."""
        return await (await self.http()).post(self.url, **self.request(method, params, **more))

    @asynccontextmanager
    async def modern_stream(
        self, method: str, params: dict[str, Any] | None = None, **more: Any
    ) -> AsyncGenerator[Stream]:
        """Its answer as it comes."""
        http = await self.http()
        async with http.stream("POST", self.url, **self.request(method, params, **more)) as response:
            yield Stream(response)

    def dropped(self) -> float:
        """How many notifications clients lost because they did not read."""
        page = self.metrics.render().decode()
        return sum(
            float(line.rpartition(" ")[2])
            for line in page.splitlines()
            if line.startswith("codec_notifications_dropped_total{") and 'reason="slow_client"' in line
        )


@asynccontextmanager
async def run_site(
    servers: Servers,
    *,
    endpoint_with: dict[str, Any] | None = None,
    around: Callable[[ASGIApp], ASGIApp] = lambda endpoint: endpoint,
    **serve: Any,
) -> AsyncGenerator[Site]:
    config = GatewayConfig(limits=LimitsConfig(body_bytes=100_000), serve=ServeConfig(**serve))
    metrics = Metrics()
    endpoint = make_endpoint(servers, metrics, config=config, **(endpoint_with or {}))
    within = around(endpoint)
    listener = socket.create_server(("127.0.0.1", 0))
    site: Site | None = None

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert site is not None
        await within({**scope, "state": {"principal": site.principal}}, receive, send)

    settings = uvicorn.Config(app, lifespan="off", log_level="critical", ws="none", timeout_graceful_shutdown=1)
    server = uvicorn.Server(settings)
    with listener:
        async with endpoint.running(), anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listener])
            async with AsyncExitStack() as stack:
                site = Site(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", endpoint, metrics, stack)
                yield site
            server.should_exit = True


class Lines:
    """A client on two pipes that sees every byte."""

    def __init__(self, to_us: int, from_us: int) -> None:
        self.to_us = to_us
        self.from_us = from_us
        self._read = b""

    def send(self, *messages: object) -> None:
        lines = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in messages]
        os.write(self.to_us, b"".join(line + b"\n" for line in lines))

    def ask(self, method: str, params: dict[str, Any] | None = None, request_id: object = 1) -> None:
        body: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        self.send(body if request_id is None else {**body, "id": request_id})

    async def line(self) -> dict[str, Any]:
        with anyio.fail_after(20):
            while b"\n" not in self._read:
                await anyio.wait_readable(self.from_us)
                data = os.read(self.from_us, 1 << 20)
                assert data, "the gateway closed its output"
                self._read += data
        line, _, self._read = self._read.partition(b"\n")
        return json.loads(line)

    async def greet(self, capabilities: dict[str, Any] | None = None) -> dict[str, Any]:
        self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": capabilities or {}}, 0)
        answer = await self.line()
        self.ask("notifications/initialized", request_id=None)
        return answer["result"]

    async def settled(self) -> None:
        """Everything that was sent has been read."""
        self.ask("server/discover", {"_meta": ENVELOPE | {VERSION_KEY: "0"}}, "settled")
        assert (await self.line())["id"] == "settled"

    def leave(self) -> None:
        os.close(self.to_us)
        self.to_us = -1


def make_endpoint(
    servers: Servers, metrics: Metrics | None = None, *, config: GatewayConfig | None = None, **more: Any
) -> McpEndpoint:
    config = config or GatewayConfig(limits=LimitsConfig(body_bytes=100_000))
    return McpEndpoint(servers, config, **{"tokens": None, "maps": {}, "metrics": metrics, **more})


@asynccontextmanager
async def run_lines(
    servers: Servers, *, metrics: Metrics | None = None, start: Any = None, **endpoint_with: Any
) -> AsyncGenerator[Lines]:
    source, to_us = os.pipe()
    from_us, sink = os.pipe()
    endpoint = make_endpoint(servers, metrics, **endpoint_with)
    lines = Lines(to_us, from_us)
    try:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(endpoint.serve_descriptors, source, sink, start)
                yield lines
                if lines.to_us >= 0:
                    lines.leave()
    finally:
        for descriptor in (source, sink, from_us, lines.to_us):
            with contextlib.suppress(OSError):
                os.close(descriptor)


@pytest.fixture
def servers() -> Servers:
    return Servers()


@pytest.fixture
def site_of() -> Callable[..., contextlib.AbstractAsyncContextManager[Site]]:
    """Runs the endpoint over HTTP."""
    return run_site


@pytest.fixture
def lines_of() -> Callable[..., contextlib.AbstractAsyncContextManager[Lines]]:
    """Runs the endpoint on two pipes."""
    return run_lines


@pytest.fixture(scope="session")
def endpoint_of() -> Callable[[Servers], McpEndpoint]:
    """Makes an endpoint that runs nowhere yet."""
    return make_endpoint


@pytest.fixture(scope="session")
def servers_type() -> type[Servers]:
    """For tests that need new servers again and again."""
    return Servers
