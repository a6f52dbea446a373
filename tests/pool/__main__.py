"""`make pool-check`: a pool of four real engines under load, whole and with engines that are lost, for minutes.

Prints what was found, and ends with 1 where an id was lost or an error had no name.
"""

import argparse
import random
import sys
import time

import anyio

from gateway.config import EngineConfig
from gateway.observe.logs import configure_logging
from tests.pool.engines import addresses, havoc
from tests.pool.load import Outcome, config_of, conversations, run

ENGINES = 4
# Slots for all conversations: what is swapped where there are fewer hangs on how fast the machine is.
ROOMY = EngineConfig(kind="embedded", context=16384, slots=16, threads=1, slot_files="off", cache_mib=0)


async def reuse(count: int) -> tuple[Outcome, Outcome]:
    """One conversation on one engine, and so many on four."""
    async with conversations(config_of({"engine": ROOMY}), tokens=16) as alone:
        await run(alone, 1, 3)
    async with conversations(config_of({f"engine-{n}": ROOMY for n in range(ENGINES)}), tokens=16) as talks:
        await run(talks, count, 3)
    return alone.outcome, talks.outcome


async def chaos(count: int, seconds: float, seed: int) -> tuple[Outcome, int, int]:
    """The same with engines that are lost; gives also how many were, and the prompts that reached a wrong engine."""
    draw = random.Random(seed)
    settings = EngineConfig(kind="embedded", context=2048, slots=2, threads=1, cache_mib=512, exclusive=True)
    async with addresses(ENGINES, settings) as found:
        urls = {f"engine-{n}": EngineConfig(kind="url", url=each.url, exclusive=True) for n, each in enumerate(found)}
        async with conversations(config_of(urls), tokens=24) as talks:
            lost: list[int] = []

            async def lose() -> None:
                lost.append(await havoc(found, seconds, (2, 6), draw, is_open=lambda each: talks.is_open(each.url)))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lose)
                await run(talks, count, 3, until=time.monotonic() + seconds)
        return talks.outcome, lost[0], sum(len(each.intruder.prompts) for each in found)


async def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--conversations", type=int, default=48)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    configure_logging(level="error")
    alone, many = await reuse(asked.conversations)
    print(f"one engine, one conversation: reuse {alone.reuse:.4f}")
    print(f"{ENGINES} engines, {asked.conversations} conversations with tools:")
    print("\n".join(f"  {line}" for line in many.lines()))
    print(f"  of what one engine gives: {many.reuse / alone.reuse:.4f}", flush=True)
    outcome, lost, strayed = await chaos(asked.conversations, asked.minutes * 60, asked.seed)
    print(f"{lost} engines killed, hung or exchanged in {asked.minutes:g} minutes, seed {asked.seed}:")
    print("\n".join(f"  {line}" for line in outcome.lines()))
    print(f"  prompts that reached an engine of another tokenizer: {strayed}")
    for fault in [*many.faults, *outcome.faults, *outcome.unnamed][:20]:
        print(f"! {fault}")
    bad = outcome.left or many.ended or many.faults or outcome.faults or many.unnamed or outcome.unnamed or strayed
    return 1 if bad or many.reuse < 0.98 * alone.reuse else 0


if __name__ == "__main__":
    sys.exit(anyio.run(main))
