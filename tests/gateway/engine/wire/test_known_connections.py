"""The proof of the map belongs to the connection: ids go only where it has been seen which engine answers."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from gateway.config import EngineConfig, GatewayConfig, TokensConfig
from gateway.engine.interface import GenerateRequest
from gateway.engine.start.readiness import EngineRoute
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.errors import EngineError, EngineUnavailable, MapDiffers
from leaf_sdk.testing import tiny_map, tiny_map_bytes
from leaf_sdk.vocab import TokenMap, load_map
from tests.gateway.engine.engines import FakeEngine, Watch, address_of, marker_of

pytestmark = pytest.mark.anyio

TINY = tiny_map()
# What asks which API an engine speaks does so on a connection of its own: tests/gateway/engine/wire/test_adapter.py.
IDENTITY = ["/props"]


@pytest.fixture
def other_map() -> TokenMap:
    """As large as the first and with the same markers, but two words have changed places."""
    fields = json.loads(tiny_map_bytes())
    vocab = fields["vocab"]
    one, other = [token for token in vocab if token.isalpha() and len(token) == 1][:2]
    vocab[one], vocab[other] = vocab[other], vocab[one]
    return load_map(json.dumps(fields).encode())


@asynccontextmanager
async def routed(url: str, map_file: Path, watch: Watch) -> AsyncGenerator[EngineRoute]:
    config = GatewayConfig(
        engine=EngineConfig(kind="url", url=url, api="llama_cpp"), tokens=TokensConfig(map=str(map_file))
    )
    route = EngineRoute(config, watch.engine_up)
    async with route.running():
        yield route


async def generate(ready: ReadyEngine, prompt: list[int]) -> None:
    async with ready.engine.generate(GenerateRequest(prompt, 0, 1)) as events:
        async for _ in events:
            pass


def by_connection(engine: FakeEngine) -> dict[int, list[str]]:
    """What was asked on each connection but the first, in order, looks at the engine's health left out."""
    found: dict[int, list[str]] = {}
    for number, path in engine.asked:
        if number and path != "/health":
            found.setdefault(number, []).append(path)
    return found


async def test_nothing_more_is_asked_on_a_connection_that_is_known(map_file: Path) -> None:
    engine = FakeEngine(TINY)
    async with address_of(engine) as address, routed(address.url, map_file, Watch()) as route:
        for prompt in ([1, 2], [1, 2, 3], [1, 2, 3, 4]):
            await generate(route.ready(), prompt)

    first, *others = by_connection(engine).values()
    # The connection on which the map was proven; the others are seen to lead to the same engine, and that is all.
    assert first.count("/completion") == 1
    assert all(paths in (IDENTITY, [*IDENTITY, "/completion"]) for paths in others)
    assert len(engine.prompts) == 3


async def test_next_connection_is_made_while_a_stream_comes(map_file: Path) -> None:
    engine = FakeEngine(TINY)
    async with address_of(engine) as address, routed(address.url, map_file, Watch()) as route:
        ready = route.ready()
        async with ready.engine.generate(GenerateRequest([1], 0, 1)) as events:
            while by_connection(engine).get(2) != IDENTITY:
                await anyio.lowlevel.checkpoint()
            _ = [event async for event in events]
        before = len(engine.asked)
        await generate(ready, [1, 2])

    assert engine.asked[before] == (2, "/completion")


async def test_second_generation_at_a_time_gets_a_connection_that_is_looked_at_first(map_file: Path) -> None:
    engine = FakeEngine(TINY)
    async with address_of(engine) as address, routed(address.url, map_file, Watch()) as route:
        ready = route.ready()
        async with ready.engine.generate(GenerateRequest([1], 0, 1)):
            await generate(ready, [2])

    _, *others = by_connection(engine).values()
    assert [*IDENTITY, "/completion"] in others


@pytest.mark.parametrize(
    "change",
    [
        lambda engine, other: FakeEngine(other, marker=marker_of("2")),
        lambda engine, other: FakeEngine(other, marker=None, model="another"),
        # Everything that an engine says of itself is the same: only the proof tells.
        lambda engine, other: FakeEngine(other, marker=None),
    ],
    ids=["restarted", "another model", "another tokenizer, and all else the same"],
)
async def test_engine_that_is_exchanged_between_two_polls_gets_no_ids(
    map_file: Path, other_map: TokenMap, change: Callable[[FakeEngine, TokenMap], FakeEngine]
) -> None:
    first, watch = FakeEngine(TINY), Watch()
    second = change(first, other_map)
    if second.marker is None:
        first.marker = None
    async with address_of(first) as address, routed(address.url, map_file, watch) as route:
        ready = route.ready()
        await generate(ready, [1, 2, 3])
        await address.move(second)
        with pytest.raises(EngineError):
            await generate(ready, [1, 2, 3, 4])
        # Closed, and again with the difference that the proof has found.
        await watch.until(3)
        with pytest.raises(MapDiffers):
            route.ready()
        with pytest.raises(EngineUnavailable, match="in the meantime"):
            await generate(ready, [1, 2, 3, 4])

    assert second.prompts == []
    assert "/tokenize" in second.paths()


async def test_engine_that_is_exchanged_while_a_generation_runs_gets_no_ids(
    map_file: Path, other_map: TokenMap
) -> None:
    first, second = FakeEngine(TINY), FakeEngine(other_map, marker=marker_of("2"))
    async with address_of(first) as address, routed(address.url, map_file, Watch()) as route:
        ready = route.ready()
        async with ready.engine.generate(GenerateRequest([1], 0, 1)):
            # Its connection stands; the next one leads elsewhere.
            address.engine = second
            # The one after it may stand already too, and lead to the first.
            with suppress(EngineError):
                await generate(ready, [2])
            with pytest.raises(EngineError):
                await generate(ready, [3])

    assert second.prompts == []


async def test_engine_without_a_start_marker_is_proven_on_each_new_connection(
    map_file: Path, other_map: TokenMap
) -> None:
    """All that it says of itself may be said by another one, and no connection need have been lost in between."""
    first, second = FakeEngine(TINY, marker=None), FakeEngine(other_map, marker=None)
    async with address_of(first) as address, routed(address.url, map_file, Watch()) as route:
        ready = route.ready()
        async with ready.engine.generate(GenerateRequest([1], 0, 1)):
            address.engine = second
            with pytest.raises(EngineError):
                await generate(ready, [2])

    assert second.prompts == []


async def test_lost_connection_runs_the_whole_proof_and_the_same_engine_goes_on(map_file: Path) -> None:
    engine, watch = FakeEngine(TINY), Watch()
    async with address_of(engine) as address, routed(address.url, map_file, watch) as route:
        ready = route.ready()
        whole = len([path for path in engine.paths() if path == "/tokenize"])
        before = len(engine.asked)
        await address.cut()
        await generate(ready, [1, 2])
        asked = engine.paths()[before:]

    assert engine.prompts == [[1, 2]]
    # The look at the engine's health may have come first, on a connection of its own.
    assert asked[: asked.index("/completion")].count("/tokenize") >= whole > IDENTITY.count("/tokenize")
    assert watch.states[:1] == [True]
    assert False not in watch.states


async def test_restarted_engine_of_the_same_model_is_used_again_after_its_proof(map_file: Path) -> None:
    first, second, watch = FakeEngine(TINY), FakeEngine(TINY, marker=marker_of("2")), Watch()
    async with address_of(first) as address, routed(address.url, map_file, watch) as route:
        ready = route.ready()
        await address.move(second)
        with pytest.raises(EngineUnavailable):
            await generate(ready, [1])
        await watch.until(3)
        await generate(route.ready(), [1])

    assert watch.states == [True, False, True]
    assert second.prompts == [[1]]
    assert len(second.paths()) > len(IDENTITY) + 3


async def test_no_more_connections_stand_than_the_engine_has_threads_for(map_file: Path) -> None:
    engine = FakeEngine(TINY, slots=1)

    async def ask(ready: Any) -> None:
        await ready.engine.tokenize("x", specials=False)

    async with (
        address_of(engine) as address,
        routed(address.url, map_file, Watch()) as route,
        anyio.create_task_group() as tasks,
    ):
        for _ in range(20):
            tasks.start_soon(ask, route.ready())
    assert max(number for number, _ in engine.asked) <= 3
