"""A scene on a real engine: the same requests in the same order, whichever engine answers.

Turns a side, a scene and an order into counts and answers. A request arrives when those that end before it in the order
have ended, and waits for its turn; an answer keeps its slot until those that end before it have ended, and those that
begin before that have begun. So each side has the same queue at every moment, however long an answer takes there, and
is asked for one thing at a time, as where answers take seconds and a swap takes milliseconds.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from itertools import pairwise
from time import perf_counter
from typing import Final

import anyio

from bench.cache.engines import Side
from bench.cache.scene import Scene, Start, Talk, talks
from bench.cache.simulated import OWNER, VOCABULARY, Counts
from gateway.engine.interface import Generated, GenerateRequest, Sampling, Timings
from gateway.engine.slots.slot import NO_HINTS, Hints

LETTERS: Final = "root ::= [a-zA-Z ,.0-9]+"
"""Allows neither an end of turn nor a character of several tokens, so that every answer has its full length."""

_TOPS: Final = 20
"""How many of the likeliest ids are searched for the other one."""

Answers = dict[bytes, tuple[list[int], list[int]]]
"""By the digest of a prompt: the prompt, and what was answered."""


@dataclass(slots=True)
class Live:
    """The result of a run."""

    counts: Counts = field(default_factory=Counts)
    answers: Answers = field(default_factory=dict[bytes, tuple[list[int], list[int]]])
    seconds: float = 0.0
    moved: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(slots=True)
class Answer:
    """What an engine generated."""

    ids: list[int] = field(default_factory=list[int])
    tops: list[tuple[tuple[int, float], ...]] = field(default_factory=list[tuple[tuple[int, float], ...]])
    """The likeliest ids at each place with their log-probabilities, if they are asked for."""


async def generate(
    side: Side,
    prompt: list[int],
    most: int,
    tops: int = 0,
    *,
    hints: Hints = NO_HINTS,
    ready: Callable[[], None] = lambda: None,
    until: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint,
) -> tuple[Answer, Timings]:
    """Generate one answer, as the gateway's agent does. `ready` is called when it has a slot, which `until` keeps."""
    found, end = Answer(), None
    async with side.table.take(prompt, OWNER, alone=True, hints=hints) as place:
        ready()
        request = GenerateRequest(
            *(prompt, place.pinned, most, Sampling(0, seed=1), LETTERS),
            reuse=place.reuse and side.reuse,
            logprobs=tops > 0,
            top_logprobs=tops,
        )
        async with side.engine.generate(request) as events:
            async for event in events:
                if isinstance(event, Generated):
                    found.ids += event.ids
                    found.tops += event.tops
                else:
                    end = event
        await until()
        place.leaves([*prompt, *found.ids], len(prompt), end, answered=True)
    if end is None or len(found.ids) != most:
        raise SystemExit(f"an answer has {len(found.ids)} ids, expected {most}; nothing was measured")
    return found, end.timings


async def run(sides: Sequence[Side], scene: Scene, order: Sequence[Start]) -> Live:
    """Play a scene; with several sides, conversations are dealt to them in turn."""
    found, all_talks, began = Live(), talks(scene, VOCABULARY), perf_counter()
    ended = [anyio.Event() for _ in order]
    ends = sorted(range(len(order)), key=lambda number: order[number].end)
    earlier = {later: ended[number] for number, later in pairwise(ends)}
    begun = [anyio.Event() for _ in order]

    async def others(number: int) -> None:
        for event, start in zip(begun, order, strict=True):
            if start.begin < order[number].end:
                await event.wait()
        if number in earlier:
            await earlier[number].wait()

    async def ask(number: int, talk: Talk, prompt: list[int]) -> None:
        side = sides[order[number].talk % len(sides)]
        ready, until = begun[number].set, partial(others, number)
        answer, timings = await generate(side, prompt, scene.answer, ready=ready, until=until)
        found.counts.note(talk, len(prompt), timings.cache_n)
        found.answers[digest(prompt)] = (prompt, answer.ids)
        talk.answered(answer.ids)
        ended[number].set()

    async with anyio.create_task_group() as tasks:
        for number, start in enumerate(order):
            for before in range(number):
                if order[before].end <= start.came:
                    await ended[before].wait()
            talk = all_talks[start.talk]
            tasks.start_soon(ask, number, talk, talk.prompt())
    found.seconds = perf_counter() - began
    found.counts.processed += sum(side.engine.beside for side in sides)
    found.moved = sides[0].moved()
    return found


def digest(ids: Sequence[int]) -> bytes:
    """Return the digest that names a prompt."""
    return sha256(repr(ids).encode()).digest()


async def differing(fresh: Side, answers: Answers, known: Answers) -> list[float]:
    """Find the answers that differ from those of an engine that has nothing cached; `known` holds that one's answers.

    Returns for each by how many nats that engine prefers its own id at the first place where they differ.
    """
    margins: list[float] = []
    for name, (prompt, ids) in answers.items():
        if name not in known:
            known[name] = (prompt, (await generate(fresh, prompt, len(ids)))[0].ids)
        own = known[name][1]
        if own != ids:
            place = next(place for place, (one, other) in enumerate(zip(own, ids, strict=True)) if one != other)
            (tops,) = (await generate(fresh, [*prompt, *own[:place]], 1, _TOPS))[0].tops
            told = dict(tops)
            margins.append(told[own[place]] - told.get(ids[place], min(told.values())))
    return margins
