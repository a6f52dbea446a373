"""What processing ids while a tool works gains, and what it costs others: the embedded engine, SmolLM2, one thread.

`python -m bench.prefill` writes `results/prefill.json` and the table of docs/operate.md; `--short` runs all of it once
and writes nothing. Everything goes through the gateway's own engine route and slots; conversations are random ids, so
that a conversation finds nothing in the cache but what it has left there itself. Both ways take turns.
"""

import argparse
import asyncio
import random
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import anyio

from bench.record import summary, write
from gateway.config import EngineConfig, GatewayConfig, TokensConfig
from gateway.engine.interface import Generated, GenerateRequest, GenerationEnd, Sampling, Timings
from gateway.engine.slots.prefill import PIECE, Prefill
from gateway.engine.start.readiness import EngineRoute
from gateway.engine.start.ready_engine import ReadyEngine

SCAFFOLDS: Final = (11, 50, 200)
PROMPT: Final = 60
RESULT: Final = 20
RUNNING: Final = 40
"""Ids of the other generation."""
LETTERS: Final = "root ::= [a-zA-Z ,.0-9]+"
"""Allows neither an end of turn nor a character of several tokens."""
PAGE: Final = Path(__file__).parents[1] / "docs" / "operate.md"
TABLE: Final = re.compile(
    r"(?<=<!-- prefill: python -m bench.prefill; a test compares -->\n).*?(?=<!-- /prefill -->)", re.S
)


@dataclass(frozen=True, slots=True)
class Ran:
    """One generation: when each id came, and the engine's account."""

    ids: list[int]
    began: float
    times: list[float]
    timings: Timings

    @property
    def first_ms(self) -> float:
        """The time from the request to the first id."""
        return (self.times[0] - self.began) * 1000

    @property
    def gap_ms(self) -> float:
        """The longest time between two ids."""
        return max(b - a for a, b in zip(self.times, self.times[1:], strict=False)) * 1000


class Bench:
    """The engine, and conversations that are new to it."""

    def __init__(self, ready: ReadyEngine, prefill: Prefill) -> None:
        self.ready = ready
        self.prefill = prefill
        self._random = random.Random(7)

    def new(self, count: int) -> list[int]:
        """Return ids of ordinary text."""
        return [self._random.randrange(1000, 40_000) for _ in range(count)]

    async def run(self, prompt: list[int], most: int, began: Callable[[], object] = lambda: None) -> Ran:
        """Generate; `began` is called at the tenth id."""
        asked, ids, times = perf_counter(), list[int](), list[float]()
        end: GenerationEnd | None = None
        async with self.ready.slots.take(prompt, "bench") as place:
            request = GenerateRequest(prompt, place.pinned, most, Sampling(0, seed=1), LETTERS)
            async with self.ready.engine.generate(request) as events:
                async for event in events:
                    if isinstance(event, Generated):
                        ids += event.ids
                        times.append(perf_counter())
                        if len(times) == 10:
                            began()
                    else:
                        end = event
            if end is None:
                raise SystemExit("a generation had no end")
            # The last id was sampled, and not processed.
            place.slot.holds([*prompt, *ids[:-1]], at_rest=True, answered=True)
        return Ran(ids, asked, times, end.timings)

    async def conversation(self) -> list[int]:
        """Have a slot hold a conversation whose tool has just been called."""
        prompt = self.new(PROMPT)
        ran = await self.run(prompt, 21)
        return [*prompt, *ran.ids[:-1]]

    async def taken(self) -> None:
        """Wait until a slot is taken."""
        while self.ready.slots.is_idle:
            await anyio.lowlevel.checkpoint()

    async def ahead(self, held: list[int], ids: Sequence[int], over: anyio.Event | None = None) -> int:
        """Process ids ahead of time; return how many."""
        done: list[int] = []
        await self.prefill.run(held, ids, "bench", over or anyio.Event(), lambda count, _: done.append(count))
        return sum(done)


@asynccontextmanager
async def bench() -> AsyncGenerator[Bench]:
    """Start the engine."""
    engine = EngineConfig(kind="embedded", context=4096, slots=2, threads=1, slot_files="off", cache_mib=0)
    route = EngineRoute(GatewayConfig(engine=engine, tokens=TokensConfig()), lambda up, reason: None)
    async with route.running():
        ready = route.ready()
        if ready.prefill is None:
            raise SystemExit("the engine's slots are not ours to choose")
        yield Bench(ready, ready.prefill)


async def hidden(at: Bench, size: int, *, ahead: bool) -> dict[str, float]:
    """Time the result's request after so many ids of the template, which were processed before it or not."""
    held, scaffold, result = await at.conversation(), at.new(size), at.new(RESULT)
    began = perf_counter()
    done = await at.ahead(held, scaffold) if ahead else 0
    took = (perf_counter() - began) * 1000
    if ahead and done != size:
        raise SystemExit(f"{done} ids were processed ahead of time, expected {size}")
    ran = await at.run([*held, *scaffold, *result], 2)
    return {
        "first_ms": ran.first_ms,
        "processed": ran.timings.prompt_n,
        "cached": ran.timings.cache_n,
        "ahead_ms": took,
    }


async def beside(at: Bench, size: int, *, ahead: bool) -> dict[str, float]:
    """Time another generation, during which so many ids are to be processed ahead of time."""
    held = await at.conversation()
    running, over, done, runs = anyio.Event(), anyio.Event(), list[int](), list[Ran]()

    async def prefill() -> None:
        await running.wait()
        if ahead:
            await at.prefill.run(held, at.new(size), "bench", over, lambda count, _: done.append(count))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(prefill)
        runs.append(await at.run(at.new(20), RUNNING, running.set))
        # The result is there when the other one has ended.
        over.set()
    (ran,) = runs
    return {"gap_ms": ran.gap_ms, "total_ms": (ran.times[-1] - ran.times[0]) * 1000}


async def coming(at: Bench, *, ahead: bool) -> dict[str, float]:
    """Time a generation that arrives just when a piece is being processed, and its gaps while the rest waits."""
    held = await at.conversation()
    over, runs = anyio.Event(), list[Ran]()
    async with anyio.create_task_group() as tasks:
        if ahead:
            tasks.start_soon(at.ahead, held, at.new(200), over)
            await at.taken()
        runs.append(await at.run(at.new(20), RUNNING))
        over.set()
    (ran,) = runs
    return {"first_ms": ran.first_ms, "gap_ms": ran.gap_ms}


async def early(at: Bench, *, ahead: bool) -> dict[str, float]:
    """Time a result that arrives just when the first piece is being processed, after fifty ids of the template."""
    held, scaffold = await at.conversation(), at.new(50)
    over = anyio.Event()
    began = perf_counter()
    async with anyio.create_task_group() as tasks:
        if ahead:
            tasks.start_soon(at.ahead, held, scaffold, over)
            await at.taken()
        over.set()
    ran = await at.run([*held, *scaffold, *at.new(RESULT)], 2)
    return {"waited_ms": (ran.began - began) * 1000, "all_ms": (ran.times[0] - began) * 1000}


async def measured(rounds: int) -> dict[str, Any]:
    """Measure everything, round after round, after one that warms up."""
    ways: dict[str, Callable[..., Any]] = {
        **{f"hidden, {size} ids": partial(hidden, size=size) for size in SCAFFOLDS},
        **{f"beside a generation, {size} ids": partial(beside, size=size) for size in SCAFFOLDS},
        "a generation that comes in a piece": coming,
        "a result that comes in a piece": early,
    }
    samples: dict[str, dict[str, list[dict[str, float]]]] = {name: {"ahead": [], "plain": []} for name in ways}
    async with bench() as at:
        for turn in range(rounds + 1):
            for name, way in ways.items():
                for kind, taken in samples[name].items():
                    sample = await way(at, ahead=kind == "ahead")
                    if turn or rounds == 0:
                        taken.append(sample)
    return {
        name: {
            kind: {key: summary([sample[key] for sample in taken]) for key in taken[0]} for kind, taken in kinds.items()
        }
        for name, kinds in samples.items()
    }


def table(results: dict[str, Any]) -> str:
    """Return the table of the page."""
    lines = [
        "| before the result | the result's request, ids | first id after the result | ahead of time | hidden |",
        "|---|---|---|---|---|",
    ]
    for size in SCAFFOLDS:
        plain, ahead = (results[f"hidden, {size} ids"][kind] for kind in ("plain", "ahead"))
        before, after = plain["first_ms"]["median"], ahead["first_ms"]["median"]
        lines.append(
            f"| {size} ids | {ahead['processed']['median']:.0f} (without: {plain['processed']['median']:.0f}) "
            f"| {after:.0f} ms (without: {before:.0f} ms) | {ahead['ahead_ms']['median']:.0f} ms "
            f"| {before - after:.0f} ms |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure; print the table, and write it with all samples."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="once, and write nothing")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    results = asyncio.run(measured(0 if asked.short else asked.rounds))
    print(table(results))
    for name, kinds in results.items():
        for kind, values in kinds.items():
            print(f"{name}, {kind}:", {key: (value["median"], value["max"]) for key, value in values.items()})
    if not asked.short:
        write("prefill", ("xllamacpp",), {"piece": PIECE, "prompt": PROMPT, "result": RESULT, "rows": results})
        PAGE.write_text(TABLE.sub(lambda _: table(results), PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
