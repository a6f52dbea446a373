"""An engine that says strange things of itself closes the route, by a named error; the gateway stays."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import anyio
import pytest
from anyio.abc import SocketStream

from gateway.config import EngineConfig, GatewayConfig, TokensConfig
from gateway.engine.interface import Generated, GenerateRequest, GenerationEnd
from gateway.engine.start.readiness import EngineRoute
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.errors import EngineError, EngineRefused, EngineUnavailable
from leaf_sdk.testing import tiny_map
from tests.gateway.engine.engines import HEAD, FakeEngine, Watch, address_of

pytestmark = pytest.mark.anyio

TINY = tiny_map()
E = TypeVar("E", bound=FakeEngine)


@dataclass
class StrangeEngine(FakeEngine):
    """Answers some paths otherwise."""

    said: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Path to the whole answer, head and all."""

    def _answer(self, path: str, asked: dict[str, Any]) -> bytes:
        if path in self.said:
            return self.said[path]
        return super()._answer(path, asked)


def page(body: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


def props(**said: Any) -> dict[str, bytes]:
    usual = {"default_generation_settings": {"n_ctx": 4096}, "total_slots": 2, "chat_template": ""}
    return {"/props": page(json.dumps(usual | said).encode())}


def models(**meta: Any) -> dict[str, bytes]:
    return {"/v1/models": page(json.dumps({"data": [{"id": "m", "meta": meta}]}).encode())}


async def generate(ready: ReadyEngine) -> None:
    async with ready.engine.generate(GenerateRequest([1], 0, 1)) as events:
        async for _ in events:
            pass


@asynccontextmanager
async def routed(url: str, map_file: Path, watch: Watch, **engine: Any) -> AsyncGenerator[EngineRoute]:
    config = GatewayConfig(engine=EngineConfig(kind="url", url=url, **engine), tokens=TokensConfig(map=str(map_file)))
    route = EngineRoute(config, watch.engine_up)
    async with route.running():
        yield route


DEEP = b"[" * 200_000


def _name(said: dict[str, bytes]) -> str:
    ((path, answer),) = said.items()
    return path + repr(answer.partition(b"\r\n\r\n")[2][:120])[1:]


@pytest.mark.parametrize(
    "said",
    [
        props(total_slots=-1),
        props(total_slots=10**6),
        props(total_slots=float("inf")),
        props(default_generation_settings={"n_ctx": -4}),
        props(default_generation_settings={"n_ctx": 1e400}),
        props(default_generation_settings=[4]),
        props(model_path=5),
        props(model_path={"a": 1}),
        props(chat_template_caps="none"),
        models(n_vocab="many"),
        models(n_vocab=-5),
        models(n_vocab=[]),
        {"/v1/models": page(b'{"data": {"a": 1}}')},
        {"/v1/models": page(b'{"data": [[]]}')},
        {"/tokenize": page(b'{"tokens": 5}')},
        {"/tokenize": page(b'{"tokens": [1.5, "x"]}')},
        {"/tokenize": page(b'{"tokens": [Infinity]}')},
        {"/tokenize": page(b'{"tokens": [-1]}')},
        {"/props": page(DEEP)},
        {"/props": page(DEEP, "500 Oops")},
        {"/props": page(b'{"error": 5}', "500 Oops")},
        {"/props": page(b"[1]", "500 Oops")},
        {"/props": page(b"9" * 10_000)},
        {"/props": page(b"9" * 10_000, "500 Oops")},
    ],
    ids=_name,
)
async def test_engine_that_says_strange_things_of_itself_is_refused(map_file: Path, said: dict[str, bytes]) -> None:
    engine = StrangeEngine(TINY, said=said)
    with anyio.fail_after(30):
        async with address_of(engine) as address, routed(address.url, map_file, Watch()) as route:
            with pytest.raises(EngineError) as refused:
                route.ready()
    assert len(refused.value.message) < 2000


class _Altered(Generic[E]):
    """A connection of which an engine's `send` differs."""

    def __init__(self, stream: SocketStream, engine: E) -> None:
        self._stream = stream
        self._engine = engine

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stream.aclose()

    async def receive(self) -> bytes:
        return await self._stream.receive()


@dataclass
class SlowEngine(FakeEngine):
    """Some of its answers come byte by byte, and never to their end; it may close each connection."""

    drips: str = ""
    """A path."""
    closes: bool = False

    async def serve(self, stream: SocketStream) -> None:
        await super().serve(_Slow(stream, self))  # type: ignore[arg-type]


class _Slow(_Altered[SlowEngine]):
    async def send(self, data: bytes) -> None:
        engine = self._engine
        if engine.drips and engine.asked[-1][1] == engine.drips:
            await self._stream.send(page(b" " * 1000)[:-1000])
            while True:
                await self._stream.send(b" ")
                await anyio.sleep(0.02)
        await self._stream.send(data)
        if engine.closes:
            await self._stream.aclose()


@dataclass
class StuckEngine(FakeEngine):
    """Its own loop may be stuck: it says that it is healthy, and answers nothing that the loop has to answer."""

    stuck: bool = False

    async def serve(self, stream: SocketStream) -> None:
        await super().serve(_Stuck(stream, self))  # type: ignore[arg-type]


class _Stuck(_Altered[StuckEngine]):
    async def send(self, data: bytes) -> None:
        if self._engine.stuck and self._engine.asked[-1][1] in ("/slots", "/completion"):
            # Until the other side has enough of it.
            await self._stream.receive()
        await self._stream.send(data)


async def test_engine_whose_loop_is_stuck_is_reported_until_it_answers_again(map_file: Path) -> None:
    engine, watch = StuckEngine(TINY), Watch()
    with anyio.fail_after(60):
        async with (
            address_of(engine) as address,
            routed(address.url, map_file, watch, idle_timeout=2.5, exclusive=True) as route,
        ):
            ready = route.ready()
            engine.stuck = True
            with pytest.raises(EngineUnavailable):
                await generate(ready)
            await watch.until(watch.states.index(True) + 2)
            with pytest.raises(EngineUnavailable, match="stuck"):
                route.ready()
            engine.stuck = False
            await watch.until(len(watch.states) + 1)
            while not route.is_open:
                await watch.until(len(watch.states) + 1)
            await generate(route.ready())


class PaddedEngine(StrangeEngine):
    """Its model writes an id that its tokenizer does not have."""

    def _answer(self, path: str, asked: dict[str, Any]) -> bytes:
        if path != "/completion":
            return super()._answer(path, asked)
        told = {"content": "", "tokens": [len(TINY) + 1], "stop": False, "tokens_predicted": 1}
        end = {"content": "", "tokens": [], "stop": True, "stop_type": "limit", "tokens_predicted": 1}
        return page("".join(f"data: {json.dumps(each)}\n\n" for each in (told, end)).encode())


async def test_id_of_a_padded_vocabulary_is_accepted_where_the_engine_says_that_it_has_it(
    map_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = PaddedEngine(TINY, said=models(n_vocab=len(TINY) + 2))
    async with address_of(engine) as address, routed(address.url, map_file, Watch()) as route:
        for _ in range(2):
            await generate(route.ready())
    # It is logged once, and not with each answer.
    assert ["padded vocabulary" in str(record.msg) for record in caplog.records].count(True) == 1


async def test_id_beyond_the_vocabulary_that_the_engine_reports_ends_the_answer(map_file: Path) -> None:
    async with address_of(PaddedEngine(TINY)) as address, routed(address.url, map_file, Watch()) as route:
        with pytest.raises(EngineRefused, match="not an id of the token map"):
            await generate(route.ready())


@pytest.mark.parametrize("path", ["/props", "/v1/models", "/tokenize"])
async def test_engine_whose_answer_never_ends_is_given_up(map_file: Path, path: str) -> None:
    engine = SlowEngine(TINY, drips=path)
    with anyio.fail_after(60):
        async with (
            address_of(engine) as address,
            routed(address.url, map_file, Watch(), idle_timeout=0.3) as route,
        ):
            with pytest.raises(EngineUnavailable, match=r"did not answer (in time|within 0\.3 s)"):
                route.ready()


async def test_new_connection_that_is_looked_at_without_end_is_given_up(map_file: Path) -> None:
    engine = SlowEngine(TINY)
    with anyio.fail_after(60):
        async with address_of(engine) as address, routed(address.url, map_file, Watch(), idle_timeout=2) as route:
            ready = route.ready()
            engine.drips = "/props"
            async with ready.engine.generate(GenerateRequest([1], 0, 1)):
                with pytest.raises(EngineUnavailable, match="did not answer in time"):
                    async with ready.engine.generate(GenerateRequest([2], 0, 1)):
                        pass
    assert engine.prompts == [[1]]


async def test_engine_that_closes_each_connection_is_named_at_once(map_file: Path) -> None:
    engine = SlowEngine(TINY, closes=True)
    with anyio.fail_after(30):
        async with address_of(engine) as address, routed(address.url, map_file, Watch()) as route:
            with pytest.raises(EngineUnavailable, match=r"closed the connection|can't be reached: the connection"):
                route.ready()


async def test_engine_that_sends_nothing_but_comments_is_given_up(
    map_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.engine.wire.engine_client._COMMENTS_TIME", 0.1)
    engine = CommentingEngine(TINY)
    with anyio.fail_after(60):
        async with address_of(engine) as address, routed(address.url, map_file, Watch()) as route:
            ready = route.ready()
            with pytest.raises(EngineUnavailable, match="only keep-alive comments"):
                await generate(ready)


@dataclass
class CommentingEngine(FakeEngine):
    """Says in every generation that it is alive, and nothing else."""

    async def serve(self, stream: SocketStream) -> None:
        await super().serve(_Commenting(stream, self))  # type: ignore[arg-type]


class _Commenting(_Slow):
    async def send(self, data: bytes) -> None:
        if self._engine.asked[-1][1] != "/completion":
            await self._stream.send(data)
            return
        await self._stream.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        while True:
            await self._stream.send(b":\n\n")
            await anyio.sleep(0.02)


@dataclass
class BusyEngine(FakeEngine):
    """Leaves the first health checks without an answer, once it has been reached."""

    unanswered: int = 0
    answered: anyio.Event = field(default_factory=anyio.Event)

    def _answer(self, path: str, asked: dict[str, Any]) -> bytes:
        if path != "/health" or len(self.asked) == 1:
            return super()._answer(path, asked)
        self.unanswered -= 1
        if self.unanswered >= 0:
            return b""
        self.answered.set()
        return super()._answer(path, asked)


async def test_engine_is_lost_only_if_the_longest_of_several_health_checks_finds_no_answer(
    map_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.engine.start.readiness._HEALTH_TIMES", (0.01, 0.02, 60.0))
    monkeypatch.setattr("gateway.engine.start.readiness._POLL", 0.01)
    busy = BusyEngine(TINY, unanswered=2)
    async with address_of(busy) as address, routed(address.url, map_file, Watch()) as route:
        ready = route.ready()
        with anyio.fail_after(60):
            await busy.answered.wait()
        await generate(ready)
        assert route.ready() is ready

    monkeypatch.setattr("gateway.engine.start.readiness._HEALTH_TIMES", (0.01, 0.02, 0.04))
    hung, watch = BusyEngine(TINY, unanswered=3), Watch()
    async with address_of(hung) as address, routed(address.url, map_file, watch):
        # Up, lost, and up again.
        await watch.until(3)


@dataclass
class BreakingEngine(FakeEngine):
    """Sends a whole answer, and then something that is not the account of it."""

    then: bytes = b""

    async def serve(self, stream: SocketStream) -> None:
        await super().serve(_Breaking(stream, self))  # type: ignore[arg-type]


class _Breaking(_Altered[BreakingEngine]):
    async def send(self, data: bytes) -> None:
        if self._engine.asked[-1][1] != "/completion":
            await self._stream.send(data)
            return
        head = HEAD.format(kind="text/event-stream") + "transfer-encoding: chunked\r\n\r\n"
        await self._stream.send(head.encode())
        event = b'data: {"content": "a", "tokens": [5], "stop": false, "tokens_predicted": 1}\n\n'
        for part in (event, self._engine.then):
            await self._stream.send(b"%x\r\n%s\r\n" % (len(part), part) if part else b"")


@pytest.mark.parametrize(
    "then",
    [b"", b"x" * (2 << 20), b"data: {\n\n", b'data: {"error": {"message": "no"}}\n\n'],
    ids=["nothing", "endless line", "half a message", "error"],
)
async def test_fault_after_all_ids_costs_no_answer(map_file: Path, then: bytes) -> None:
    engine = BreakingEngine(TINY, then=then)
    with anyio.fail_after(30):
        async with (
            address_of(engine) as address,
            routed(address.url, map_file, Watch()) as route,
            route.ready().engine.generate(GenerateRequest([1], 0, 1)) as events,
        ):
            *given, end = [event async for event in events]
    assert given == [Generated((5,))]
    assert isinstance(end, GenerationEnd)
    assert (end.reason, end.reported) == ("length", False)
