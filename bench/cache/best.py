"""What policies would find that keep whole conversations and know more than a gateway can: the best that is possible.

Pure. Belady's rule with bypassing: of the conversations that are not running, those that come back soonest are in
memory, and one that comes back later than all of them is not let in. What a conversation shares with others is kept
always, at its cost, or never: the better of the two. The best policy knows when each conversation comes back. The
informed one knows who waits for a slot, and how long tools take on average, but not how long this one takes, nor that a
conversation is over.
"""

import heapq
import math
from collections.abc import Callable, Sequence
from typing import Final

from bench.cache.scene import LEAST_TOOL, LONGEST_TOOL, Scene, Start

_NEVER: Final = math.inf

_Back = Callable[[int, Start], float]
"""Seconds from the start of a request until a conversation comes back, given the place of its last request."""


def best_reuse(scene: Scene, order: Sequence[Start], limit: int) -> float:
    """Return the share of the returning ids that are found, with memory for `limit` ids besides the slots."""
    following = _next(order)

    def back(place: int, now: Start) -> float:
        return following[place] - now.begin

    return _better(scene, order, limit, back)


def informed_reuse(scene: Scene, order: Sequence[Start], limit: int) -> float:
    """Return the same where only those that wait are known, and how long tools take on average."""
    following, came = _next(order), _next(order, came=True)

    def back(place: int, now: Start) -> float:
        if came[place] <= now.begin:
            return following[place] - now.begin
        # Later than all that wait.
        return 1e6 + _still_away(now.begin - order[place].end)

    return _better(scene, order, limit, back)


def _still_away(away: float) -> float:
    """Return how many more seconds a tool takes on average that has already taken so many."""
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
    """By conversation, the place of its last request."""
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
    """Return for each request when the next one of its conversation begins, or arrives."""
    last: dict[int, int] = {}
    following = [_NEVER] * len(order)
    for place, start in enumerate(order):
        if start.talk in last:
            following[last[start.talk]] = start.came if came else start.begin
        last[start.talk] = place
    return following
