"""A real engine with a host cache: what a request for a busy slot does to a running answer, and that we make none."""

import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator

import anyio
import pytest

from gateway.engine.embedded.engine_process import packaged_model
from gateway.engine.interface import Generated, GenerateRequest, GenerationEnd, Sampling
from gateway.engine.slots.allocation import SlotTable
from gateway.engine.wire.llama_cpp_client import LlamaCpp
from leaf_sdk.vocab import TokenMap

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

GREEDY = Sampling(temperature=0, seed=1)
LONG = 60


@pytest.fixture(scope="module")
def cached_url() -> Iterator[str]:
    """Two slots and 512 MiB for what they held."""
    place = {"model": str(packaged_model()), "host": "127.0.0.1", "port": 0, "cache_mib": 512}
    command = [
        *(sys.executable, "-m", "gateway.engine.embedded.child_process"),
        json.dumps({**place, "context": 2048, "slots": 2, "threads": 1, "chosen": True}),
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        yield child.stdout.readline().decode().strip()
        child.kill()


@pytest.fixture
async def engine(cached_url: str) -> AsyncGenerator[LlamaCpp]:
    client = LlamaCpp(cached_url)
    yield client
    await client.aclose()


class Story:
    """One generation, step by step."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.end: GenerationEnd | None = None
        self.begun = anyio.Event()

    async def run(self, engine: LlamaCpp, prompt: list[int], slot: int | None, most: int) -> "Story":
        async with engine.generate(GenerateRequest(prompt, slot, most, GREEDY, grammar=ENDLESS)) as events:
            async for event in events:
                if isinstance(event, Generated):
                    self.ids += event.ids
                    if len(self.ids) >= 4:
                        self.begun.set()
                else:
                    self.end = event
        return self


ENDLESS = "root ::= [a-zA-Z ,.0-9]+"
"""Neither an end of turn nor a character of several tokens, so that every answer is as long as it may be."""


def chat(model_map: TokenMap, text: str) -> list[int]:
    return model_map.encode(f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n", specials=True)


@pytest.fixture
def fisherman(model_map: TokenMap) -> list[int]:
    return chat(model_map, "Tell me a long story about an old fisherman and his boat.")


@pytest.fixture
def cities(model_map: TokenMap) -> list[int]:
    return chat(model_map, "List the largest cities of the world with their number of inhabitants, as many as you can.")


async def test_request_for_a_busy_slot_puts_another_conversation_into_a_running_answer(
    engine: LlamaCpp, model_map: TokenMap, fisherman: list[int], cities: list[int]
) -> None:
    """The danger itself, so that we notice when llama.cpp has mended it."""
    alone = await Story().run(engine, fisherman, 1, LONG)
    other = await Story().run(engine, cities, 0, 4)
    # Takes the slot, so that the cities move to the host cache.
    await Story().run(engine, model_map.encode("Nothing that stood anywhere before"), 0, 1)
    running = Story()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(running.run, engine, fisherman, 0, LONG)
        await running.begun.wait()
        await Story().run(engine, [*cities, *other.ids], 0, 4)

    assert running.end is not None
    assert running.ids[:4] == alone.ids[:4]
    assert running.ids != alone.ids


@pytest.mark.parametrize("gateways", ["one that has it alone", "two that do not"])
async def test_gateways_run_into_it_neither_alone_nor_in_pairs(
    cached_url: str, model_map: TokenMap, fisherman: list[int], cities: list[int], gateways: str
) -> None:
    first = LlamaCpp(cached_url)
    second = first if gateways.startswith("one") else LlamaCpp(cached_url)
    ours_alone = [SlotTable(2, at_rest=first.is_at_rest)] * 2
    tables = ours_alone if second is first else [SlotTable(2), SlotTable(2)]

    async def story(number: int, prompt: list[int], most: int, running: Story | None = None) -> Story:
        told = running or Story()
        engine = (first, second)[number]
        async with tables[number].take(prompt, "ada") as place:
            await told.run(engine, prompt, place.pinned, most)
            place.slot.holds([*prompt, *told.ids], at_rest=True, answered=True)
        return told

    alone = await story(0, fisherman, LONG)
    other = await story(1, cities, 4)
    for filler in ("Nothing that stood anywhere", "Something else altogether"):
        await story(1, model_map.encode(filler), 1)
    running = Story()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(story, 0, fisherman, LONG, running)
        await running.begun.wait()
        for _ in range(3):
            await story(1, [*cities, *other.ids], 4)
            await story(1, model_map.encode("Nothing that stood anywhere"), 1)
    await first.aclose()
    await second.aclose()

    assert running.ids == alone.ids


async def test_slot_that_was_given_up_is_named_again_only_at_rest(
    engine: LlamaCpp, fisherman: list[int], cities: list[int]
) -> None:
    table = SlotTable(1, at_rest=engine.is_at_rest)
    alone = await Story().run(engine, cities, 1, 12)
    for _ in range(3):
        async with table.take(fisherman, "ada") as place:
            async with engine.generate(
                GenerateRequest(fisherman, place.pinned, 500, GREEDY, grammar=ENDLESS)
            ) as events:
                await anext(aiter(events))
            place.slot.holds(fisherman, at_rest=False, answered=True)
        async with table.take(cities, "ada") as place:
            told = await Story().run(engine, cities, place.pinned, 12)
            place.slot.holds([*cities, *told.ids], at_rest=True, answered=True)
        assert told.ids == alone.ids


async def test_slot_that_the_engine_chose_is_read_from_its_answer(engine: LlamaCpp, cities: list[int]) -> None:
    told = await Story().run(engine, cities, None, 4)

    assert told.end is not None
    assert told.end.slot in (0, 1)


async def test_many_conversations_on_few_slots_reuse_all_that_they_had(engine: LlamaCpp, model_map: TokenMap) -> None:
    """With a preamble that is most of each, where a stock server reuses the preamble alone."""
    table = SlotTable(2, at_rest=engine.is_at_rest)
    preamble = model_map.encode("You may call these tools: " + ", ".join(f"tool{n} of the house" for n in range(12)))
    talks = [[*preamble, *model_map.encode(f" Conversation number {n} begins with these words.")] for n in range(5)]
    held, reused, size = [0] * len(talks), 0, 0
    for turn in range(3):
        for n, talk in enumerate(talks):
            async with table.take(talk, "ada") as place:
                told = await Story().run(engine, talk, place.pinned, 4)
                talk.extend(told.ids)
                place.slot.holds(list(talk), at_rest=True, answered=True)
            assert told.end is not None
            if turn:
                # The last id of a generation is never in the cache.
                reused, size = reused + told.end.timings.cache_n, size + held[n] - 1
            held[n] = len(talk)
            talk.extend(model_map.encode(" And then?"))

    assert reused / size > 0.95
