"""A llama-server in router mode: the model is named in every request, and its process may be another one each time."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.config import EngineConfig, GatewayConfig, TokensConfig
from gateway.engine.interface import GenerateRequest
from gateway.engine.start.readiness import EngineRoute
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.errors import EngineError, EngineUnavailable
from leaf_sdk.testing import tiny_map, tiny_map_bytes
from leaf_sdk.vocab import TokenMap, load_map
from tests.gateway.engine.engines import FakeEngine, FakeRouter, FakeSwap, Watch, address_of, collect, marker_of

pytestmark = pytest.mark.anyio

TINY = tiny_map()
Make = Callable[[], FakeRouter]
UNNAMED = {"/health", "/props", "/v1/models"}
"""What the router answers itself."""


def another_map() -> TokenMap:
    """Two words have changed places."""
    fields = json.loads(tiny_map_bytes())
    vocab = fields["vocab"]
    one, other = [token for token in vocab if token.isalpha() and len(token) == 1][:2]
    vocab[one], vocab[other] = vocab[other], vocab[one]
    return load_map(json.dumps(fields).encode())


def router(*in_use: str) -> FakeRouter:
    return FakeRouter({"small": FakeEngine(TINY), "large/7B": FakeEngine(TINY, marker=marker_of("2"))}, list(in_use))


def swap() -> FakeSwap:
    return FakeSwap(router().processes)


@asynccontextmanager
async def routed(
    engine: FakeRouter, map_file: Path, served: str | None = "large/7B", watch: Watch | None = None
) -> AsyncGenerator[EngineRoute]:
    async with address_of(engine) as address:
        settings = EngineConfig(kind="url", url=address.url, served_model=served)
        if isinstance(engine, FakeSwap):
            settings = EngineConfig(kind="url", url=f"{address.url}/upstream/{served}")
        route = EngineRoute(
            GatewayConfig(engine=settings, tokens=TokensConfig(map=str(map_file))), (watch or Watch()).engine_up
        )
        async with route.running():
            yield route


async def generate(ready: ReadyEngine, prompt: list[int]) -> None:
    await collect(ready.engine, GenerateRequest(prompt, None, 1))


@pytest.mark.parametrize("served", ["large/7B", "large/7B:latest"])
async def test_everything_is_asked_of_the_named_model(map_file: Path, served: str) -> None:
    engine = router("small")
    async with routed(engine, map_file, served) as route:
        ready = route.ready()
        for prompt in ([1, 2], [1, 2, 3]):
            await generate(ready, prompt)

    assert engine.processes["large/7B"].prompts == [[1, 2], [1, 2, 3]]
    assert engine.processes["small"].prompts == []
    assert ready.facts.model == served.removesuffix(":latest")
    assert {path for path, model in engine.asked if model is None} <= UNNAMED
    assert {model for _, model in engine.asked} == {None, served}


@pytest.mark.parametrize(("in_use", "used"), [(["small"], "small"), (["large/7B"], "large/7B")])
async def test_only_model_that_is_loaded_is_used_if_none_is_named(map_file: Path, in_use: list[str], used: str) -> None:
    async with routed(router(*in_use), map_file, None) as route:
        assert route.ready().facts.model == used


async def test_only_model_is_used_if_none_is_named(map_file: Path) -> None:
    engine = router()
    del engine.processes["small"]
    async with routed(engine, map_file, None) as route:
        assert route.ready().facts.model == "large/7B"


@pytest.mark.parametrize(
    ("in_use", "served", "words"),
    [
        ([], None, r"router mode, and its models are 'small', 'large/7B': name one of them \(engine\.served_model\)"),
        (["small", "large/7B"], None, "router mode"),
        (["small"], "tiny", r"engine\.served_model is 'tiny', but the server has 'small', 'large/7B': name one"),
    ],
)
async def test_which_model_is_meant_must_be_known(
    map_file: Path, in_use: list[str], served: str | None, words: str
) -> None:
    engine = router(*in_use)
    async with routed(engine, map_file, served) as route:
        with pytest.raises(EngineUnavailable, match=words):
            route.ready()

    assert {model for _, model in engine.asked} == {None}


@pytest.mark.parametrize("make", [lambda: router("large/7B"), swap], ids=["router mode", "llama-swap"])
async def test_process_that_was_started_again_is_proven_and_used_at_once(map_file: Path, make: Make) -> None:
    engine, watch = make(), Watch()
    async with routed(engine, map_file, watch=watch) as route:
        ready = route.ready()
        await generate(ready, [1])
        proofs = [path for path, _ in engine.asked].count("/tokenize")
        engine.processes["large/7B"].marker = marker_of("3")
        await generate(ready, [1, 2])
        after = [path for path, _ in engine.asked].count("/tokenize")
        await generate(ready, [1, 2, 3])
        last = [path for path, _ in engine.asked].count("/tokenize")

    assert engine.processes["large/7B"].prompts == [[1], [1, 2], [1, 2, 3]]
    assert (after, last) == (2 * proofs, 2 * proofs)
    assert False not in watch.states[:-1]


@pytest.mark.parametrize("make", [lambda: router("large/7B"), swap], ids=["router mode", "llama-swap"])
async def test_process_with_another_tokenizer_gets_no_ids(map_file: Path, make: Make) -> None:
    engine = make()
    async with routed(engine, map_file) as route:
        ready = route.ready()
        await generate(ready, [1])
        engine.processes["large/7B"] = other = FakeEngine(another_map(), marker=marker_of("3"))
        with pytest.raises(EngineError):
            await generate(ready, [1, 2])

    assert other.prompts == []


async def test_process_that_is_exchanged_in_the_middle_of_its_proof_is_not_used(map_file: Path) -> None:
    class Exchanging(FakeEngine):
        def _answer(self, path: str, asked: dict[str, object]) -> bytes:
            if path == "/tokenize":
                self.marker = marker_of("4" if self.marker == marker_of("3") else "3")
            return super()._answer(path, asked)

    engine = router("small")
    engine.processes["small"] = Exchanging(TINY)
    async with routed(engine, map_file, "small") as route:
        with pytest.raises(EngineUnavailable, match="replaced while it was being checked"):
            route.ready()


@pytest.mark.parametrize("make", [lambda: router("large/7B"), swap], ids=["router mode", "llama-swap"])
async def test_looks_at_an_idle_router_load_no_model(map_file: Path, make: Make) -> None:
    engine = make()
    async with routed(engine, map_file) as route:
        ready = route.ready()
        engine.asked.clear()
        engine.may_end = True
        assert await ready.engine.healthy(60.0)
        assert await ready.engine.activity() is None
        looked = {*engine.asked}
        await generate(ready, [1])

    assert looked == {("/health", None)}
    assert engine.may_end
    # Its slots are those of a process that may end between two requests.
    assert ready.engine.keeper is None
    assert not ready.slots.chooses


async def test_model_of_a_server_that_has_one_is_not_named_in_requests(map_file: Path) -> None:
    engine = FakeEngine(TINY)
    async with address_of(engine) as address:
        settings = EngineConfig(kind="url", url=address.url, served_model="model")
        route = EngineRoute(GatewayConfig(engine=settings, tokens=TokensConfig(map=str(map_file))), Watch().engine_up)
        async with route.running():
            await generate(route.ready(), [1])

    assert engine.bodies[0].keys() & {"model"} == set()
