"""An engine that makes no progress is reported, and its requests end; not one at work for others or on a prompt."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream

from gateway.config import EngineConfig, GatewayConfig, TokensConfig
from gateway.engine.interface import GenerateRequest, GenerationEvent
from gateway.engine.pool.engines import Engines
from gateway.engine.start.readiness import EngineRoute
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.errors import EngineUnavailable
from gateway.observe.metrics import Metrics
from leaf_sdk.testing import tiny_map, tiny_map_bytes
from tests.gateway.engine.engines import HEAD, FakeEngine, Watch, address_of

pytestmark = pytest.mark.anyio

TINY = tiny_map()
STREAM = (HEAD.format(kind="text/event-stream") + "transfer-encoding: chunked\r\n\r\n").encode()
IDLE = 2.0
"""`engine.idle_timeout` here: an engine that is well answers sooner on any machine."""


@pytest.fixture
def map_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("gateway.engine.start.readiness._POLL", 0.05)
    path = tmp_path / "map.json"
    path.write_bytes(tiny_map_bytes())
    return path


@dataclass
class SlowStep(FakeEngine):
    """A llama.cpp server that may get stuck: it says that it is alive, and sends no id after the next `first`."""

    frozen: bool = False
    first: int = 1
    busy: bool = True
    """Whether its slots are reported as busy while it is frozen."""
    generated: int = 3
    others: bool = False
    """Whether somebody else's request gets on meanwhile."""
    asked_slots: int = 0
    _changed: anyio.Event = field(default_factory=anyio.Event)

    def _answer(self, path: str, asked: dict[str, Any]) -> bytes:
        if path != "/slots":
            return super()._answer(path, asked)
        self.asked_slots += 1
        self._changed.set()
        self._changed = anyio.Event()
        slots = [_slot(0, self.generated) if self.frozen and self.busy else {"id": 0, "is_processing": False}]
        slots += [_slot(1, self.asked_slots) if self.others else {"id": 1, "is_processing": False}]
        text = json.dumps(slots).encode()
        return (HEAD.format(kind="application/json") + f"content-length: {len(text)}\r\n\r\n").encode() + text

    async def until_asked(self, more: int) -> None:
        """Until it has been asked for its slots so many times more."""
        wanted = self.asked_slots + more
        while self.asked_slots < wanted:
            await self._changed.wait()

    async def serve(self, stream: SocketStream) -> None:
        await super().serve(_Hanging(stream, self, "/completion", b'"tokens": [5], "stop": false'))  # type: ignore[arg-type]


def _slot(number: int, generated: int) -> dict[str, Any]:
    return {
        "id": number,
        "is_processing": True,
        "id_task": 7,
        "n_prompt_tokens_processed": 10,
        "next_token": [{"n_decoded": generated}],
    }


class _Hanging:
    """A connection of an engine: once it is frozen, a generation gets its first ids, and then comments alone."""

    def __init__(self, stream: SocketStream, engine: Any, path: str, message: bytes) -> None:
        self._stream = stream
        self._engine = engine
        self._path = path
        self._message = message

    async def __aenter__(self) -> "_Hanging":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stream.aclose()

    async def receive(self) -> bytes:
        return await self._stream.receive()

    async def send(self, data: bytes) -> None:
        if self._engine.asked[-1][1] != self._path or not self._engine.frozen:
            await self._stream.send(data)
            return
        await self._stream.send(STREAM)
        first, self._engine.first = self._engine.first, 0
        for number in range(1, first + 1):
            message = b'data: {%s, "content": "a", "tokens_predicted": %d}\n\n' % (self._message, number)
            await self._stream.send(b"%x\r\n%s\r\n" % (len(message), message))
        while self._engine.frozen:
            await self._stream.send(b"3\r\n:\n\n\r\n")
            await anyio.sleep(0.02)
        await self._stream.send(data.partition(b"\r\n\r\n")[2])


@dataclass
class Vllm(SlowStep):
    """A vLLM server: it answers everything but generations outside of the process that may get stuck."""

    first: int = 0
    tells: bool = True
    """Whether it keeps metrics."""

    def _answer(self, path: str, asked: dict[str, Any]) -> bytes:
        if path in ("/props", "/slots", "/completion"):
            return super()._answer("/none", asked)
        if path == "/inference/v1/generate":
            return self._ids(asked) if asked else super()._answer("/none", asked).replace(b"404", b"400")
        pages: dict[str, Any] = {
            "/v1/models": lambda: {"data": [{"id": "m", "root": "m", "max_model_len": 4096}]},
            "/tokenize": lambda: {"tokens": self.token_map.encode(_text(asked), specials=True)},
            "/detokenize": lambda: {"prompt": self.token_map.decode(asked["tokens"])},
        }
        if path == "/metrics":
            self.asked_slots += 1
            text = b'vllm:generation_tokens_total{engine="0"} %d\n' % (self.asked_slots if self.others else 7)
            text = text if self.tells else b""
        elif path in pages:
            text = json.dumps(pages[path]()).encode()
        else:
            return super()._answer(path, asked)
        return (HEAD.format(kind="application/json") + f"content-length: {len(text)}\r\n\r\n").encode() + text

    def _ids(self, asked: dict[str, Any]) -> bytes:
        told = {"choices": [{"token_ids": [5], "finish_reason": "length"}]}
        events = f"data: {json.dumps(told)}\n\ndata: [DONE]\n\n".encode()
        return STREAM + b"%x\r\n%s\r\n0\r\n\r\n" % (len(events), events)

    async def serve(self, stream: SocketStream) -> None:
        await FakeEngine.serve(self, _Silent(stream, self, "/inference/v1/generate", b""))  # type: ignore[arg-type]


class _Silent(_Hanging):
    """A connection that sends nothing at all for a generation, as vLLM does before the first id."""

    async def send(self, data: bytes) -> None:
        if self._engine.asked[-1][1] == self._path and self._engine.frozen and b" 400 " not in data:
            # Until the other side has enough of it.
            await self._stream.receive()
        await self._stream.send(data)


def _text(asked: dict[str, Any]) -> str:
    if "prompt" in asked:
        return asked["prompt"]
    return " ".join(str(message.get("content") or "") for message in asked["messages"])


@asynccontextmanager
async def routed(url: str, map_file: Path, watch: Watch, **engine: Any) -> AsyncGenerator[EngineRoute]:
    settings = EngineConfig(kind="url", url=url, idle_timeout=IDLE, **engine)
    config = GatewayConfig(engine=settings, tokens=TokensConfig(map=str(map_file)))
    route = EngineRoute(config, watch.engine_up)
    with anyio.fail_after(120):
        async with route.running():
            yield route


async def generate(ready: ReadyEngine) -> list[GenerationEvent]:
    async with ready.engine.generate(GenerateRequest([1], None, 8)) as events:
        return [event async for event in events]


async def closed(route: EngineRoute, watch: Watch, words: str) -> None:
    """Until the route is closed for this reason."""
    while True:
        seen = len(watch.states)
        try:
            route.ready()
        except EngineUnavailable as error:
            if words in error.message:
                return
        await watch.until(seen + 1)


async def opened(route: EngineRoute, watch: Watch) -> ReadyEngine:
    while not route.is_open:
        await watch.until(len(watch.states) + 1)
    return route.ready()


async def stays_open_while_frozen(engine: SlowStep, route: EngineRoute) -> None:
    """A request that gets no ids for longer than the idle time is waited for."""
    ready = route.ready()
    engine.frozen = True
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(generate, ready)
        await anyio.sleep(IDLE * 1.5)
        await engine.until_asked(2)
        assert route.is_open
        engine.frozen = False


@pytest.mark.parametrize("exclusive", [True, False], ids=["ours alone", "shared with others"])
@pytest.mark.parametrize("first", [1, 0], ids=["after its first id", "before its first id"])
async def test_request_of_an_engine_that_makes_no_progress_ends_and_the_engine_is_out_until_it_does(
    map_file: Path, *, exclusive: bool, first: int
) -> None:
    engine, watch = SlowStep(TINY, first=first), Watch()
    async with address_of(engine) as address, routed(address.url, map_file, watch, exclusive=exclusive) as route:
        ready = route.ready()
        engine.frozen = True
        with pytest.raises(EngineUnavailable, match=r"made no progress|only keep-alive comments for 2 s"):
            await generate(ready)
        await closed(route, watch, "stuck")
        # What nobody asks of it any more it need not report, and still it generates nothing.
        engine.busy = False
        await closed(route, watch, "still stuck")
        engine.frozen = False
        assert len(await generate(await opened(route, watch))) == 2


async def test_vllm_that_makes_no_progress_is_out_until_it_generates_again(map_file: Path) -> None:
    engine, watch = Vllm(TINY), Watch()
    async with address_of(engine) as address, routed(address.url, map_file, watch) as route:
        ready = route.ready()
        assert ready.facts.api == "vllm"
        engine.frozen = True
        with pytest.raises(EngineUnavailable, match="did not answer in time"):
            await generate(ready)
        await closed(route, watch, "made no progress")
        # Its figures are now those of an idle server, which has nothing to make progress with.
        await closed(route, watch, "still stuck")
        engine.frozen = False
        assert len(await generate(await opened(route, watch))) == 2


@pytest.mark.parametrize("why", ["others", "silent about it"])
async def test_vllm_that_works_for_others_or_does_not_say_stays_though_a_request_gets_nothing(
    map_file: Path, why: str
) -> None:
    engine, watch = Vllm(TINY, others=why == "others", tells=why == "others"), Watch()
    async with address_of(engine) as address, routed(address.url, map_file, watch) as route:
        ready = route.ready()
        engine.frozen = True
        for _ in range(2):
            with pytest.raises(EngineUnavailable, match="did not answer in time"):
                await generate(ready)
        assert route.is_open
        assert watch.states == [True]


@pytest.mark.parametrize("kind", [Vllm, SlowStep])
async def test_idle_engine_is_not_asked_for_its_progress(map_file: Path, kind: type[SlowStep]) -> None:
    """A llama.cpp server that sleeps would wake, and one in router mode load the model."""
    engine, watch = kind(TINY), Watch()
    async with address_of(engine) as address, routed(address.url, map_file, watch) as route:
        asked = engine.asked_slots
        await anyio.sleep(IDLE * 1.5)
        assert (engine.asked_slots, route.is_open) == (asked, True)


@pytest.mark.parametrize("first", [1, 0], ids=["after its first id", "before its first id"])
async def test_step_with_a_prompt_in_it_is_waited_for(map_file: Path, first: int) -> None:
    engine, watch = SlowStep(TINY, frozen=False, first=first, generated=0), Watch()
    async with address_of(engine) as address, routed(address.url, map_file, watch) as route:
        await stays_open_while_frozen(engine, route)
    assert watch.states == [True, False][: len(watch.states)]


async def test_request_that_waits_for_somebody_elses_is_not_ended(map_file: Path) -> None:
    engine, watch = SlowStep(TINY, first=0, others=True, busy=False), Watch()
    async with address_of(engine) as address, routed(address.url, map_file, watch) as route:
        await stays_open_while_frozen(engine, route)


async def test_request_that_gets_no_more_ids_while_others_do_ends_and_the_engine_is_not_out(map_file: Path) -> None:
    engine, watch = SlowStep(TINY, others=True), Watch()
    async with address_of(engine) as address, routed(address.url, map_file, watch) as route:
        ready = route.ready()
        engine.frozen = True
        with pytest.raises(EngineUnavailable, match="only keep-alive comments for 2 s"):
            await generate(ready)
        assert route.is_open


async def test_in_a_pool_only_the_stuck_engine_is_out(map_file: Path) -> None:
    engines = {name: SlowStep(TINY) for name in ("attic", "cellar")}
    watch = Watch()
    async with address_of(engines["attic"]) as attic, address_of(engines["cellar"]) as cellar:
        members = {
            name: EngineConfig(kind="url", url=url, idle_timeout=IDLE)
            for name, url in (("attic", attic.url), ("cellar", cellar.url))
        }
        metrics = Metrics()
        config = GatewayConfig(engines=members, tokens=TokensConfig(map=str(map_file)))
        built = Engines(
            config,
            lambda name, up, reason: watch.engine_up(up, reason),
            metrics=lambda: metrics.engines,
            files=lambda: metrics.slot_files,
        )
        with anyio.fail_after(120):
            async with built.running() as pool:
                with pool.stay(pool.ready(), b"") as stay:
                    name = stay.ready.name
                    engines[name].frozen = True
                    with pytest.raises(EngineUnavailable) as lost:
                        await generate(stay.ready)
                    stay.lost(lost.value)
                    stay.move(lost.value)
                    assert stay.ready.name != name
                    assert len(await generate(stay.ready)) == 2
                await closed(built.routes[name], watch, "stuck")
                states = {each.name: each.state for each in pool.statuses()}
                assert states.pop(name) != "ready"
                assert [*states.values()] == ["ready"]
