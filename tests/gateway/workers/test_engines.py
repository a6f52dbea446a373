"""How workers share out the slots of an embedded engine that their parent runs."""

import json
import re
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.gateway_config import EngineConfig, GatewayConfig
from gateway.config.replicas import WorkerConfig, fault_file
from gateway.engine.embedded.engine_process import Listening
from gateway.errors import ConfigError, EngineUnavailable, ModelUnusable
from gateway.workers import embedded_engines
from gateway.workers.embedded_engines import check_engines, running_engines, share_of, with_hosted_engines

EMBEDDED = EngineConfig(kind="embedded", slots=5, isolate=True, context=4096)


def worker(number: int, count: int = 2, folder: Path = Path("/nowhere")) -> WorkerConfig:
    return WorkerConfig(number, count, folder, ())


@given(st.integers(1, 200), st.integers(0, 300))
def test_every_slot_is_exactly_one_workers_and_no_worker_has_two_more_than_another(count, more):
    slots = count + more
    shares = [EngineConfig(own_slots=share_of(slots, worker(number, count))).slot_range for number in range(count)]

    assert [slot for share in shares for slot in share] == list(range(slots))
    assert {len(share) for share in shares} <= {slots // count, slots // count + 1}


def test_worker_takes_the_embedded_engine_for_a_server_of_which_slots_are_its_own(tmp_path):
    (tmp_path / "engines.json").write_text(json.dumps({"engine": {"url": "http://127.0.0.1:7", "key": "secret"}}))
    seen = with_hosted_engines(GatewayConfig(engine=EMBEDDED), worker(1, folder=tmp_path)).engine

    assert (seen.kind, seen.url, seen.api_key, seen.own_slots) == ("url", "http://127.0.0.1:7", "secret", "2-4")
    assert (seen.isolate, seen.context) == (True, 4096)


def test_engines_of_a_pool_are_hosted_each_by_its_name_and_servers_at_a_url_stay_as_they_are(tmp_path):
    (tmp_path / "engines.json").write_text(json.dumps({"mine": {"url": "http://127.0.0.1:7", "key": "k"}}))
    there = EngineConfig(kind="url", url="http://there")
    config = GatewayConfig(engines={"mine": EMBEDDED, "there": there})
    seen = with_hosted_engines(config, worker(0, folder=tmp_path)).members

    assert (seen["mine"].url, seen["there"]) == ("http://127.0.0.1:7", there)


def test_engine_that_the_parent_does_not_run_is_told(tmp_path):
    (tmp_path / "engines.json").write_text("{}")

    with pytest.raises(ConfigError, match="restart the gateway"):
        with_hosted_engines(GatewayConfig(engine=EMBEDDED), worker(0, folder=tmp_path))


def test_settings_without_an_embedded_engine_are_left_as_they_are():
    for engine in (EngineConfig(), EngineConfig(kind="url", url="http://there")):
        config = GatewayConfig(engine=engine)
        assert with_hosted_engines(config, worker(0)) is config


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        (EMBEDDED, "5 slots, and each of 6 workers needs a slot of its own: set its 'slots' to 6 or more"),
        (replace(EMBEDDED, slots=6, slot_files="/kept"), "remove 'slot_files', or set serve.workers to 1"),
        (EngineConfig(kind="url", url="http://there", exclusive=True), "remove 'exclusive', or set serve.workers to 1"),
    ],
)
def test_engine_that_workers_can_not_share_is_refused_with_the_way_out(engine, words):
    with pytest.raises(ConfigError, match=words):
        check_engines(GatewayConfig(engine=engine), 6)


def test_engine_with_a_slot_for_each_worker_is_shared():
    check_engines(GatewayConfig(engine=EMBEDDED), 5)


class Servers:
    """Starts of an embedded engine that follow a script: each an error, or how long the server ran."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *script: Exception | float) -> None:
        self.script = list(script)
        self.seen: list[tuple[EngineConfig, Listening]] = []
        self.pauses: list[int] = []
        self.now = 0.0
        self.came = anyio.Event()
        self.end = anyio.Event()
        """Set to end the server that runs."""
        monkeypatch.setattr(embedded_engines, "embedded_server", self._server)
        monkeypatch.setattr(embedded_engines, "monotonic", lambda: self.now)
        monkeypatch.setattr(embedded_engines, "Backoff", lambda *_: self)

    def pause(self, failures: int, roll: float) -> float:
        assert 0 <= roll < 1
        self.pauses.append(failures)
        return 0.0

    @asynccontextmanager
    async def _server(self, engine: EngineConfig, there: Listening):
        self.seen.append((engine, there))
        outcome = self.script.pop(0) if self.script else None
        if isinstance(outcome, Exception):
            raise outcome
        self.lasts = outcome
        yield self

    url = "http://127.0.0.1:4321"
    pid = 12

    async def ended(self) -> str:
        if self.lasts is None:
            self.came.set()
            await self.end.wait()
        self.now += self.lasts or 0.0
        return "it crashed"

    async def there(self, folder: Path) -> EngineConfig:
        """What a worker sees once the script is at its end."""
        with anyio.fail_after(20):
            await self.came.wait()
        return with_hosted_engines(GatewayConfig(engine=EMBEDDED), worker(0, folder=folder)).engine


@pytest.mark.anyio
async def test_engine_that_crashes_is_started_again_at_the_same_address(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO")
    servers = Servers(monkeypatch, 1.0, EngineUnavailable("no memory"), 30.0, 1.0)
    async with running_engines(GatewayConfig(engine=EMBEDDED), tmp_path):
        seen = await servers.there(tmp_path)
        assert not fault_file(tmp_path, "engine").exists()
        assert "engine started" in caplog.text
        servers.came = anyio.Event()
        servers.end.set()
        with anyio.fail_after(20):
            await servers.came.wait()

    first, *later = [there for _, there in servers.seen]
    assert servers.pauses == [1, 2, 1, 2, 3]
    assert (first.port, {each.port for each in later}) == (0, {4321})
    assert {each.key for each in later} == {first.key} == {seen.api_key}
    assert seen.url == "http://127.0.0.1:4321"
    assert all(engine.exclusive for engine, _ in servers.seen)


@pytest.mark.anyio
async def test_engine_that_fails_first_has_its_address_and_its_fault_in_a_file(tmp_path, monkeypatch):
    servers = Servers(monkeypatch, EngineUnavailable("no memory"), EngineUnavailable("still no memory"))
    faults: list[str] = []

    def note(failures: int, roll: float) -> float:
        faults.append(fault_file(tmp_path, "engine").read_text())
        return 0.0

    servers.pause = note
    async with running_engines(GatewayConfig(engine=EMBEDDED), tmp_path):
        seen = await servers.there(tmp_path)
        assert not fault_file(tmp_path, "engine").exists()

    ports = [there.port for _, there in servers.seen]
    assert faults == ["no memory", "still no memory"]
    assert ports[0] == 0
    assert ports[1] == ports[2] > 1024
    assert seen.url == f"http://127.0.0.1:{ports[1]}"
    assert [each.name for each in tmp_path.iterdir()] == ["engines.json"]


@pytest.mark.anyio
async def test_model_that_can_not_be_loaded_is_tried_again_when_its_file_changes(tmp_path, monkeypatch):
    model, folder = tmp_path / "model.gguf", tmp_path / "sockets"
    model.write_text("no model")
    folder.mkdir()
    monkeypatch.setattr("gateway.engine.embedded.model_file._POLL", 0.01)
    servers = Servers(monkeypatch, ModelUnusable("no model"))
    async with running_engines(GatewayConfig(engine=replace(EMBEDDED, model=model)), folder):
        told = fault_file(folder, "engine").read_text()
        model.write_text("a model at last")
        await servers.there(folder)

    assert servers.pauses == []
    assert told == "no model; the gateway tries again when the model's file changes"


@pytest.mark.anyio
async def test_without_an_embedded_engine_the_parent_runs_none(tmp_path, monkeypatch):
    servers = Servers(monkeypatch)
    there = EngineConfig(kind="url", url="http://there")
    async with running_engines(GatewayConfig(engine=there), tmp_path):
        pass

    assert servers.seen == []


@pytest.mark.anyio
async def test_engines_of_a_pool_share_what_one_would_take_alone(tmp_path, monkeypatch):
    servers = Servers(monkeypatch)
    one = replace(EMBEDDED, threads=8, cache_mib=100)
    alone = replace(one, cache_mib=None, threads=None)
    async with running_engines(GatewayConfig(engines={"a": alone, "b": alone}), tmp_path):
        await servers.came.wait()
    shared = servers.seen[0][0]
    servers.seen.clear()
    servers.came = anyio.Event()
    async with running_engines(GatewayConfig(engines={"a": alone}), tmp_path):
        await servers.came.wait()

    assert shared.cache_mib is not None
    assert servers.seen[0][0].cache_mib is None


@pytest.mark.anyio
async def test_engine_that_can_not_start_yet_keeps_no_worker_from_starting_and_has_its_place(tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_text("no model")
    config = GatewayConfig(engine=replace(EMBEDDED, model=broken))
    with anyio.fail_after(60):
        async with running_engines(config, tmp_path):
            seen = with_hosted_engines(config, worker(0, folder=tmp_path)).engine

    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", seen.url)
    assert (tmp_path / "engines.json").stat().st_mode & 0o777 == 0o600
