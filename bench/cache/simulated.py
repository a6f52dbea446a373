"""A scene on the gateway's paging alone: ids that would be found again, without an engine, files or time.

Turns a scene, an order and a limit into counts. It carries plans out as `gateway/engine/swapper.py` does.
"""

import heapq
import random
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from bench.cache.scene import Scene, Start, Talk, talks
from gateway.engine.left_behind import shared_prefix
from gateway.engine.paging import Paging
from gateway.engine.rates import Rates
from gateway.engine.slot import Slot
from gateway.engine.slot_file import SlotFile

VOCABULARY: Final = 49_152
OWNER: Final = "bench"


class ModelRates(Rates):
    """What SmolLM2 takes on a core: 1.6 ms an id of a prompt, 23 KB an id, 1.5 s a gigabyte moved and digested."""

    def to_process(self, ids: int) -> float:
        return ids * 1.6e-3

    def to_move(self, ids: int) -> float:
        return 2e-3 + ids * 23_040 * 1.5e-9 if ids else 0.0


class IdRates(ModelRates):
    """The same, where a byte is an id."""

    def size(self, ids: int) -> int:
        return ids


@dataclass(slots=True)
class Counts:
    """Ids of a run."""

    held: int = 0
    """That the engine had at the last end of each conversation that came back."""
    reused: int = 0
    """Of those."""
    processed: int = 0
    """In all, first turns included."""

    def note(self, talk: Talk, asked: int, reused: int) -> None:
        """One answer: before the talk is told of it."""
        self.processed += asked - reused
        if talk.turn:
            self.held += talk.held
            self.reused += min(reused, talk.held)


@dataclass(slots=True)
class Simulated:
    """The slots of an engine that are swapped by a `Paging`."""

    paging: Paging
    slots: list[Slot]
    running: list[tuple[float, int, Slot, list[int]]] = field(default_factory=list[tuple[float, int, Slot, list[int]]])
    names: Iterator[int] = field(default_factory=count)

    def until(self, time: float) -> list[Slot]:
        """The free slots once all that end before have ended, and one at least."""
        while self.running and (self.running[0][0] <= time or len(self.running) == len(self.slots)):
            _, _, slot, ids = heapq.heappop(self.running)
            slot.holds(ids, at_rest=True, answered=True)
        busy = [slot.number for _, _, slot, _ in self.running]
        return [slot for slot in self.slots if slot.number not in busy]

    def ask(self, start: Start, prompt: list[int], answer: list[int]) -> int:
        """One generation; gives the ids that it finds."""
        slot = self.paging.choose(self.until(start.begin), prompt, OWNER)
        number = next(self.names)
        slot.used = number
        found = self._prepared(slot, prompt)
        slot.holds([], at_rest=False, answered=False)
        slot.owner = OWNER
        heapq.heappush(self.running, (start.end, number, slot, [*prompt, *answer]))
        return found

    def _prepared(self, slot: Slot, prompt: list[int]) -> int:
        plan = self.paging.plan(slot, prompt, OWNER)
        held = slot.ids[:-1] if slot.answered else []
        if plan.own is not None:
            plan.own.readers += 1
        if plan.save:
            self._save(slot, held, shared=False)
        self.paging.take(slot.number, plan)
        if plan.own is not None:
            plan.own.readers -= 1
        if plan.restore is not None and plan.restore in self.paging.kept.files:
            held = plan.restore.ids
        if plan.beginning:
            held = prompt[: plan.beginning]
            self._save(slot, held, shared=True)
        return min(shared_prefix(held, prompt), len(prompt) - 1)

    def _save(self, slot: Slot, ids: list[int], *, shared: bool) -> None:
        size = self.paging.rates.size(len(ids))
        if self.paging.kept.make_room(ids, OWNER, size) is not None:
            file = SlotFile(str(next(self.names)), list(ids), OWNER, size, "", len(ids), shared)
            self.paging.kept.add(file, None if shared else slot.number)


def simulate(scene: Scene, order: Sequence[Start], limit: int) -> Counts:
    """Run a scene with files of so many ids."""
    drawn, counts = random.Random(0), Counts()
    engine = Simulated(Paging(limit, IdRates()), [Slot(number) for number in range(scene.slots)])
    all_talks = talks(scene, VOCABULARY)
    waiting: deque[tuple[list[int], ExitStack]] = deque()
    for place, start in enumerate(order):
        # Those that have come by now wait, this one among them.
        for later in order[place + len(waiting) :]:
            if later.came > start.begin:
                break
            prompt, stack = all_talks[later.talk].prompt(), ExitStack()
            stack.enter_context(engine.paging.kept.awaiting(prompt, OWNER))
            waiting.append((prompt, stack))
        talk, (prompt, stack) = all_talks[start.talk], waiting.popleft()
        answer = drawn.choices(range(VOCABULARY), k=scene.answer)
        stack.close()
        counts.note(talk, len(prompt), engine.ask(start, prompt, answer))
        talk.answered(answer)
    return counts
