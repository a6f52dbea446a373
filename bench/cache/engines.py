"""What is compared: the gateway's paging over its embedded engine, a stock server, and one that keeps nothing.

Turns a model and a memory into running sides, each with a table of slots that gives generations their turn. It sends no
requests.
"""

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from bench.cache.scene import Scene
from bench.cache.simulated import ModelRates
from bench.first_delta import process
from gateway.config import EngineConfig, GatewayConfig, TokensConfig
from gateway.engine.embedded.engine_process import embedded_server
from gateway.engine.interface import Filled, Provable, Proven
from gateway.engine.slots.allocation import SlotTable
from gateway.engine.slots.engine_slots import open_slot_files, slot_table
from gateway.engine.slots.engine_speed import Rates
from gateway.engine.slots.slot_directory import SlotDirectory
from gateway.engine.wire.llama_cpp_client import LlamaCpp
from gateway.observe.metrics import Metrics
from leaf_sdk.vocab import TokenMap

MIB: Final = 2**20
_ORDINARY: Final = 1000
"""A token from which on they are ordinary ones."""


class CountedEngine(LlamaCpp):
    """The client of a llama.cpp server, which also counts ids that are processed outside generations."""

    beside = 0

    async def fill_slot(self, slot: int, ids: Sequence[int]) -> Filled:
        """Cut a slot to these ids, for which at least the last one is processed."""
        filled = await super().fill_slot(slot, ids)
        self.beside += filled.ids
        return filled


@dataclass(frozen=True, slots=True)
class Side:
    """A running engine, and who gets its slots."""

    engine: CountedEngine
    table: SlotTable
    reuse: bool = True
    metrics: Metrics | None = None
    directory: SlotDirectory | None = None

    def moved(self) -> dict[str, int]:
        """Return the saves, the restores and their bytes so far."""
        lines = self.metrics.render().decode().splitlines() if self.metrics is not None else []
        prefix = "codec_slot_file_move"
        return {
            line.partition(" ")[0].removeprefix("codec_slot_file_"): int(float(line.rpartition(" ")[2]))
            for line in lines
            if line.startswith(prefix) and "_created" not in line
        }


Opened = AbstractAsyncContextManager[Side]
Open = Callable[[Path, TokenMap, Scene, int], Opened]
"""Starts a side with a model and that many mebibytes besides the slots."""


def context_of(scene: Scene) -> int:
    """Return the ids of all slots together: each holds more than a conversation has, in whole batches."""
    return scene.slots * (scene.longest // 512 + 1) * 512


@asynccontextmanager
async def ours(
    model: Path, token_map: TokenMap, scene: Scene, mib: int, rates: Rates | None = None
) -> AsyncGenerator[Side]:
    """The embedded engine, whose slots are swapped to files. It decides by SmolLM2's rates, unless given others."""
    settings = EngineConfig(
        kind="embedded",
        model=model,
        context=context_of(scene),
        slots=scene.slots,
        threads=1,
        slot_files_bytes=mib * MIB,
    )
    config, metrics = GatewayConfig(engine=settings, tokens=TokensConfig()), Metrics()
    with open_slot_files(settings, rates or ModelRates(), 1.0, metrics.slot_files) as files:
        if files is None:
            raise SystemExit("there are no slot files; nothing was measured")
        async with (
            embedded_server(settings, slot_files=files.directory.path) as server,
            _client(server.url, server.key, token_map) as engine,
            anyio.create_task_group() as tasks,
        ):
            some = list(range(_ORDINARY, _ORDINARY + 3))
            table = await slot_table(engine, await engine.facts(), some, config, files, tasks)
            if table.swapper is None:
                raise SystemExit("slots are not swapped; nothing was measured")
            await table.swapper.adopted.wait()
            engine.beside = 0
            yield Side(engine, table, metrics=metrics, directory=files.directory)


@asynccontextmanager
async def stock(model: Path, token_map: TokenMap, scene: Scene, mib: int) -> AsyncGenerator[Side]:
    """A llama.cpp server with its own defaults, which chooses its slots; ids are asked for in the same order."""
    async with _stock(model, token_map, scene, mib, unified=True) as engine:
        yield Side(engine, SlotTable(scene.slots))


@asynccontextmanager
async def stock_apart(model: Path, token_map: TokenMap, scene: Scene, mib: int) -> AsyncGenerator[Side]:
    """The same server with a KV cache for each slot."""
    async with _stock(model, token_map, scene, mib, unified=False) as engine:
        yield Side(engine, SlotTable(scene.slots))


@asynccontextmanager
async def fresh(model: Path, token_map: TokenMap, scene: Scene, mib: int) -> AsyncGenerator[Side]:
    """A server that reuses nothing."""
    async with _stock(model, token_map, scene, mib, unified=False) as engine:
        yield Side(engine, SlotTable(1), reuse=False)


@asynccontextmanager
async def two_gateways(model: Path, token_map: TokenMap, scene: Scene, mib: int) -> AsyncGenerator[tuple[Side, Side]]:
    """Two gateways that know nothing of each other, over one server with a host cache."""
    async with (
        _stock(model, token_map, scene, mib, unified=False) as engine,
        _client(engine.url, None, token_map) as other,
    ):
        yield Side(engine, SlotTable(scene.slots)), Side(other, SlotTable(scene.slots))


@asynccontextmanager
async def _stock(
    model: Path, token_map: TokenMap, scene: Scene, mib: int, *, unified: bool
) -> AsyncGenerator[CountedEngine]:
    """Run the server. With one KV cache for all, the order of sums, and so a close choice, depends on other slots."""
    settings = {"model": str(model), "context": context_of(scene), "cache_mib": mib, "threads": 1}
    slots = {"slots": scene.slots, "unified": unified}
    with process("codec_demo.plain_server", json.dumps({**settings, **slots})) as child:
        url = (child.stdout.readline() if child.stdout else "").strip()
        async with _client(url, None, token_map) as engine:
            yield engine


@asynccontextmanager
async def _client(url: str, key: str | None, token_map: TokenMap) -> AsyncGenerator[CountedEngine]:
    async def believe(questions: Provable) -> Proven:
        return Proven(await questions.facts(), token_map)

    engine = CountedEngine(url, api_key=key, token_map=token_map)
    try:
        await engine.prove(believe)
        yield engine
    finally:
        await engine.aclose()
