"""What whole-conversation policies would find that know more than a gateway can: how much there is to be had.

Pure. Belady's rule with a way past: of the conversations that do not run, those are in memory that come back soonest,
and one that comes back later than all of them is not let in. What a conversation shares with others is there always, at
its cost, or never: the better of the two. The best policy knows when each conversation comes back. The informed one
knows who waits for a slot, and how long tools take, but not how long this one takes, nor that a conversation is over.
"""

import heapq
import math
from collections.abc import Callable, Sequence
from typing import Final

from bench.cache.scene import LEAST_TOOL, LONGEST_TOOL, Scene, Start

_NEVER: Final = math.inf

_Back = Callable[[int, Start], float]
"""In how many seconds from the start of a request the conversation comes back whose last one has this place."""


def best_reuse(scene: Scene, order: Sequence[Start], limit: int) -> float:
    """The part of the ids that come back that is found again, with so many ids of memory besides the slots."""
    following = _next(order)

    def back(place: int, now: Start) -> float:
        return following[place] - now.begin

    return _better(scene, order, limit, back)


def informed_reuse(scene: Scene, order: Sequence[Start], limit: int) -> float:
    """The same, where only those that wait are known, and how long tools take on the average."""
    following, came = _next(order), _next(order, came=True)

    def back(place: int, now: Start) -> float:
        if came[place] <= now.begin:
            return following[place] - now.begin
        # Later than all that wait.
        return 1e6 + _still_away(now.begin - order[place].end)

    return _better(scene, order, limit, back)


def _still_away(away: float) -> float:
    """Seconds that a tool still takes on the average that has taken so many."""
    if away >= LONGEST_TOOL:
        return _NEVER
    least = max(away, LEAST_TOOL)
    return (LONGEST_TOOL - least) / math.log(LONGEST_TOOL / least) - away


def _better(scene: Scene, order: Sequence[Start], limit: int, back: _Back) -> float:
    return max(_reuse(scene, order, limit, back, kept=kept) for kept in (False, True))


def _reuse(scene: Scene, order: Sequence[Start], limit: int, back: _Back, *, kept: bool) -> float:
    shape = scene.shape
    room = limit - (shape.preambles * shape.preamble if kept else 0)
    if room < 0:
        return 0.0
    memory: dict[int, int] = {}
    """Conversation: the place of its last request."""
    held: dict[int, int] = {}
    running: list[tuple[float, int]] = []
    reused = size = 0
    for number, start in enumerate(order):
        while running and running[0][0] <= start.begin:
            _, place = heapq.heappop(running)
            memory[order[place].talk] = place
            while sum(held[talk] for talk in memory) > room:
                del memory[max(memory, key=lambda talk: back(memory[talk], start))]
        if start.talk in held:
            size += held[start.talk]
            reused += held[start.talk] if memory.pop(start.talk, None) is not None else shape.preamble * kept
            held[start.talk] += scene.added + scene.answer
        else:
            # The last id of an answer is sampled and not processed.
            held[start.talk] = shape.preamble + shape.own + scene.answer - 1
        heapq.heappush(running, (start.end, number))
    return reused / size if size else 1.0


def _next(order: Sequence[Start], *, came: bool = False) -> list[float]:
    """For each request, when the next one of that conversation begins, or comes."""
    last: dict[int, int] = {}
    following = [_NEVER] * len(order)
    for place, start in enumerate(order):
        if start.talk in last:
            following[last[start.talk]] = start.came if came else start.begin
        last[start.talk] = place
    return following
