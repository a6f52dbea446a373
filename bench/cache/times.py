"""What a swap takes with a real model, and what it saves: SmolLM2 on one thread.

Turns a running side of two slots into milliseconds: to save a slot and to restore it, with the digest of its file; to
the first id of a conversation that comes back; and the longest pause of an answer in the other slot meanwhile.
"""

import random
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any, Final

import anyio

from bench.cache.engines import Side
from bench.cache.live import LETTERS, generate
from bench.cache.simulated import VOCABULARY
from bench.record import summary
from gateway.engine.interface import Generated, GenerateRequest, Sampling

SIZES: Final = (300, 1000)
"""Ids of a conversation."""
WRITTEN: Final = 48
"""Ids of the answer that is watched."""
_EACH: Final = 1000
"""Milliseconds in a second."""


def drawn(count: int, seed: int) -> list[int]:
    """Return `count` ordinary ids."""
    return random.Random(seed).choices(range(1000, VOCABULARY), k=count)


async def swaps(side: Side, rounds: int) -> dict[str, Any]:
    """Time saving and restoring, by number of ids: the engine's own time and the digest, in milliseconds."""
    rows: dict[str, Any] = {}
    if side.directory is None:
        raise SystemExit("this side has no slot files")
    for size in SIZES:
        await _fill(side, 0, drawn(size, size))
        taken: dict[str, list[float]] = {"save_ms": [], "digest_ms": [], "restore_ms": []}
        weight = ids = 0
        for _ in range(rounds):
            name = side.directory.new_name()
            saved = await side.engine.save_slot(0, name)
            began = perf_counter()
            weight, _ = side.directory.measure(name)
            taken["digest_ms"].append((perf_counter() - began) * _EACH)
            restored = await side.engine.restore_slot(0, name)
            side.directory.remove(name)
            taken["save_ms"].append(saved.seconds * _EACH)
            taken["restore_ms"].append(restored.seconds * _EACH)
            ids = saved.ids
        rows[str(size)] = {
            "ids": ids,
            "bytes_an_id": round(weight / ids, 1),
            **{key: summary(values) for key, values in taken.items()},
        }
    return rows


async def coming_back(side: Side, rounds: int) -> dict[str, Any]:
    """Time, in milliseconds, until a conversation whose slot another had taken answers one id: swapped, or not."""
    rows: dict[str, Any] = {}
    for size in SIZES:
        one, others = drawn(size, size + 1), [drawn(50, seed) for seed in range(3)]
        restored: list[float] = []
        processed: list[float] = []
        for _ in range(rounds):
            for prompt in (one, *others):
                await generate(side, prompt, 1)
            began = perf_counter()
            _, timings = await generate(side, [*one, 5], 1)
            if timings.prompt_n > 2:
                raise SystemExit(f"{timings.prompt_n} ids were processed of a conversation that was to be restored")
            restored.append((perf_counter() - began) * _EACH)
            began = perf_counter()
            await _fill(side, 0, [*one, 5], reuse=False)
            processed.append((perf_counter() - began) * _EACH)
        rows[str(size)] = {"restored_ms": summary(restored), "processed_ms": summary(processed)}
    return rows


async def stalls(side: Side, rounds: int) -> dict[str, Any]:
    """Time the longest pause of an answer while the other slot does nothing, is swapped, or processes a prompt."""
    if (directory := side.directory) is None:
        raise SystemExit("this side has no slot files")
    long = drawn(SIZES[-1], 7)
    await _fill(side, 0, long)
    await side.engine.save_slot(0, name := directory.new_name())

    async def swap() -> None:
        other = directory.new_name()
        await side.engine.save_slot(0, other)
        await side.engine.restore_slot(0, name)
        directory.remove(other)

    async def process() -> None:
        await _fill(side, 0, long, reuse=False)

    kinds: dict[str, Callable[[], Awaitable[object]]] = {"nothing": _nothing, "swap": swap, "process": process}
    pauses: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind, work in kinds.items():
            pauses[kind].append(await _longest_pause(side, work))
    directory.remove(name)
    return {"ids": SIZES[-1], **{kind: summary(values) for kind, values in pauses.items()}}


async def _nothing() -> None:
    pass


async def _longest_pause(side: Side, work: Callable[[], Awaitable[object]]) -> float:
    """Return the most milliseconds between two ids of an answer in slot 1, while slot 0 does this work once."""
    last, longest, seen, at_work = perf_counter(), 0.0, 0, anyio.Event()

    async def do() -> None:
        await at_work.wait()
        await work()

    request = GenerateRequest(drawn(20, 3), 1, WRITTEN, Sampling(0, seed=1), LETTERS)
    async with anyio.create_task_group() as tasks, side.engine.generate(request) as events:
        tasks.start_soon(do)
        async for event in events:
            if not isinstance(event, Generated):
                continue
            now = perf_counter()
            longest, last = max(longest, now - last) if seen else 0.0, now
            seen += len(event.ids)
            if seen > WRITTEN // 4:
                at_work.set()
    return longest * _EACH


async def _fill(side: Side, slot: int, prompt: list[int], *, reuse: bool = True) -> None:
    request = GenerateRequest(prompt, slot, 1, Sampling(0, seed=1), LETTERS, reuse=reuse)
    async with side.engine.generate(request) as events:
        async for _ in events:
            pass
