"""The parent of several workers: one signal acts on all of them, and what they counted outlives each."""

import os
import signal
import socket
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import httpx2
import pytest

from gateway.app.options import ServeOptions
from gateway.config.gateway_config import GatewayConfig, LimitsConfig, ServeConfig
from gateway.config.replicas import SERVERS, ReplicasConfig
from gateway.errors import ConfigError
from gateway.workers import parent
from gateway.workers.parent import run_workers
from gateway.workers.worker_restarts import WorkerPlan
from tests.gateway.workers.standin_workers import COUNTED, READY, Run, answering

pytestmark = pytest.mark.anyio
OPTIONS = ServeOptions(None, {}, None, "info")
CONFIG = GatewayConfig(
    serve=ServeConfig(port=0, admin_port=0, workers=2),
    limits=LimitsConfig(restart_backoff=0.001, restart_backoff_max=0.001),
)


@pytest.fixture(autouse=True)
def _hangup_as_it_was() -> Iterator[None]:
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)


class Parent:
    """A running parent, whose workers follow a script."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        self.runs: list[tuple[int, Run]] = []
        self.plans: list[WorkerPlan] = []
        self.script: list[Run] = []
        self.raised = 0
        self._caplog = caplog
        caplog.set_level("INFO")
        monkeypatch.setattr(parent, "started", self._started)
        monkeypatch.setattr(parent, "raise_soft_limit", self._raise)

    def _raise(self) -> None:
        self.raised += 1

    @asynccontextmanager
    async def _started(self, plan: WorkerPlan, number: int) -> AsyncGenerator[Run]:
        run = self.script.pop(0) if self.script else Run()
        self.runs.append((number, run))
        self.plans.append(plan)
        pages = {"/metrics": COUNTED.format(5), "/healthz/ready": READY}
        async with answering(plan.folder, number, pages):
            yield run

    def event(self, words: str) -> dict[str, Any] | None:
        found = (record.msg for record in self._caplog.records if isinstance(record.msg, dict))
        return next((each for each in found if each["event"] == words), None)

    async def until(self, condition: Any) -> None:
        with anyio.fail_after(20):
            while not condition():  # noqa: ASYNC110
                await anyio.sleep(0.001)

    @asynccontextmanager
    async def running(self, config: GatewayConfig = CONFIG) -> AsyncGenerator[dict[str, Any]]:
        """Give what the log says once all are ready. It ends when the test has stopped it."""
        over = anyio.Event()

        async def run() -> None:
            await run_workers(config, OPTIONS)
            over.set()

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                await self.until(lambda: self.event("gateway ready"))
                found = self.event("gateway ready")
                assert found is not None
                yield found
                await over.wait()

    async def get(self, url: str) -> httpx2.Response:
        async with httpx2.AsyncClient(timeout=20) as http:
            return await http.get(url)


@pytest.fixture
def family(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Parent:
    return Parent(monkeypatch, caplog)


def port_of(url: str) -> tuple[str, int]:
    return "127.0.0.1", int(url.rpartition(":")[2])


async def test_all_workers_are_drained_by_one_signal_and_nobody_is_let_in_any_more(family: Parent) -> None:
    async with family.running() as said:
        socket.create_connection(port_of(said["url"]), timeout=20).close()
        ready = await family.get(f"{said['admin']}/healthz/ready")
        page = (await family.get(f"{said['admin']}/metrics")).text
        assert (family.plans[0].folder / SERVERS).is_socket()
        for _, run in family.runs:
            run.obeys = False
        os.kill(os.getpid(), signal.SIGTERM)
        await family.until(lambda: all(run.orders for _, run in family.runs))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(port_of(said["url"]), timeout=20)
        draining = (await family.get(f"{said['admin']}/healthz/ready")).json()
        for _, run in family.runs:
            run.over.set()

    plan = family.plans[0]
    assert (said["workers"], family.raised) == (2, 1)
    assert sorted(number for number, _ in family.runs) == [0, 1]
    assert (plan.count, len(set(plan.peers)), len(plan.key), plan.options) == (2, 2, 64, OPTIONS)
    assert ready.json()["workers"] == {"ready": 2, "of": 2}
    assert "codec_workers 2.0" in page
    assert "codec_calls_total 10.0" in page
    assert draining["draining"] is True
    assert [run.orders for _, run in family.runs] == [["drain"], ["drain"]]
    assert family.event("all workers have ended")
    assert not plan.folder.exists()


async def test_hangup_has_every_worker_read_its_settings_again(family: Parent) -> None:
    async with family.running():
        os.kill(os.getpid(), signal.SIGHUP)
        await family.until(lambda: all(run.orders for _, run in family.runs))
        os.kill(os.getpid(), signal.SIGTERM)

    assert [run.orders for _, run in family.runs] == [["reload", "drain"], ["reload", "drain"]]


async def test_worker_that_does_not_end_in_time_is_ended_and_named(
    family: Parent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parent, "_LATE", 0.01)
    family.script = [Run(obeys=False), Run(obeys=False)]
    async with family.running(replace(CONFIG, limits=replace(CONFIG.limits, drain=0.01))):
        family.runs[1][1].obeys = True
        os.kill(os.getpid(), signal.SIGTERM)

    said = family.event("ending the workers that did not end in time")
    assert said is not None
    assert said["workers"] == [family.runs[0][0]]


async def test_worker_that_crashes_is_replaced_and_what_it_counted_stays(family: Parent) -> None:
    async with family.running() as said:
        await family.get(f"{said['admin']}/metrics")
        family.runs[0][1].crash()
        await family.until(lambda: len(family.runs) == 3 and family.runs[2][1].was_ready.is_set())
        page = (await family.get(f"{said['admin']}/metrics")).text
        os.kill(os.getpid(), signal.SIGTERM)

    assert family.runs[2][0] == family.runs[0][0]
    assert "codec_calls_total 15.0" in page
    assert "codec_worker_restarts_total 1.0" in page


async def test_first_start_that_fails_ends_the_gateway(family: Parent) -> None:
    family.script = [Run(ConfigError("the model is gone")), Run(ConfigError("the model is gone"))]
    with anyio.fail_after(20), pytest.raises(ExceptionGroup) as caught:
        await run_workers(CONFIG, OPTIONS)

    assert caught.group_contains(ConfigError, match=r"worker \d: the model is gone")


async def test_interrupt_before_all_are_ready_is_one_to_who_started_them(family: Parent) -> None:
    family.script = [Run(hangs=True), Run()]

    async def interrupt() -> None:
        await family.until(lambda: len(family.runs) == 2)
        os.kill(os.getpid(), signal.SIGINT)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(interrupt)
        with anyio.fail_after(20), pytest.raises(KeyboardInterrupt):
            await run_workers(CONFIG, OPTIONS)


async def test_replicas_that_the_settings_name_are_the_workers_places(family: Parent) -> None:
    config = replace(CONFIG, replicas=ReplicasConfig("127.0.0.1", 7001))
    async with family.running(config):
        os.kill(os.getpid(), signal.SIGTERM)

    plan = family.plans[0]
    assert (plan.peers, plan.ports, plan.key) == (("127.0.0.1:7001", "127.0.0.1:7002"), None, b"")


async def test_engine_that_workers_can_not_share_is_refused_before_anything_starts(family: Parent) -> None:
    exclusive = replace(CONFIG.engine, kind="url", url="http://there", exclusive=True)
    with pytest.raises(ConfigError, match="exclusive"):
        await run_workers(replace(CONFIG, engine=exclusive), OPTIONS)

    assert family.runs == []
