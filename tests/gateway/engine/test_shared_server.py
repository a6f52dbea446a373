"""Several gateways on one real llama.cpp server: each finds again what its own conversations have left there."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager

import pytest

from gateway.config import EngineConfig, GatewayConfig
from gateway.engine.embedded.packaged_model import packaged_model
from gateway.engine.interface import Generated, GenerateRequest, GenerationEnd, Sampling
from gateway.engine.start.readiness import EngineRoute
from leaf_sdk.vocab import TokenMap

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

LETTERS = "root ::= [a-zA-Z ,.0-9]+"
"""Neither an end of turn nor a character of several tokens."""
TURNS = 4


@contextmanager
def shared_server(*, cache_mib: int) -> Iterator[str]:
    """Two slots, and as the gateways share it, none of them says which of the two is similar."""
    place = {"model": str(packaged_model()), "host": "127.0.0.1", "port": 0, "cache_mib": cache_mib}
    settings = json.dumps({**place, "context": 1024, "slots": 2, "threads": 1})
    command = [sys.executable, "-m", "gateway.engine.embedded.child_process", settings]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        yield child.stdout.readline().decode().strip()
        child.kill()


def route_to(url: str, own_slots: str | None) -> EngineRoute:
    engine = EngineConfig(kind="url", url=url, own_slots=own_slots, start_timeout=30)
    return EngineRoute(GatewayConfig(engine=engine), lambda up, reason: None)


async def answer(route: EngineRoute, prompt: list[int]) -> tuple[list[int], int]:
    """The ids of a short answer, and how many of the prompt the engine had."""
    ready = route.ready()
    ids: list[int] = []
    found = -1
    async with ready.slots.take(prompt, "ada") as place:
        request = GenerateRequest(prompt, place.pinned, 8, Sampling(0, seed=1), LETTERS, reuse=place.reuse)
        async with ready.engine.generate(request) as events:
            async for event in events:
                if isinstance(event, Generated):
                    ids += event.ids
                elif isinstance(event, GenerationEnd):
                    found = event.timings.cache_n
        place.slot.holds([*prompt, *ids], at_rest=True, answered=True)
    return ids, found


@pytest.mark.parametrize(
    ("own", "cache_mib"), [(("0-0", "1-1"), 0), ((None, None), 512)], ids=["slots of their own", "the server chooses"]
)
async def test_conversations_of_two_gateways_keep_what_they_have_left_in_one_server(
    own: tuple[str | None, str | None], cache_mib: int, model_map: TokenMap
) -> None:
    lost: list[int] = []
    async with AsyncExitStack() as stack:
        url = stack.enter_context(shared_server(cache_mib=cache_mib))
        routes = [route_to(url, slots) for slots in own]
        for route in routes:
            await stack.enter_async_context(route.running())
        talks = [model_map.encode(f"The story of {name} begins. " * 20) for name in ("a bridge", "two clocks")]
        held = [0, 0]
        for turn in range(TURNS):
            for number, route in enumerate(routes):
                ids, found = await answer(route, talks[number])
                if turn:
                    lost.append(held[number] - found)
                # The last one is sampled, and not processed any more.
                held[number] = len(talks[number]) + len(ids) - 1
                talks[number] = [*talks[number], *ids, *model_map.encode(f" And then, in chapter {turn}, ")]

    assert lost == [0] * (2 * (TURNS - 1))


async def test_slots_that_the_server_has_not_are_told(model_map: TokenMap) -> None:
    with shared_server(cache_mib=0) as url:
        route = route_to(url, "1-2")
        async with route.running():
            with pytest.raises(Exception, match=r"engine\.own_slots is 1-2, but the server's slots are 0-1"):
                route.ready()
