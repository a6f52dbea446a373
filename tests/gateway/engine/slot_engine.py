"""An engine of slots alone: what each holds, who computed it, and files of that. For what decides about them."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gateway.engine.interface import Filled, Moved, shared_prefix
from gateway.engine.slots.allocation import SlotTable
from gateway.engine.slots.engine_speed import Rates
from gateway.engine.slots.slot_directory import SlotDirectory
from gateway.engine.slots.slot_save_restore import Swapper
from gateway.engine.slots.swap_plan import Paging
from gateway.errors import EngineRefused
from gateway.observe.metrics import Metrics

AN_ID = 100
"""Bytes of an id in a file, at the least."""


class FixedRates(Rates):
    """A millisecond an id, ten an id to move: or what a test says."""

    def __init__(self, process: float = 1e-3, move: float = 1e-6) -> None:
        super().__init__()
        self.process, self.move = process, move

    def to_process(self, ids: int) -> float:
        return ids * self.process

    def to_move(self, ids: int) -> float:
        return ids * self.move

    def size(self, ids: int) -> int:
        return ids * AN_ID


@dataclass
class SlotEngine:
    """As a llama.cpp server: the common beginning with what a slot holds is reused, all else is computed."""

    path: Path
    count: int
    slots: list[list[tuple[int, str]]] = field(init=False)
    """Of each slot the ids, and on whose behalf each was computed."""
    busy: set[int] = field(default_factory=set[int])
    done: list[str] = field(default_factory=list[str])
    lies: bool = False
    """Whether it tells another count at a restore."""

    def __post_init__(self) -> None:
        self.slots = [[] for _ in range(self.count)]

    def run(self, slot: int, prompt: Sequence[int], owner: str, *, reuse: bool = True) -> list[str]:
        """Process a prompt. Gives who computed what is reused."""
        held = self.slots[slot]
        shared = min(shared_prefix([n for n, _ in held], list(prompt)), len(prompt) - 1) if reuse else 0
        self.slots[slot] = held[:shared] + [(n, owner) for n in prompt[shared:]]
        return [whose for _, whose in held[:shared]]

    async def at_rest(self, slot: int) -> bool:
        return slot not in self.busy

    def _touch(self, what: str, slot: int) -> None:
        assert slot not in self.busy, f"{what} of a busy slot"
        self.done.append(f"{what} {slot}")

    async def save_slot(self, slot: int, name: str) -> Moved:
        self._touch("save", slot)
        held = self.slots[slot]
        text = json.dumps(held).ljust(AN_ID * len(held))
        file = self.path / name
        try:
            file.touch(mode=0o600)
            file.write_text(text)
        except OSError as error:
            raise EngineRefused(f"the engine answered 500: {error}", 500) from error
        return Moved(len(held), len(text), 0.001)

    async def restore_slot(self, slot: int, name: str) -> Moved:
        self._touch("restore", slot)
        self.slots[slot] = []
        try:
            text = (self.path / name).read_text()
            self.slots[slot] = [(n, whose) for n, whose in json.loads(text)]
        except (OSError, ValueError) as error:
            raise EngineRefused(f"the engine answered 400: {error}", 400) from error
        return Moved(len(self.slots[slot]) + self.lies, len(text), 0.001)

    async def erase_slot(self, slot: int) -> None:
        self._touch("erase", slot)
        self.slots[slot] = []

    async def fill_slot(self, slot: int, ids: Sequence[int]) -> Filled:
        self._touch("fill", slot)
        held = self.slots[slot]
        shared = min(shared_prefix([n for n, _ in held], list(ids)), len(ids) - 1)
        whose = held[0][1] if held else ""
        self.slots[slot] = [*held[:shared], *((n, whose) for n in ids[shared:])]
        return Filled(len(ids) - shared, 0.001)


@dataclass
class Bench:
    """A table of such an engine, with its files."""

    engine: SlotEngine
    paging: Paging
    table: SlotTable
    metrics: Metrics

    async def ask(self, prompt: Sequence[int], owner: str = "ada", answer: Sequence[int] = ()) -> list[str]:
        """One generation. Gives who computed what it reused."""
        async with self.table.take(list(prompt), owner) as place:
            number = place.slot.number
            self.engine.busy.add(number)
            reused = self.engine.run(number, prompt, owner, reuse=place.reuse)
            self.engine.slots[number] += [(n, owner) for n in answer[:-1]]
            self.engine.busy.remove(number)
            place.slot.holds([*prompt, *answer], at_rest=True, answered=True)
        return reused

    def metric(self, name: str) -> float:
        lines = self.metrics.render().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


@asynccontextmanager
async def bench(
    directory: SlotDirectory, model: Path, count: int = 2, *, rates: Rates | None = None, isolate: bool = False
) -> AsyncGenerator[Bench]:
    """An engine that has just been started, whose files are in this directory."""
    paging = Paging(directory.limit, rates or FixedRates(), isolate=isolate)
    yield await restarted(paging, directory, model, count, isolate=isolate)


async def restarted(
    paging: Paging, directory: SlotDirectory, model: Path, count: int = 2, *, isolate: bool = False
) -> Bench:
    """Another engine for the same files."""
    engine, metrics = SlotEngine(directory.path, count), Metrics()
    swapper = Swapper(engine, directory, paging, metrics.slot_files)
    await swapper.adopt(model, {"context": 100})
    table = SlotTable(count, at_rest=engine.at_rest, isolate=isolate, swapper=swapper)
    return Bench(engine, paging, table, metrics)
