"""One gateway in this process: it listens, serves, takes over what changes, and stops in order."""

import gc
import json
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from bench.processes import free_ports
from gateway.app.loop_watch import settle_memory
from gateway.app.process import reloading, run_gateway, stopping
from gateway.app.role import ALONE, Listeners, Shutdown
from gateway.config.gateway_config import (
    GatewayConfig,
    LimitsConfig,
    ServeConfig,
    SignInConfig,
    TokensConfig,
    UpstreamConfig,
)
from gateway.config.replicas import ReplicasConfig, WorkerConfig
from gateway.errors import ConfigError
from gateway.protocol.headers import routing_headers
from gateway.workers.stdio.shared_process import StdioHost
from tests.gateway.app.conftest import URL, ScriptedEngines, ScriptedRoute
from tests.gateway.exported_spans import ExportedSpans
from tests.gateway.serve.conftest import Session, Stream

pytestmark = pytest.mark.anyio
SERVERS = Path(__file__).parents[2] / "e2e" / "servers"
CLOCK = UpstreamConfig("time", sys.executable, (str(SERVERS / "tells_time.py"),))
CONFIG = GatewayConfig(
    serve=ServeConfig(port=0, admin_port=0),
    tokens=TokensConfig(map=None),
    limits=LimitsConfig(drain=5.0),
)


@pytest.fixture(autouse=True)
def _process_as_it_was() -> Iterator[None]:
    hangup, thresholds = signal.getsignal(signal.SIGHUP), gc.get_threshold()
    yield
    signal.signal(signal.SIGHUP, hangup)
    gc.set_threshold(*thresholds)


class Parent:
    """The role of a process whose parent is the test."""

    def __init__(self) -> None:
        self.is_ready = anyio.Event()
        self.shutdown: Shutdown | None = None
        self.faces = self.admin = ""

    @contextmanager
    def listening(self, serve: ServeConfig) -> Generator[Listeners]:
        with ALONE.listening(serve) as listeners:
            self.faces, self.admin = (
                f"http://127.0.0.1:{each.getsockname()[1]}" for each in (listeners.faces, listeners.admin)
            )
            yield listeners

    def ready(self) -> None:
        self.is_ready.set()

    async def follow(self, shutdown: Shutdown) -> None:
        self.shutdown = shutdown


class Running:
    """A running gateway."""

    def __init__(self, config: GatewayConfig, role: Parent) -> None:
        self.fresh = config
        self.role = role
        self.over = anyio.Event()

    def reread(self) -> GatewayConfig:
        return self.fresh

    async def run(self) -> None:
        await run_gateway(self.fresh, self.reread, self.role)
        self.over.set()

    def stop(self) -> None:
        assert self.role.shutdown is not None
        self.role.shutdown.stop()

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        base = self.role.admin if path.startswith(("/health", "/metrics", "/status")) else self.role.faces
        async with httpx2.AsyncClient(timeout=20) as http:
            return await http.get(base + path, headers={name.replace("_", "-"): it for name, it in headers.items()})

    async def is_open(self) -> bool:
        """Whether a new client is let in."""
        try:
            await self.get("/nowhere")
        except httpx2.ConnectError:
            return False
        return True

    def request(self, method: str, **params: Any) -> tuple[str, dict[str, Any], dict[str, str]]:
        """The address, body and headers of a request of MCP's newest era."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2026-07-28"}
        headers |= routing_headers(method, params)
        return f"{self.role.faces}/mcp", body, headers

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to it."""
        url, body, headers = self.request(method, **params)
        async with httpx2.AsyncClient(timeout=20) as http:
            return (await http.post(url, json=body, headers=headers)).json()


@asynccontextmanager
async def running(config: GatewayConfig = CONFIG, role: Parent | None = None) -> AsyncGenerator[Running]:
    gateway = Running(config, role or Parent())
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(gateway.run)
            await gateway.role.is_ready.wait()
            yield gateway
            gateway.stop()
            await gateway.over.wait()


def events(caplog: pytest.LogCaptureFixture) -> dict[str, dict[str, Any]]:
    return {record.msg["event"]: record.msg for record in caplog.records if isinstance(record.msg, dict)}


async def test_gateway_serves_its_ports_until_it_is_stopped(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with running(replace(CONFIG, upstreams=(CLOCK,))) as gateway:
        ready = events(caplog)["gateway ready"]
        health = await gateway.get("/healthz/ready")
        tools = await gateway.ask("tools/list")
        page = (await gateway.get("/metrics")).text
        unknown = await gateway.get("/nowhere")
        not_allowed = await gateway.get("/v1/chat/completions")
        foreign = await gateway.get("/v1/models", host="evil.example")
        admin_of_others = await gateway.get("/status", host="evil.example")

    console = events(caplog)["sign in to the console at this address, once, within ten minutes"]
    assert console["url"].startswith(f"{gateway.role.admin}/console/")
    assert (ready["url"], ready["admin"]) == (gateway.role.faces, gateway.role.admin)
    assert (ready["upstreams"], ready["tools"], ready["engine"]) == (1, 1, "none")
    assert (health.status_code, health.json()["ready"]) == (200, True)
    assert [each["name"] for each in tools["result"]["tools"]] == ["get_time"]
    assert 'codec_upstream_up{server="time"} 1.0' in page
    assert (unknown.status_code, not_allowed.status_code) == (404, 405)
    assert unknown.json()["error"]["code"] == "not_found"
    assert (foreign.status_code, admin_of_others.status_code) == (421, 421)
    assert events(caplog)["stopped"]["requests_cut"] == 0


async def test_stopping_gateway_finishes_what_runs_and_refuses_what_comes(tmp_path: Path) -> None:
    pipe = tmp_path / "says when"
    waits = UpstreamConfig("up", sys.executable, ("-c", WAITS, str(pipe)))
    async with running(replace(CONFIG, upstreams=(waits,))) as gateway:
        answers: list[dict[str, Any]] = []

        async def call() -> None:
            answers.append(await gateway.ask("tools/call", name="wait", arguments={}))

        async with (
            httpx2.AsyncClient(timeout=20, base_url=gateway.role.faces) as kept,
            anyio.create_task_group() as tasks,
        ):
            assert (await kept.get("/nowhere")).status_code == 404
            tasks.start_soon(call)
            with anyio.fail_after(20):
                while not pipe.exists():  # noqa: ASYNC110
                    await anyio.sleep(0.01)
            gateway.stop()
            while (health := await gateway.get("/healthz/ready")).status_code == 200:
                pass
            refused = await kept.post("/v1/embeddings")
            late = await gateway.ask("tools/call", name="wait", arguments={})
            pipe.unlink()

    assert health.json()["draining"] is True
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "stopping")
    assert "stopping" in late["error"]["message"]
    assert answers[0]["result"]["content"] == [{"type": "text", "text": "done"}]


WAITS = """
import json, pathlib, sys, time
mark = pathlib.Path(sys.argv[1])
for line in sys.stdin:
    asked = json.loads(line)
    result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "w"}}
    result["serverInfo"]["version"] = "1"
    if asked["method"] == "tools/list":
        result = {"tools": [{"name": "wait", "inputSchema": {"type": "object"}}]}
    if asked["method"] == "tools/call":
        mark.touch()
        while mark.exists():
            time.sleep(0.01)
        result = {"content": [{"type": "text", "text": "done"}]}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


async def test_servers_that_are_new_are_taken_over_without_a_restart(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with running() as gateway:
        before = await gateway.ask("tools/list")
        gateway.fresh = replace(CONFIG, upstreams=(CLOCK,))
        assert gateway.role.shutdown is not None
        gateway.role.shutdown.reload()
        while not (after := await gateway.ask("tools/list"))["result"]["tools"]:
            pass

    assert before["result"]["tools"] == []
    assert [each["name"] for each in after["result"]["tools"]] == ["get_time"]
    assert "users can't sign in before a restart" not in caplog.text


async def test_engine_that_is_away_is_said_and_holds_up_nobody(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    config = replace(CONFIG, engine=replace(CONFIG.engine, kind="url", url="http://127.0.0.1:9", api="llama_cpp"))
    async with running(config) as gateway:
        health = await gateway.get("/healthz/ready")
        tools = await gateway.ask("tools/list")

    assert events(caplog)["gateway ready"]["engine"].startswith("down (")
    assert (health.status_code, health.json()["components"]) == (503, {"gateway": True, "engine": False})
    assert tools["result"]["tools"] == []


async def test_engines_that_are_there_are_said_and_the_first_count_of_costly_definitions(
    engines: list[ScriptedEngines], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(ScriptedEngines, "context", 64)
    monkeypatch.setattr(ScriptedRoute, "away", None)
    for config in (
        replace(CONFIG, upstreams=(CLOCK,), engine=URL),
        replace(CONFIG, engines={"one": URL, "two": URL}),
    ):
        async with running(config) as gateway:
            first = next(iter(engines[-1].routes))
            said = events(caplog)["gateway ready"]["engine"]
            if config.engines:
                assert (said, engines[-1].waits) == ("ready", [2.0])
                assert (await gateway.get("/healthz/ready")).json()["engines"][first]["up"] is True
            else:
                assert said == "ready"
                for _ in range(2):
                    engines[-1].set(first, None)
                    while "the definitions of all tools take about" not in caplog.text:  # noqa: ASYNC110
                        await anyio.sleep(0.01)
    assert caplog.text.count("the definitions of all tools take about") == 1


async def test_engine_of_several_that_is_away_is_counted(
    engines: list[ScriptedEngines], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    def first_is_there(self: ScriptedRoute, context: int) -> None:
        made(self, context)
        self.away = None if not there else "away"
        there.append(self)

    there: list[ScriptedRoute] = []
    made = ScriptedRoute.__init__
    monkeypatch.setattr(ScriptedRoute, "__init__", first_is_there)
    async with running(replace(CONFIG, engines={"one": URL, "two": URL})):
        assert events(caplog)["gateway ready"]["engine"] == "1 of 2 ready"


async def test_call_that_outlasts_the_time_to_drain_is_ended_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    mark = tmp_path / "runs"
    waits = UpstreamConfig("up", sys.executable, ("-c", WAITS, str(mark)))
    config = replace(CONFIG, upstreams=(waits,), limits=LimitsConfig(drain=0.05))
    answers: list[dict[str, Any]] = []
    async with anyio.create_task_group() as tasks, running(config) as gateway:

        async def call() -> None:
            answers.append(await gateway.ask("tools/call", name="wait", arguments={}))

        tasks.start_soon(call)
        while not mark.exists():  # noqa: ASYNC110
            await anyio.sleep(0.01)

    assert "the gateway ended it" in json.dumps(answers)
    assert events(caplog)["stopped"]["requests_cut"] == 1


async def test_stream_of_a_session_ends_when_the_gateway_stops(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with running() as gateway, httpx2.AsyncClient(timeout=20) as http:
        session = Session(http, f"{gateway.role.faces}/mcp", "2025-11-25", {})
        await session.open()
        async with session.listen() as stream:
            gateway.stop()
            assert await stream.events() == []

    assert events(caplog)["stopped"]["requests_cut"] == 0


async def test_subscription_ends_with_its_result_when_the_gateway_stops(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with running() as gateway, httpx2.AsyncClient(timeout=20) as http:
        url, body, headers = gateway.request("subscriptions/listen", notifications={"toolsListChanged": True})
        async with http.stream("POST", url, json=body, headers=headers) as answer:
            stream = Stream(answer)
            first = await stream.event()
            gateway.stop()
            *_, last = await stream.events()

    assert first is not None
    assert "result" in last
    assert events(caplog)["stopped"]["requests_cut"] == 0


async def test_request_to_an_engine_is_a_span_where_spans_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    spans = ExportedSpans()
    monkeypatch.setattr("gateway.app.mcp_services.open_tracing", lambda _: nullcontext(spans.tracing))
    async with running() as gateway, httpx2.AsyncClient(timeout=20) as http:
        await http.post(f"{gateway.role.faces}/v1/embeddings", json={"model": "any", "input": "x"})
        await http.post(f"{gateway.role.faces}/nowhere")

    assert [span.name for span in spans.all] == ["POST /v1/embeddings"]


async def test_connections_of_clients_are_counted() -> None:
    async with running() as gateway, httpx2.AsyncClient(timeout=20, base_url=gateway.role.faces) as kept:
        await kept.get("/nowhere")
        page = (await gateway.get("/metrics")).text
        (line,) = [line for line in page.splitlines() if line.startswith("codec_connections ")]

    assert float(line.split()[1]) >= 1


@pytest.mark.parametrize("bolt_on", [True, False])
async def test_document_says_whether_bolt_ons_are_called(bolt_on: bool) -> None:
    other = UpstreamConfig("bolt", manifest="/nowhere") if bolt_on else None
    config = replace(CONFIG, upstreams=tuple(each for each in (CLOCK, other) if each is not None))
    async with running(config) as gateway:
        said = (await gateway.get("/codec/version")).json()

    assert said["bolt_on_dispatch"] is bolt_on


OF_USERS = UpstreamConfig(
    "docs",
    url="http://127.0.0.1:9/mcp",
    auth=SignInConfig(redirect_url="http://127.0.0.1:8600/sign-in/callback", per_user=True),
)


@pytest.mark.parametrize(("upstreams", "status"), [((OF_USERS, CLOCK), 200), ((CLOCK,), 404)])
async def test_users_sign_in_at_pages_of_the_gateway_where_a_server_asks_them_to(
    upstreams: tuple[UpstreamConfig, ...], status: int
) -> None:
    async with running(replace(CONFIG, upstreams=upstreams)) as gateway:
        page = await gateway.get("/sign-in")

    assert page.status_code == status
    assert ("Sign in" in page.text) == (status == 200)


@pytest.mark.parametrize(
    ("start", "fresh", "warned"),
    [((), (OF_USERS,), True), ((OF_USERS,), (OF_USERS,), False), ((), (), False), ((OF_USERS,), (), False)],
)
async def test_first_server_of_users_needs_a_restart(
    caplog: pytest.LogCaptureFixture,
    start: tuple[UpstreamConfig, ...],
    fresh: tuple[UpstreamConfig, ...],
    warned: bool,
) -> None:
    taken: list[GatewayConfig] = []

    class Servers:
        async def reload(self, config: GatewayConfig) -> None:
            taken.append(config)

    servers: Any = Servers()
    settings = replace(CONFIG, upstreams=fresh)
    await reloading(servers, replace(CONFIG, upstreams=start))(settings)

    assert taken == [settings]
    assert ("users can't sign in before a restart" in caplog.text) == warned


class UnderAParent(Parent):
    """The role of a worker: only its parent reads its admin pages, over a Unix socket."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.socket = folder / "admin-0.sock"

    @contextmanager
    def listening(self, serve: ServeConfig) -> Generator[Listeners]:
        with super().listening(serve) as listeners, socket.socket(socket.AF_UNIX) as admin:
            admin.bind(str(self.socket))
            yield Listeners(listeners.faces, admin)


async def test_worker_shows_its_parent_its_pages_and_sends_clients_away_when_it_stops(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    key = tmp_path / "key"
    key.write_text("k" * 64)
    key.chmod(0o600)
    mark = tmp_path / "runs"
    (port,) = free_ports(1)
    worker = WorkerConfig(0, 2, tmp_path, (f"127.0.0.1:{port}", "127.0.0.1:9"))
    waits = UpstreamConfig("up", sys.executable, ("-c", WAITS, str(mark)), url=None)
    config = replace(CONFIG, worker=worker, replicas=ReplicasConfig("127.0.0.1", port, key))
    role = UnderAParent(tmp_path)
    async with StdioHost().listening(worker.servers), running(replace(config, upstreams=(waits,)), role) as gateway:
        parent = httpx2.AsyncClient(
            transport=httpx2.AsyncHTTPTransport(uds=str(role.socket)), base_url="http://localhost"
        )
        async with parent, anyio.create_task_group() as tasks:
            status = (await parent.get("/status")).json()
            first = await parent.get("/")
            answers: list[dict[str, Any]] = []

            async def call() -> None:
                answers.append(await gateway.ask("tools/call", name="wait", arguments={}))

            tasks.start_soon(call)
            while not mark.exists():  # noqa: ASYNC110
                await anyio.sleep(0.01)
            gateway.stop()
            while await gateway.is_open():
                pass
            mark.unlink()

    assert status["ready"] is True
    assert first.headers["location"] == "/status"
    assert answers[0]["result"]["content"] == [{"type": "text", "text": "done"}]
    assert events(caplog)["worker ready"]["tools"] == 1
    assert "gateway ready" not in events(caplog)
    assert "sign in to the console" not in caplog.text


async def test_interrupt_before_the_gateway_is_ready_is_one_to_who_started_it() -> None:
    class Impatient(Parent):
        async def follow(self, shutdown: Shutdown) -> None:
            shutdown.interrupted = True
            shutdown.stop()
            await anyio.sleep_forever()

    with anyio.fail_after(60), pytest.raises(KeyboardInterrupt):
        await run_gateway(CONFIG, lambda: CONFIG, Impatient())


async def test_port_that_is_taken_ends_the_start() -> None:
    with ALONE.listening(CONFIG.serve) as held:
        taken = replace(CONFIG, serve=replace(CONFIG.serve, port=held.faces.getsockname()[1]))
        with pytest.raises(ExceptionGroup) as caught:
            await run_gateway(taken, lambda: taken)

    assert caught.group_contains(ConfigError, match="can't listen on")


@pytest.mark.parametrize(
    ("path", "code"), [("/mcp", -32600), ("/sse", -32600), ("/v1/chat/completions", "stopping"), ("/", "stopping")]
)
async def test_refusal_while_stopping_has_the_form_that_its_client_reads(path: str, code: int | str) -> None:
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=stopping), base_url="http://x") as http:
        answer = await http.post(path, json={"jsonrpc": "2.0", "id": 1, "method": "ping"})

    assert answer.status_code == 503
    assert (answer.headers["connection"], int(answer.headers["retry-after"]) > 0) == ("close", True)
    assert json.loads(answer.content)["error"]["code"] == code


def test_garbage_is_looked_for_seldom_once_everything_stands() -> None:
    gc.unfreeze()
    settle_memory()

    assert gc.get_freeze_count() > 1000
    assert gc.get_threshold() == (20_000, 20, 20)
