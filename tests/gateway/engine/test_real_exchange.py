"""A real engine that is killed, and another that is started at its address before the next poll."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from bench.processes import free_port
from gateway.config import EngineConfig, GatewayConfig, TokensConfig
from gateway.engine.embedded.engine_process import EmbeddedServer, Listening, embedded_server
from gateway.engine.interface import GenerateRequest
from gateway.engine.start.readiness import EngineRoute
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.errors import EngineUnavailable, MapDiffers
from leaf_sdk.testing import tiny_map
from leaf_sdk.vocab import TokenMap
from tests.gateway.engine.engines import FakeEngine, Watch

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

PROMPT = [1, 520, 198]


async def generate(ready: ReadyEngine) -> int:
    """How many events came."""
    async with ready.engine.generate(GenerateRequest(PROMPT, None, 4)) as events:
        return len([event async for event in events])


@asynccontextmanager
async def routed(port: int, map_file: Path, watch: Watch) -> AsyncGenerator[EngineRoute]:
    engine = EngineConfig(kind="url", url=f"http://127.0.0.1:{port}")
    route = EngineRoute(GatewayConfig(engine=engine, tokens=TokensConfig(map=str(map_file))), watch.engine_up)
    async with route.running():
        yield route


@pytest.fixture
def map_file(tmp_path: Path, model_map_bytes: bytes) -> Path:
    path = tmp_path / "map.json"
    path.write_bytes(model_map_bytes)
    return path


def real_engine(port: int) -> AbstractAsyncContextManager[EmbeddedServer]:
    return embedded_server(EngineConfig(context=1024, threads=1), Listening("127.0.0.1", port, None))


async def test_engine_of_another_tokenizer_that_takes_the_place_of_a_killed_one_gets_no_ids(map_file: Path) -> None:
    port, other = free_port(), FakeEngine(tiny_map())
    async with real_engine(port) as server, routed(port, map_file, Watch()) as route:
        ready = route.ready()
        assert await generate(ready)
        server.kill()
        await server.ended()
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, other.serve)
            with pytest.raises((EngineUnavailable, MapDiffers)):
                await generate(ready)
            tasks.cancel_scope.cancel()

    assert other.prompts == []


async def test_end_of_a_stream_which_ends_its_connection_puts_nothing_in_doubt(map_file: Path) -> None:
    port, watch = free_port(), Watch()
    async with real_engine(port), routed(port, map_file, watch) as route:
        ready = route.ready()
        with pytest.MonkeyPatch.context() as patch:
            # A doubt has the map proven again, which encodes.
            patch.setattr(TokenMap, "encode", None)
            for _ in range(4):
                assert await generate(ready)

    assert watch.states[:1] == [True]
    assert False not in watch.states


async def test_same_engine_that_is_started_anew_at_its_address_is_proven_and_used_again(map_file: Path) -> None:
    port, watch = free_port(), Watch()
    async with real_engine(port) as first, routed(port, map_file, watch) as route:
        assert await generate(route.ready())
        first.kill()
        await watch.until(2)
        async with real_engine(port):
            # Closed once, and for each look in between; in the end it is open.
            while not watch.states[-1]:
                await watch.until(len(watch.states) + 1)
            assert await generate(route.ready())
