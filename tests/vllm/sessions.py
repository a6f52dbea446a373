"""The real vllm-router with `consistent_hash`: conversations find their cache by the session that requests name.

`python -m tests.vllm.sessions` (after `make vllm-install`). Behind the router stand two servers that speak vLLM's wire
in front of real llama.cpp servers, each with room for all conversations, so that nothing is lost but by the router.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import anyio

from gateway.config import EngineConfig, GatewayConfig, TokensConfig
from gateway.engine.embedded.packaged_model import packaged_model
from gateway.engine.interface import GenerateRequest, GenerationEnd, Sampling
from gateway.engine.pool.engine_choice import key_of
from gateway.engine.start.readiness import EngineRoute
from tests.conftest import vllm_wire
from tests.standins.vllm_wire_over_llama_cpp import BLOCK
from tests.vllm.router import router

TALKS, TURNS = 8, 3


@contextmanager
def stand_ins(count: int) -> Iterator[list[str]]:
    """The addresses of so many servers with a slot for each conversation."""
    place = {"model": str(packaged_model()), "host": "127.0.0.1", "port": 0}
    settings = json.dumps({**place, "context": 512 * TALKS, "slots": TALKS, "threads": 1})
    command = [sys.executable, "-m", "gateway.engine.embedded.child_process", settings]
    with ExitStack() as stack:
        urls: list[str] = []
        for _ in range(count):
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            child = stack.enter_context(subprocess.Popen(command, **pipes))
            stack.callback(child.kill)
            assert child.stdout is not None
            urls.append(stack.enter_context(vllm_wire(child.stdout.readline().decode().strip())))
        yield urls


async def warm(routed: str, *, named: bool) -> int:
    """Requests, of those that continue a conversation, that found all of it but a block."""
    engine = EngineConfig(kind="url", url=routed, model=packaged_model(), at_once=TALKS)
    route = EngineRoute(GatewayConfig(engine=engine, tokens=TokensConfig()), lambda up, reason: None)
    found = 0
    async with route.running():
        ready = route.ready()
        talks = [ready.token_map.encode(f"{named}: the tale of {number}. " * 8) for number in range(TALKS)]
        for turn in range(TURNS):
            for number, ids in enumerate(talks):
                session = key_of(named, number) if named else b""
                request = GenerateRequest(ids, None, 1, Sampling(temperature=0), session=session)
                async with ready.engine.generate(request) as events:
                    (end,) = [event async for event in events if isinstance(event, GenerationEnd)]
                held = len(ids) - len(_more(turn, ready.token_map.encode)) if turn else 0
                found += bool(turn) and end.timings.cache_n > held - BLOCK
                talks[number] = ids + _more(turn + 1, ready.token_map.encode)
    return found


def _more(turn: int, encode: Callable[[str], list[int]]) -> list[int]:
    return encode(f" And then came chapter {turn}, in which much happened.")


def main() -> int:
    """Both ways; ends with 1 where a named conversation did not find what it had."""
    later = TALKS * (TURNS - 1)
    with stand_ins(2) as urls, router(*urls, policy="consistent_hash") as routed:
        found = {named: anyio.run(lambda named=named: warm(routed, named=named)) for named in (True, False)}
    sys.stdout.write(f"requests that found their conversation: {found[True]} of {later}; ")
    sys.stdout.write(f"without naming it: {found[False]} of {later}\n")
    return 0 if found[True] == later else 1


if __name__ == "__main__":
    raise SystemExit(main())
