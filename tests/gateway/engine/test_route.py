"""An engine of a gateway through its ups and downs: one that is scripted, at a URL or behind a child process."""

import json
import logging
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream

from gateway.config import EngineConfig, GatewayConfig, TokensConfig
from gateway.config.replicas import WorkerConfig, fault_file
from gateway.engine.start.readiness import EngineRoute
from gateway.errors import ConfigError, EngineStarting, EngineUnavailable, MapDiffers, ModelUnusable
from leaf_sdk.testing import tiny_map, tiny_map_bytes
from leaf_sdk.testing.gguf import gguf_model
from tests.gateway.engine.engines import FakeEngine, Watch, address_of, listening, marker_of

pytestmark = pytest.mark.anyio

TINY = tiny_map()
MODEL = {
    "llama.context_length": 4096,
    "tokenizer.chat_template": "{{ messages }}",
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.tokens": ["a", "b"],
}
UNUSABLE = "echo \"llama_model_load: error loading model: unknown model architecture: 'x'\" >&2; exit 1"


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.engine.start.readiness._POLL", 0.05)
    monkeypatch.setattr("gateway.engine.start.readiness._RETRY", 0.01)
    monkeypatch.setattr("gateway.engine.embedded.model_file._POLL", 0.01)


@dataclass
class Child:
    """The program that runs in place of the embedded engine, and the settings of that engine."""

    folder: Path
    url: str
    starts: int = 0
    settings: dict[str, Any] = field(default_factory=dict[str, Any])

    def does(self, script: str) -> None:
        program = self.folder / "python"
        program.with_suffix(".new").write_text(f"#!/bin/sh\necho >> {self.folder}/starts\n{script}\n")
        program.with_suffix(".new").chmod(0o700)
        program.with_suffix(".new").rename(program)

    def runs(self) -> None:
        """Have it say where the scripted engine is."""
        self.does(f"echo {self.url}; exec cat")

    @property
    def started(self) -> int:
        path = self.folder / "starts"
        return path.read_text().count("\n") if path.exists() else 0

    def config(self, map_source: str | None = None, **settings: object) -> GatewayConfig:
        model = self.folder / "m.gguf"
        engine = EngineConfig(
            **{"kind": "embedded", "model": model, "slot_files": "off", "start_timeout": 60, **settings}
        )
        tokens = TokensConfig(map=str(self.folder / "map.json") if map_source is None else map_source)
        return GatewayConfig(engine=engine, tokens=tokens)


@pytest.fixture
async def child(tmp_path: Path, map_file: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Child]:
    (tmp_path / "m.gguf").write_bytes(gguf_model(MODEL))
    async with address_of(FakeEngine(TINY)) as address:
        made = Child(tmp_path, address.url)
        made.runs()
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
        yield made


@asynccontextmanager
async def routed(config: GatewayConfig, watch: Watch | None = None, **more: Any) -> AsyncGenerator[EngineRoute]:
    route = EngineRoute(config, (watch or Watch()).engine_up, **more)
    with anyio.fail_after(60):
        async with route.running():
            yield route


def at_url(url: str, map_file: Path, **engine: object) -> GatewayConfig:
    settings = EngineConfig(**{"kind": "url", "url": url, "api": "llama_cpp", **engine})
    return GatewayConfig(engine=settings, tokens=TokensConfig(map=str(map_file)))


async def spawned(child: Child) -> None:
    """Until its process runs: one that is made when the test ends would never be waited for."""
    while not child.started:
        await anyio.lowlevel.checkpoint()
    await anyio.wait_all_tasks_blocked()


def why(route: EngineRoute) -> str:
    with pytest.raises((EngineUnavailable, MapDiffers)) as closed:
        route.ready()
    return closed.value.message


async def test_embedded_engine_that_ends_is_started_again_and_its_reason_told(child: Child, caplog) -> None:
    caplog.set_level(logging.INFO)
    watch = Watch()
    async with routed(child.config(), watch) as route:
        first, pid = route.ready(), route.child_pid
        assert route.is_open
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await watch.until(3)
        assert (watch.states, child.started) == ([True, False, True], 2)
        assert first.life.over
        assert not route.ready().life.over
        assert route.child_pid not in (None, pid)
    assert "killed by signal 9: somebody ended it, or the system did for lack of memory" in caplog.text
    assert "; the gateway restarts it" in caplog.text
    assert "slots_chosen_by" not in caplog.text
    assert "'failed_attempts': 1" in caplog.text


async def test_loss_that_a_request_reports_is_looked_at_at_once(map_file: Path, monkeypatch) -> None:
    monkeypatch.setattr("gateway.engine.start.readiness._POLL", 1000.0)
    engine = FakeEngine(TINY)
    async with address_of(engine) as address, routed(at_url(address.url, map_file)) as route:
        asked = engine.paths().count("/health")
        while engine.paths().count("/health") < asked + 4:
            # One that comes while it is looked at means that look.
            route.report_loss()
            await anyio.lowlevel.checkpoint()
        assert route.is_open


async def test_model_that_can_not_be_loaded_is_tried_again_only_when_its_file_changes(child: Child) -> None:
    child.does(UNUSABLE)
    watch = Watch()
    async with routed(child.config(), watch) as route:
        assert why(route).endswith("architecture: 'x'; the gateway tries again when the model's file changes")
        with pytest.raises(ModelUnusable):
            route.ready()
        assert (route.is_open, route.child_pid) == (False, None)
        child.runs()
        await anyio.sleep(0.1)
        assert child.started == 1
        (child.folder / "m.gguf").write_bytes(gguf_model({**MODEL, "tokenizer.ggml.tokens": ["a", "b", "c"]}))
        await watch.until(2)
        assert (watch.states, child.started) == ([False, True], 2)


async def test_engine_that_can_not_start_here_ends_the_gateway_at_its_first_attempt(child: Child) -> None:
    child.does('echo "the embedded engine can\'t start: no libgomp"')
    with pytest.raises(ConfigError, match="no libgomp"):
        async with routed(child.config()):
            pytest.fail("it is not to be served")


async def test_engine_that_can_not_start_any_more_closes_the_route(child: Child, monkeypatch) -> None:
    watch = Watch()
    pauses = iter([0.0, 1000.0])
    monkeypatch.setattr("gateway.engine.start.engine_health.Pauses.after", lambda self, up: next(pauses))
    async with routed(child.config(), watch) as route:
        child.does('echo "the embedded engine can\'t start: no libgomp"')
        assert route.child_pid is not None
        os.kill(route.child_pid, signal.SIGKILL)
        await watch.until(3)
        assert why(route) == "the embedded engine can't start: no libgomp"


async def test_gateway_serves_while_a_large_model_loads_and_prepares_its_maps(child: Child, monkeypatch) -> None:
    prepared: list[object] = []

    def note(proofs: object) -> None:
        prepared.append(proofs)

    monkeypatch.setattr("gateway.engine.start.maps.MapProofs.prepare", note)
    child.does("exec cat")
    route = EngineRoute(child.config(), Watch().engine_up)
    async with route.running(start_wait=0.01):
        with pytest.raises(EngineStarting, match=r"the embedded engine is loading 'm\.gguf'"):
            route.ready()
        await spawned(child)
    assert len(prepared) == 1


async def test_gateway_without_an_engine_says_how_to_get_one(map_file: Path) -> None:
    async with routed(GatewayConfig(tokens=TokensConfig(map=str(map_file)))) as route:
        assert why(route) == "this gateway has no engine; start it with --engine embedded or URL"


async def test_embedded_engine_of_another_tokenizer_is_tried_again_only_when_its_file_changes(
    child: Child, map_file: Path
) -> None:
    fields = json.loads(tiny_map_bytes())
    vocab = fields["vocab"]
    vocab["h"], vocab["e"] = vocab["e"], vocab["h"]
    await anyio.Path(map_file).write_text(json.dumps(fields))
    async with routed(child.config()) as route:
        with pytest.raises(MapDiffers, match=r"the gateway tries again when the model's file changes$"):
            route.ready()
        await anyio.sleep(0.1)
        assert child.started == 1


async def test_server_that_is_not_there_is_used_as_soon_as_it_is(map_file: Path, caplog) -> None:
    watch, refuse = Watch(), True
    engine = FakeEngine(TINY)

    async def serve(stream: Any) -> None:
        if refuse:
            await stream.aclose()
        else:
            await engine.serve(stream)

    async with listening(serve) as url, routed(at_url(url, map_file), watch) as route:
        assert not route.is_open
        assert why(route)
        refuse = False
        while not route.is_open:
            await watch.until(len(watch.states) + 1)
        assert watch.states[-1] is True
        assert True not in watch.states[:-1]


async def test_server_that_is_replaced_by_another_is_said_to_be(map_file: Path, caplog) -> None:
    first, second, watch = FakeEngine(TINY), FakeEngine(TINY, marker=marker_of("2")), Watch()
    async with address_of(first) as address, routed(at_url(address.url, map_file), watch) as route:
        await address.move(second)
        route.report_loss()
        await watch.until(3)
        assert route.is_open
    assert "was replaced by another; the gateway connects to it as soon as it can be used" in caplog.text


@dataclass
class Away(FakeEngine):
    """A server that ends every connection; it counts them."""

    refused: int = 0

    async def serve(self, stream: SocketStream) -> None:
        self.refused += 1
        await stream.aclose()


async def test_server_that_goes_away_is_asked_three_times_before_it_counts_as_lost(map_file: Path, caplog) -> None:
    away, watch = Away(TINY), Watch()

    def changed(up: bool, reason: str) -> None:
        watch.engine_up(up, f"{away.refused} {reason}")

    async with address_of(FakeEngine(TINY)) as address:
        route = EngineRoute(at_url(address.url, map_file), changed)
        with anyio.fail_after(60):
            async with route.running():
                await address.move(away)
                await watch.until(2)
    assert watch.states == [True, False]
    assert "does not answer any more; the gateway connects to it as soon as it can be used" in caplog.text


async def test_parent_s_words_say_why_an_engine_that_it_runs_is_not_up(map_file: Path, tmp_path: Path) -> None:
    fault_file(tmp_path, "attic").write_text("its model is gone")
    async with address_of(Away(TINY)) as address:
        config = replace(at_url(address.url, map_file), worker=WorkerConfig(0, 2, tmp_path, ()))
        for name, known in (("attic", True), ("cellar", False)):
            async with routed(config, name=name) as route:
                assert (why(route) == "its model is gone") is known


@pytest.mark.parametrize(
    ("settings", "chooses", "ahead"),
    [
        ({"exclusive": True}, True, True),
        ({"exclusive": True, "prefill": "off"}, True, False),
        ({"own_slots": "0-1"}, True, True),
        ({}, False, False),
    ],
)
async def test_ids_are_processed_ahead_where_the_slots_are_ours(
    map_file: Path, caplog, settings: dict[str, object], *, chooses: bool, ahead: bool
) -> None:
    caplog.set_level(logging.INFO)
    async with address_of(FakeEngine(TINY)) as address, routed(at_url(address.url, map_file, **settings)) as route:
        ready = route.ready()
        assert (ready.slots.chooses, ready.prefill is not None) == (chooses, ahead)
        assert (ready.name, ready.settings.url) == ("engine", address.url)
        assert ready.facts.can.rewind == ready.slots.rewind
    (line,) = [str(record.msg) for record in caplog.records if "engine ready" in str(record.msg)]
    assert ("'slots_chosen_by': 'engine'" in line) is not chooses
    assert "failed_attempts" not in line
    assert f"'slots': 2, 'tool_format': '{ready.tool_format.format.name}', 'pid': None" in line


@pytest.mark.parametrize(("own", "slots"), [("0-1", 2), ("1-1", 1)])
async def test_slots_of_a_gateway_are_those_that_it_has_alone(map_file: Path, own: str, slots: int) -> None:
    async with address_of(FakeEngine(TINY)) as address, routed(at_url(address.url, map_file, own_slots=own)) as route:
        ready = route.ready()
        assert ready.facts.slots == slots
        async with ready.slots.take([1], "ada") as place:
            assert place.pinned in range(int(own[0]), 2)


async def test_slots_that_the_server_has_not_close_the_route(map_file: Path) -> None:
    async with address_of(FakeEngine(TINY)) as address, routed(at_url(address.url, map_file, own_slots="1-2")) as route:
        assert why(route).startswith("engine.own_slots is 1-2, but the server's slots are 0-1: name slots that it has")


async def test_settings_that_can_not_work_are_refused_before_anything_is_started(child: Child, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nonsense"):
        EngineRoute(child.config(tool_format="nonsense"), Watch().engine_up)
    with pytest.raises(ConfigError, match=r"gone\.json"):
        EngineRoute(child.config(str(tmp_path / "gone.json")), Watch().engine_up)


async def test_map_comes_from_the_model_once_that_can_be_loaded(child: Child) -> None:
    model, whole = anyio.Path(child.folder / "m.gguf"), gguf_model(MODEL)
    await model.write_bytes(whole[:200])
    watch = Watch()
    async with routed(child.config("auto"), watch) as route:
        assert "m.gguf' is truncated" in why(route)
        assert route.maps.session is None
        assert child.started == 0
        await model.write_bytes(whole)
        await watch.until(2)
        # The scripted engine has another tokenizer.
        assert route.maps.session is not None
        assert child.started == 1


@dataclass
class ScriptedPulse:
    """What is known of the engine's progress, as a test says."""

    words: str | None = None
    going: bool = True
    busy: bool = False
    prefills: bool = False
    asked: list[str] = field(default_factory=list[str])

    async def stuck(self) -> str | None:
        self.asked.append("stuck")
        return self.words

    async def moves(self) -> bool:
        self.asked.append("moves")
        return self.going

    async def advances(self) -> bool:
        self.asked.append("advances")
        return self.busy


@pytest.fixture
def pulse(monkeypatch: pytest.MonkeyPatch) -> ScriptedPulse:
    scripted = ScriptedPulse()
    monkeypatch.setattr("gateway.engine.start.readiness.Pulse", lambda ask, told, seconds: scripted)
    return scripted


@dataclass
class Failing(FakeEngine):
    """Answers generations with an error."""

    status: int = 200

    def _answer(self, path: str, asked: dict[str, Any]) -> bytes:
        if path == "/completion" and self.status != 200:
            self.prompts.append(asked["prompt"])
            return f"HTTP/1.1 {self.status} No\r\ncontent-length: 2\r\n\r\n{{}}".encode()
        return super()._answer(path, asked)


async def opened(route: EngineRoute, watch: Watch) -> None:
    while not route.is_open:
        await watch.until(len(watch.states) + 1)


async def asked_again(pulse: ScriptedPulse, what: str, times: int = 2) -> None:
    wanted = pulse.asked.count(what) + times
    while pulse.asked.count(what) < wanted:
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("status", [200, 400, 499])
async def test_engine_that_seems_stuck_stays_if_it_generates_an_id_or_says_why_not(
    map_file: Path, pulse: ScriptedPulse, status: int
) -> None:
    engine, watch = Failing(TINY, status=status), Watch()
    async with address_of(engine) as address, routed(at_url(address.url, map_file), watch) as route:
        pulse.words = "the engine is stuck"
        await asked_again(pulse, "stuck", 3)
        assert route.is_open
        assert watch.states == [True]
        assert engine.prompts[0] == TINY.encode("a")


async def test_engine_that_is_stuck_is_used_again_once_it_gets_on(map_file: Path, pulse: ScriptedPulse) -> None:
    engine, watch = Failing(TINY, status=500), Watch()
    async with address_of(engine) as address, routed(at_url(address.url, map_file), watch) as route:
        life = route.ready().life
        pulse.words, pulse.going = "the engine is stuck", False
        await watch.until(2)
        assert life.over
        assert why(route).endswith("stuck; the gateway uses it again once it answers")
        await asked_again(pulse, "moves")
        assert why(route) == "the engine is still stuck; the gateway uses it again once it answers"
        # It answers, but generates nothing, and is not seen at work on anything.
        pulse.going = True
        await asked_again(pulse, "advances")
        assert not route.is_open
        pulse.words, pulse.busy = None, True
        await opened(route, watch)
        # From then on only what it shows counts.
        pulse.asked.clear()
        await asked_again(pulse, "stuck")
        assert {*pulse.asked} == {"stuck"}


async def test_engine_that_was_stuck_is_used_again_once_it_generates(map_file: Path, pulse: ScriptedPulse) -> None:
    engine, watch = Failing(TINY, status=500), Watch()
    async with address_of(engine) as address, routed(at_url(address.url, map_file), watch) as route:
        pulse.words = "the engine is stuck"
        await watch.until(2)
        pulse.words, engine.status = None, 200
        await opened(route, watch)
        assert route.is_open


async def test_embedded_engine_that_is_stuck_is_restarted_and_not_asked_whether_it_gets_on(
    child: Child, pulse: ScriptedPulse, caplog
) -> None:
    watch = Watch()
    async with address_of(Failing(TINY, status=500)) as address:
        child.url = address.url
        child.runs()
        async with routed(child.config(), watch) as route:
            pulse.words, pulse.going = "the engine is stuck", False
            await watch.until(2)
            pulse.words = None
            await opened(route, watch)
            assert child.started >= 2
            assert "moves" not in pulse.asked
    assert "the engine is stuck; the gateway restarts it" in caplog.text


@pytest.mark.parametrize("prefills", [True, False])
async def test_embedded_engine_with_a_slot_that_does_not_stop_is_restarted(
    child: Child, pulse: ScriptedPulse, caplog, *, prefills: bool
) -> None:
    watch = Watch()
    pulse.prefills = prefills
    async with routed(child.config(), watch) as route:
        slots, looks = route.ready().slots, 0

        async def look() -> bool:
            nonlocal looks
            looks += 1
            if not prefills:
                slots.jammed = 1
            return slots.jammed is not None

        slots.look = look  # type: ignore[method-assign]
        if prefills:
            # A step with a prompt in it is not looked at: it may last.
            await asked_again(pulse, "stuck")
            assert looks == 0
            slots.jammed = 1
        await watch.until(3)
        assert child.started == 2
    assert "slot 1 of the engine does not stop working; the gateway restarts it" in caplog.text


async def test_slot_of_somebody_else_s_server_may_work_on(map_file: Path, pulse: ScriptedPulse) -> None:
    async with (
        address_of(FakeEngine(TINY)) as address,
        routed(at_url(address.url, map_file, exclusive=True)) as route,
    ):
        route.ready().slots.jammed = 0
        await asked_again(pulse, "stuck")
        assert route.is_open


async def test_child_that_runs_on_is_not_lost_though_it_answers_no_health_check(
    child: Child, pulse, monkeypatch
) -> None:
    looked: list[float] = []

    async def unwell(_client: object, seconds: float) -> bool:
        looked.append(seconds)
        return False

    monkeypatch.setattr("gateway.engine.wire.engine_client.EngineClient.healthy", unwell)
    async with routed(child.config()) as route:
        await asked_again(pulse, "stuck", 3)
        assert route.is_open
    assert {*looked} == {2.0}


async def test_server_that_is_unwell_is_asked_for_longer_each_time_and_then_lost(map_file: Path, monkeypatch) -> None:
    looked, pauses, watch = list[float](), list[float](), Watch()
    sleep = anyio.sleep

    async def unwell(_client: object, seconds: float) -> bool:
        looked.append(seconds)
        return False

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr("gateway.engine.wire.engine_client.EngineClient.healthy", unwell)
    monkeypatch.setattr("gateway.engine.start.readiness.anyio.sleep", noted)
    async with address_of(FakeEngine(TINY)) as address, routed(at_url(address.url, map_file), watch):
        await watch.until(2)
        assert looked[:3] == [2.0, 4.0, 8.0]
        assert pauses[:3] == [pytest.approx(0.005)] * 3
        assert watch.states[:2] == [True, False]


async def test_attempts_get_longer_and_pauses_too_until_the_engine_was_up(map_file: Path, monkeypatch) -> None:
    given: list[float] = []

    async def refuse(settings: object, address: object, on_loss: object, on_end: object, seconds: float) -> None:
        given.append(seconds)
        raise EngineUnavailable(f"attempt {len(given)}")

    monkeypatch.setattr("gateway.engine.start.readiness.connected", refuse)
    watch = Watch()
    config = at_url("http://127.0.0.1:9", map_file, idle_timeout=60)
    async with routed(config, watch) as route:
        assert why(route) == "attempt 1"
        await watch.until(4)
    # Who waits for the first attempt waits for as long as silence may last.
    assert given[:4] == [60.0, 16.0, 16.0, 16.0]
    given.clear()
    route, watch = EngineRoute(config, watch.engine_up), Watch()
    async with route.running(start_wait=1000.0):
        while len(given) < 4:
            await anyio.lowlevel.checkpoint()
    assert given[:4] == [4.0, 8.0, 16.0, 16.0]
