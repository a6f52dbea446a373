"""What is said of a request whose engine had cached its conversation: how much of that was lost, and to what."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from math import isnan
from typing import Any

import pytest

from gateway.agent import NO_TOOL, Deferral
from gateway.agent.calls.runner import FinishedCall
from gateway.agent.events import GenerationFinished, ToolFinished
from gateway.agent.figures import Reuse, changes_of, note_call, note_generation, reuse_of
from gateway.context.compose.conversation import Conversation, Observer
from gateway.context.memory import CallRecord, ContextChange, GenerationRecord, Miss
from gateway.context.memory.remembered import NO_ENGINE
from gateway.engine.interface import Capabilities, Timings
from gateway.engine.pool.pool import Stay
from gateway.observe.trajectories import Sampled
from gateway.proxy.caller import Principal
from gateway.proxy.result_tokens import IdPiece

from .test_deferred_tools import DEFERRED, PAINT, SING, TOOLS
from .test_memory import QUESTION, answered

pytestmark = pytest.mark.anyio
MORE = {"role": "user", "content": "And then?"}


@pytest.fixture
async def continued(open_stage: Callable[..., Any]) -> AsyncGenerator[Conversation]:
    """A conversation that continues from an answer."""
    async with open_stage("One two three four five.") as stage:
        first = await answered(stage, QUESTION)
        yield await stage.agent.open([*QUESTION, first, MORE], principal=Principal("a"))


def held_of(conversation: Conversation) -> int:
    assert conversation.continuation.before is not None
    return conversation.continuation.before.held


def with_capabilities(conversation: Conversation, can: Capabilities) -> None:
    ready = conversation.ready
    conversation.stay = Stay(replace(ready, facts=replace(ready.facts, can=can)))


@pytest.mark.parametrize("miss", [None, Miss("client_changed", 7, 1)])
async def test_conversation_that_continues_from_nothing_lost_what_the_memory_says(
    continued: Conversation, miss: Miss | None
) -> None:
    continued.continuation = replace(continued.continuation, before=None, miss=miss)

    assert reuse_of(continued, 5, 5) == (Reuse(0, None, None) if miss is None else Reuse(7, "client_changed", miss))


@pytest.mark.parametrize(
    ("can", "missing"),
    [
        (Capabilities(), 1),
        (Capabilities(reuse_block=16), 16),
        (Capabilities(reuse_block=16, rewind="window"), 8),
        (Capabilities(rewind="checkpoints"), 8),
    ],
)
async def test_cache_may_lack_its_last_block_or_the_tokens_behind_its_last_checkpoint(
    continued: Conversation, can: Capabilities, missing: int
) -> None:
    held = held_of(continued)
    with_capabilities(continued, can)

    assert reuse_of(continued, held - missing + 1, 0) == Reuse(held)
    assert reuse_of(continued, held - missing, 0) == Reuse(held, "slot_taken")
    assert reuse_of(continued, held + 5, 0) == Reuse(held)


@pytest.mark.parametrize(("missing", "reason"), [(0, "engine_rewound"), (1, "engine_rewound"), (2, "slot_taken")])
async def test_slot_that_held_all_but_the_last_token_was_rewound(
    continued: Conversation, missing: int, reason: Any
) -> None:
    held = held_of(continued)

    assert reuse_of(continued, 0, held - missing) == Reuse(held, reason)


@pytest.mark.parametrize(
    ("engine", "name", "reason"),
    [
        (NO_ENGINE, "engine", "replica_moved"),
        (12_345, "engine", "engine_restarted"),
        (12_345, "other", "engine_moved"),
    ],
)
async def test_another_engine_is_one_that_was_started_again_or_another_one(
    continued: Conversation, engine: int, name: str, reason: Any
) -> None:
    before = continued.continuation.before
    assert before is not None
    moved = replace(before, engine=engine, engine_name=name)
    continued.continuation = replace(continued.continuation, before=moved)

    assert reuse_of(continued, 0, before.held) == Reuse(before.held, reason)


async def test_prompt_that_keeps_less_than_was_cached_was_rewritten(continued: Conversation) -> None:
    held = held_of(continued)
    kept = [replace(continued.continuation, kept=kept) for kept in (held - 1, held)]
    told = []
    for continued.continuation in kept:
        told.append(reuse_of(continued, held, held))

    assert told == [Reuse(held, "template_rewrote"), Reuse(held)]


async def test_reasoning_that_a_template_drops_is_named(open_stage: Callable[..., Any]) -> None:
    async with open_stage("<think>\nHm.\n</think>\n\nYes.") as stage:
        first = await answered(stage, QUESTION)
        conversation = await stage.agent.open([*QUESTION, first, MORE], principal=Principal("a"))
    conversation.continuation = replace(conversation.continuation, kept=held_of(conversation) - 1)

    assert reuse_of(conversation, 0, 0) == Reuse(held_of(conversation), "reasoning_dropped")


async def test_changes_are_those_of_the_request_and_the_definitions_that_it_defers_and_loads(
    open_stage: Callable[..., Any],
) -> None:
    change = ContextChange("cleared", 5, 1)
    async with open_stage(context=9000, suggested_tools=0) as stage:
        conversation = await stage.agent.open(QUESTION, client_tools=TOOLS, deferral=DEFERRED, changes=[change])
        sizes = [conversation.asked.digests.of(tool)[1] for tool in (PAINT, SING)]
        deferred = changes_of(conversation)
        conversation.define([PAINT])
        loaded = changes_of(conversation)
        plain = await stage.agent.open(QUESTION, changes=[change])

    assert deferred == (ContextChange("deferred", sum(sizes) // 4, 2), change)
    assert loaded == (
        ContextChange("deferred", sizes[1] // 4, 1),
        ContextChange("loaded", sizes[0] // 4, 1),
        change,
    )
    assert changes_of(plain) == (change,)


async def test_first_definition_of_a_conversation_counts_as_loaded_too(open_stage: Callable[..., Any]) -> None:
    deferral = Deferral({"paint"}, found={"paint"})
    async with open_stage(suggested_tools=0) as stage:
        conversation = await stage.agent.open(QUESTION, client_tools=[PAINT], deferral=deferral, gateway_tools=NO_TOOL)
        conversation.define([PAINT])
        size = conversation.asked.digests.of(PAINT)[1]

    assert changes_of(conversation) == (ContextChange("loaded", size // 4, 1),)


STATS = GenerationFinished(
    prompt=100,
    generated=2,
    reinjected_leaf=0,
    reinjected_shim=0,
    scaffold=0,
    held=60,
    timings=Timings(40, 50, 2, 0.5, 0.25),
    ttft=0.125,
    guessed=True,
    reasoning=1,
    prefilled=7,
    prefilled_seconds=0.0625,
)
CALLED = FinishedCall(
    (IdPiece((1, 2), "leaf"),), ToolFinished("call_1", "say", "{}", "text", "leaf", 2, 3, True, 0.5), 0.25, "up"
)


async def test_records_hold_the_figures_while_somebody_watches(continued: Conversation) -> None:
    continued.observer = Observer(watched=True, sampled=[Sampled(9, 2, None, False, (-1.0, None, -3.0))])
    note_generation(continued, STATS)
    note_generation(continued, replace(STATS, timings=None))
    note_call(continued, CALLED)

    first, second = continued.observer.generations
    assert (first.logprobs[0], isnan(first.logprobs[1]), len(first.logprobs)) == (-1.0, True, 2)
    assert first == GenerationRecord(
        start=9,
        count=2,
        reasoning=1,
        held=60,
        cached=50,
        prefilled=7,
        prefilled_seconds=0.0625,
        first=0.125,
        prompt_seconds=0.5,
        generate_seconds=0.25,
        guessed=True,
        logprobs=first.logprobs,
    )
    assert (second.cached, second.prompt_seconds, second.generate_seconds) == (None, None, None)
    assert continued.observer.calls == [CallRecord("call_1", "say", "up", 0.5, 2, 3, True)]


@pytest.mark.parametrize("observer", [None, Observer(watched=False)])
async def test_nothing_is_recorded_while_nobody_watches(continued: Conversation, observer: Observer | None) -> None:
    continued.observer = observer
    note_generation(continued, STATS)
    note_call(continued, CALLED)

    assert observer is None or observer.generations == observer.calls == []
