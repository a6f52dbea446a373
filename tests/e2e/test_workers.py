"""`serve --workers 2`: one gateway of two processes, whose clients need not know which of them they reach."""

import os
import re
import signal
import socket
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from bench.processes import free_port
from tests.e2e.conftest import RunningGateway, running_gateway
from tests.e2e.test_replicas import initialized, modern, post, says_yes

pytestmark = pytest.mark.anyio

OWN = "codec-gateway.toml"
WORKERS = ("--engine", "none", "--workers", "2")


class Gateway:
    """A gateway of several workers, and how to reach each of them."""

    def __init__(self, running: RunningGateway) -> None:
        self.running = running
        self.url = running.url

    def status(self) -> dict[str, Any]:
        return httpx2.get(f"{self.running.admin}/status").json()

    def pids(self) -> list[int]:
        return [each["pid"] for each in self.status()["workers"]]

    @asynccontextmanager
    async def reached(self, number: int) -> AsyncGenerator[httpx2.AsyncClient]:
        """A client whose connection this worker has, and keeps."""
        others = [pid for n, pid in enumerate(self.pids()) if n != number]
        async with httpx2.AsyncClient(timeout=240, limits=httpx2.Limits(keepalive_expiry=None)) as http:
            for pid in others:
                os.kill(pid, signal.SIGSTOP)
            try:
                assert (await http.get(f"{self.url}/v1/nothing")).status_code == 404
            finally:
                for pid in others:
                    os.kill(pid, signal.SIGCONT)
            yield http

    @asynccontextmanager
    async def client_of_both(self, mode: str) -> AsyncGenerator[tuple[Client, "BothWorkers"]]:
        """A client of either era that can be asked, whose requests go to both workers in turn."""
        async with self.reached(0) as one, self.reached(1) as other:
            transport = BothWorkers([one, other])
            async with (
                httpx2.AsyncClient(transport=transport, timeout=240) as http,
                Client(
                    streamable_http_client(f"{self.url}/mcp", http_client=http),
                    mode=mode,
                    elicitation_callback=says_yes,
                ) as client,
            ):
                yield client, transport


class BothWorkers(httpx2.AsyncBaseTransport):
    """Each request goes to the other worker than the one before."""

    def __init__(self, clients: list[httpx2.AsyncClient]) -> None:
        self._clients = clients
        self.asked = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.asked += 1
        there = self._clients[self.asked % len(self._clients)]
        return await there._transport.handle_async_request(request)


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gate") / "gate"
    os.mkfifo(path)
    return path


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory, gate: Path, server: Callable[..., Any]) -> Iterator[str]:
    """MCP servers behind HTTP, as a configuration names them."""
    servers = {"asks": server("asks"), "waits": server("waits", GATE=str(gate))}
    with running_gateway(tmp_path_factory.mktemp("upstream"), servers, "--engine", "none") as gateway:
        # A call that waits for its client's answer is the gateway's own to hold so.
        yield f"[upstreams.up]\nurl = '{gateway.url}/mcp'\nprotocol = 'handshake'\n"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, upstream: str) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("workers")
    (folder / OWN).write_text(upstream)
    with running_gateway(folder, {}, *WORKERS) as running:
        yield Gateway(running)


@pytest.fixture
def another(tmp_path: Path, upstream: str) -> Iterator[Gateway]:
    """One that a test may end."""
    (tmp_path / OWN).write_text(upstream)
    with running_gateway(tmp_path, {}, *WORKERS) as running:
        yield Gateway(running)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_client_of_either_era_is_served_by_both_workers_as_by_one(gateway: Gateway, mode: str) -> None:
    with anyio.fail_after(60):
        async with gateway.client_of_both(mode) as (client, transport):
            calls = [await client.call_tool("asks__ask", {"about": f"{n}"}) for n in range(6)]
            names = {tool.name for tool in (await client.list_tools()).tools}

    assert [each.content[0].text for each in calls] == [f"yes to {n}" for n in range(6)]
    assert names == {"asks__ask", "waits__say"}
    assert transport.asked > 12


async def test_session_of_a_killed_worker_is_gone_at_once_and_the_rest_goes_on(another: Gateway) -> None:
    pids = another.pids()
    async with another.reached(0) as one, another.reached(1) as other:
        session, kept = await initialized(one, another.url), await initialized(other, another.url)
        before = await post(other, another.url, "ping", {}, session)
        await post(one, another.url, "nothing/there", {}, session)
        assert another.running.metric("codec_mcp_errors_total") == 1
        os.kill(pids[0], signal.SIGKILL)
        another.running.log.wait_for("a worker ended and is started again")
        with anyio.fail_after(5):
            gone = await post(other, another.url, "ping", {}, session)
        still = await post(other, another.url, "ping", {}, kept)
        another.running.log.wait_for("a worker is ready again")
    async with another.reached(0) as fresh:
        across = await post(fresh, another.url, "ping", {}, kept)

    assert [each.status_code for each in (before, gone, still, across)] == [200, 404, 200, 200]
    assert another.pids()[0] != pids[0]
    assert another.pids()[1] == pids[1]
    assert another.running.metric("codec_worker_restarts_total") == 1
    assert another.running.metric("codec_workers") == 2
    # What it had counted has been counted.
    assert another.running.metric("codec_mcp_errors_total") == 1


async def test_one_signal_drains_all_workers_and_leaves_nothing(
    another: Gateway, gate: Path, is_running: Callable[[int], bool]
) -> None:
    pids = another.pids()
    folder = Path(another.running.log.events("worker ready")[0]["admin"].removeprefix("unix:")).parent
    answers: list[dict[str, Any]] = []
    async with another.reached(0) as one, anyio.create_task_group() as tasks:

        async def call() -> None:
            answers.append(await modern(one, another.url, {"name": "waits__say", "arguments": {}}))

        tasks.start_soon(call)
        # Opened by the server in the middle of the call.
        file = await anyio.to_thread.run_sync(gate.open, "w")
        assert folder.stat().st_mode & 0o777 == 0o700
        another.running.process.terminate()
        for count in range(1, 4):
            await anyio.to_thread.run_sync(lambda n=count: another.running.log.wait_for("stopping:", count=n))
        with file:
            file.write("finished\n")

    assert answers[0]["content"] == [{"type": "text", "text": "finished"}]
    assert another.running.process.wait(30) == 0
    assert not any(map(is_running, pids))
    assert not folder.exists()
    with pytest.raises(httpx2.ConnectError):
        httpx2.post(f"{another.url}/mcp", json={})


async def test_worker_that_is_asked_to_end_finishes_and_another_takes_its_place(another: Gateway, gate: Path) -> None:
    pids = another.pids()
    answers: list[dict[str, Any]] = []
    async with another.reached(0) as one, another.reached(0) as idle, anyio.create_task_group() as tasks:

        async def call() -> None:
            answers.append(await modern(one, another.url, {"name": "waits__say", "arguments": {}}))

        tasks.start_soon(call)
        file = await anyio.to_thread.run_sync(gate.open, "w")
        os.kill(pids[0], signal.SIGTERM)
        while not any("worker 0: draining" in reason for reason in another.running.readiness()[1]["reasons"]):
            await anyio.lowlevel.checkpoint()
        # It listens no more, and keeps no connection: who comes now, or again, reaches the other.
        async with httpx2.AsyncClient(timeout=240) as http:
            sessions = [await initialized(each, another.url) for each in (http, idle, idle, *[http] * 5)]
        with file:
            file.write("finished\n")
    again = another.running.log.wait_for("a worker is ready again")

    assert answers[0]["content"] == [{"type": "text", "text": "finished"}]
    assert len(set(sessions)) == 8
    assert again["worker"] == 0
    assert another.running.process.poll() is None


async def test_second_signal_ends_what_still_runs(
    another: Gateway, gate: Path, is_running: Callable[[int], bool]
) -> None:
    pids = another.pids()
    async with another.reached(0) as one, anyio.create_task_group() as tasks:

        async def call() -> None:
            with suppress(httpx2.TransportError, ValueError):
                await modern(one, another.url, {"name": "waits__say", "arguments": {}})

        tasks.start_soon(call)
        file = await anyio.to_thread.run_sync(gate.open, "w")
        for count in (1, 2):
            another.running.process.send_signal(signal.SIGINT)
            if count == 1:
                another.running.log.wait_for("stopping:", count=3)
        code = await anyio.to_thread.run_sync(another.running.process.wait, 60)
        file.close()

    assert code == 0
    assert not any(map(is_running, pids))
    assert not another.running.log.events("all workers have ended")


def test_worker_that_hangs_is_ended_when_its_time_to_drain_is_over(
    tmp_path: Path, is_running: Callable[[int], bool]
) -> None:
    (tmp_path / OWN).write_text("[limits]\ndrain = 0.1\n")
    with running_gateway(tmp_path, {}, *WORKERS) as running:
        pids = Gateway(running).pids()
        os.kill(pids[0], signal.SIGSTOP)
        running.process.send_signal(signal.SIGTERM)
        code = running.process.wait(120)
        (told,) = running.log.events("ending the workers that did not end in time")

    assert code == 0
    assert told["workers"] == [0]
    assert not any(map(is_running, pids))


async def test_worker_that_hangs_holds_up_no_page_of_the_parent(gateway: Gateway) -> None:
    async with gateway.reached(1) as other:
        session = await initialized(other, gateway.url)
    before = gateway.running.metric("codec_build_info"), gateway.running.metric("process_open_fds")
    pid = gateway.pids()[0]
    os.kill(pid, signal.SIGSTOP)
    try:
        status, ready = gateway.status(), gateway.running.readiness()
        fds = gateway.running.metric("process_open_fds")
    finally:
        os.kill(pid, signal.SIGCONT)

    assert session
    assert [each["ready"] for each in status["workers"]] == [False, True]
    assert ready[0] == 200
    assert "worker 0 does not answer" in ready[1]["reasons"]
    assert before[0] == 1
    assert fds < before[1]


def test_hangup_reaches_every_worker(another: Gateway, tmp_path: Path) -> None:
    config = tmp_path / OWN
    state, written = config.stat(), config.read_text()
    # A change that nobody would see: as long as before, and of the same time.
    config.write_text(written.replace("upstreams.up", "upstreams.UP"))
    os.utime(config, ns=(state.st_atime_ns, state.st_mtime_ns))
    another.running.process.send_signal(signal.SIGHUP)
    another.running.log.wait_for("configuration taken over", count=2)

    assert {each["worker"] for each in another.running.log.events("configuration taken over")} == {0, 1}
    assert [each["name"] for each in another.status()["servers"]] == ["UP"]


def test_workers_end_with_their_parent_and_leave_nothing(another: Gateway) -> None:
    folder = Path(another.running.log.events("worker ready")[0]["admin"].removeprefix("unix:")).parent
    there = folder.is_dir()
    another.running.process.kill()
    # What they write to ends with the last of them.
    another.running.log.close()

    assert {each["worker"] for each in another.running.log.events("the parent has ended")} == {0, 1}
    assert {each["worker"] for each in another.running.log.events("stopped")} == {0, 1}
    assert there
    assert not folder.exists()


def refused(launch: Any, servers: Any, *flags: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    with launch(servers, *flags, env=env) as (process, log):
        code = process.wait(60)
        log.close()
    return code, next(line for line in log.lines if line.startswith("codec-gateway:"))


def test_engine_that_workers_can_not_share_is_refused(launch: Any) -> None:
    engine = refused(launch, {}, "--engine", "embedded", "--workers", "3")
    exclusive = {"CODEC_GATEWAY_ENGINE__URL": "http://127.0.0.1:1", "CODEC_GATEWAY_ENGINE__EXCLUSIVE": "true"}
    slots = refused(launch, {}, "--workers", "2", env=exclusive)

    assert [code for code, _ in (engine, slots)] == [3, 3]
    assert "an embedded engine of 2 slots, and each of 3 workers needs a slot of its own" in engine[1]
    assert "remove 'exclusive', or set serve.workers to 1" in slots[1]


def test_worker_that_can_not_start_at_all_ends_the_gateway_with_its_words(launch: Any, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere" / "audit.jsonl"

    code, words = refused(launch, {}, *WORKERS, env={"CODEC_GATEWAY_AUDIT__PATH": str(nowhere)})

    assert code == 3
    assert "worker" in words
    assert str(nowhere) in words


def test_port_that_is_taken_is_told_once(launch: Any, gateway: Gateway) -> None:
    port = gateway.url.rpartition(":")[2]

    code, words = refused(launch, {}, *WORKERS, "--port", port)

    assert code == 3
    assert f"can't listen on 127.0.0.1:{port}" in words


def test_secret_of_the_workers_stands_in_no_argument_and_no_variable(gateway: Gateway) -> None:
    told = [Path(f"/proc/{pid}/{name}").read_bytes() for pid in gateway.pids() for name in ("environ", "cmdline")]

    assert sum(b"gateway.workers.worker" in each for each in told) == 2
    assert not any(re.search(rb"[0-9a-f]{64}", each) for each in told)


async def test_workers_of_several_machines_listen_on_ports_in_a_row(tmp_path: Path, upstream: str) -> None:
    key = tmp_path / "key"
    key.write_text("0123456789abcdef" * 4)
    port = two_free_ports()
    settings = {"ADDRESS": "127.0.0.1", "PORT": str(port), "KEY_FILE": str(key)}
    (tmp_path / OWN).write_text(upstream)
    env = {f"CODEC_GATEWAY_REPLICAS__{name}": value for name, value in settings.items()}
    with running_gateway(tmp_path, {}, *WORKERS, env=env) as running:
        found = Gateway(running)
        async with found.reached(0) as one, found.reached(1) as other:
            session = await initialized(one, found.url)
            across = await post(other, found.url, "ping", {}, session)
        listening = running.log.events("listening for the other replicas")

    assert across.status_code == 200
    assert {each["worker"]: each["address"] for each in listening} == {n: f"127.0.0.1:{port + n}" for n in range(2)}


def two_free_ports() -> int:
    """The first of two in a row."""
    while True:
        first = free_port()
        with suppress(OSError), socket.create_server(("127.0.0.1", first + 1)):
            return first
