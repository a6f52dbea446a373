"""The real vllm-router with program scheduling: it keeps a conversation for as long as the gateway says a tool takes.

`python -m tests.vllm.programs` (after `make vllm-install`). Behind the router stands a server that speaks vLLM's wire
in front of a real llama.cpp server, with room for one conversation of three. What the router knows decides whether it
passes; the counts of tokens are figures, since they depend on who comes first.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import anyio
import httpx2

from gateway.config import EngineConfig, GatewayConfig, TokensConfig
from gateway.engine.embedded.packaged_model import packaged_model
from gateway.engine.interface import GenerateRequest, GenerationEnd, Retention, Sampling
from gateway.engine.start.readiness import EngineRoute
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.engine.wire.vllm_json import PROGRAMS_PATH
from tests.vllm.router import router
from tests.vllm.sessions import stand_ins

TALKS, TURNS, TOOL = 3, 4, 0.5
"""Conversations, generations of each, and the seconds that a tool takes between two."""
SETTINGS = {"max_active_programs_per_target": 1, "metrics_interval_seconds": 0.2}
FLAGS = ("--enable-program-scheduling", "--program-scheduling-config-json", json.dumps(SETTINGS))
Saying = Callable[[str, bool], Retention | None]
"""What is said of a conversation with this name, which goes on or not."""
WAYS: dict[str, Saying] = {
    "nothing is said": lambda name, continues: None,
    "conversations are named": Retention,
    "and how long the tool takes": lambda name, continues: Retention(name, continues, 2.5 if continues else None),
}


async def asked(ready: ReadyEngine, ids: list[int], retention: Retention | None) -> int:
    """How many tokens of a prompt were processed."""
    request = GenerateRequest(ids, None, 1, Sampling(temperature=0), retention=retention)
    async with ready.engine.generate(request) as events:
        (end,) = [event async for event in events if isinstance(event, GenerationEnd)]
    return len(ids) - end.timings.cache_n


async def again(ready: ReadyEngine, way: str) -> int:
    """How many tokens were processed again, of three conversations at a time."""
    lost = 0

    async def talk(number: int) -> None:
        nonlocal lost
        ids: list[int] = []
        for turn in range(TURNS):
            tale = f"{way}: the tale of {number}. " * 8
            more = ready.token_map.encode(tale if turn == 0 else f" And then came chapter {turn}.")
            ids = ids + more
            lost += await asked(ready, ids, WAYS[way](f"{way}{number}", turn < TURNS - 1)) - len(more)
            await anyio.sleep(TOOL)

    async with anyio.create_task_group() as tasks:
        for number in range(TALKS):
            tasks.start_soon(talk, number)
    return lost


def known(routed: str) -> dict[str, Any]:
    """The programs that the router knows, by name: for how many more seconds it keeps each."""
    told = httpx2.get(f"{routed}{PROGRAMS_PATH}").json()
    found = [program for rank in told["ranks"] for program in rank["programs"]]
    return {each["root_program_id"]: each["ttl_remaining_seconds"] or 0 for each in found}


async def measured(routed: str) -> bool:
    """Whether the router does what it is told; writes the figures."""
    engine = EngineConfig(kind="url", url=routed, model=packaged_model(), at_once=TALKS)
    route = EngineRoute(GatewayConfig(engine=engine, tokens=TokensConfig()), lambda up, reason: None)
    async with route.running():
        ready = route.ready()
        ids = ready.token_map.encode("Once upon a time")
        await asked(ready, ids, Retention("kept", continues=True, seconds=600))
        kept = known(routed).get("kept", 0)
        await asked(ready, ids, Retention("kept", continues=False))
        after = known(routed)
        for way in WAYS:
            sys.stdout.write(f"{way}: {await again(ready, way)} tokens processed again\n")
    sys.stdout.write(f"kept while its tool runs: {kept > 60}; released at the end: {'kept' not in after}\n")
    return ready.facts.can.retention and kept > 60 and "kept" not in after


def main() -> int:
    """Ends with 1 where the router does not do what it is told."""
    with stand_ins(1, slots=1) as urls, router(*urls, policy="consistent_hash", flags=FLAGS) as routed:
        return 0 if anyio.run(measured, routed) else 1


if __name__ == "__main__":
    raise SystemExit(main())
