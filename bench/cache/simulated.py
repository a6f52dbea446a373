"""A scene on the gateway's paging alone: ids that would be reused, without an engine, files or time.

Turns a scene, an order and a limit into counts. It carries out plans as `gateway/engine/slots/slot_save_restore.py`
does.
"""

import heapq
import random
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from typing import Final

from bench.cache.scene import Scene, Start, Talk, talks
from gateway.engine.interface import shared_prefix
from gateway.engine.slots.engine_speed import Rates
from gateway.engine.slots.slot import Slot
from gateway.engine.slots.slot_directory import SlotFile
from gateway.engine.slots.swap_plan import Paging

VOCABULARY: Final = 49_152
OWNER: Final = "bench"


class ModelRates(Rates):
    """What SmolLM2 takes on a core: 1.6 ms per prompt id, 23 KB per id, 1.5 s per gigabyte moved and digested."""

    def to_process(self, ids: int) -> float:
        return ids * 1.6e-3

    def to_move(self, ids: int) -> float:
        return 2e-3 + ids * 23_040 * 1.5e-9 if ids else 0.0


class IdRates(ModelRates):
    """The same rates, with one byte per id."""

    def size(self, ids: int) -> int:
        return ids


@dataclass(slots=True)
class Counts:
    """How many ids a run has counted."""

    held: int = 0
    """Ids of each conversation that came back which the engine had when its last answer ended."""
    reused: int = 0
    """How many of those were reused."""
    processed: int = 0
    """Ids processed in all, including first turns."""

    def note(self, talk: Talk, asked: int, reused: int) -> None:
        """Count one answer, before the talk is told of it."""
        self.processed += asked - reused
        if talk.turn:
            self.held += talk.held
            self.reused += min(reused, talk.held)


class PagedSlots:
    """The slots of an engine, swapped by a `Paging`."""

    def __init__(self, paging: Paging, slots: Iterable[Slot]) -> None:
        self.paging = paging
        self.slots = list(slots)
        self.moved = 0
        """Ids that have been saved or restored so far."""
        self._names = count()

    def take(self, free: Sequence[Slot], prompt: list[int]) -> tuple[Slot, int]:
        """Return one of the free slots to a prompt; returns it, and how many ids the prompt finds there."""
        slot = self.paging.choose(free, prompt, OWNER)
        slot.used = next(self._names)
        found = self._prepared(slot, prompt)
        slot.holds([], at_rest=False, answered=False)
        slot.owner = OWNER
        return slot, found

    def _prepared(self, slot: Slot, prompt: list[int]) -> int:
        plan = self.paging.plan(slot, prompt, OWNER)
        held = slot.ids[:-1] if slot.answered else []
        if plan.own is not None:
            plan.own.readers += 1
        if plan.save:
            self._save(slot, slot.ids, len(held), shared=False)
        self.paging.take(slot.number, plan, OWNER)
        if plan.own is not None:
            plan.own.readers -= 1
        if plan.restore is not None and plan.restore in self.paging.kept.files:
            held = plan.restore.ids
            self.moved += len(held)
        if plan.beginning:
            held = prompt[: plan.beginning]
            self._save(slot, held, len(held), shared=True)
        return min(shared_prefix(held, prompt), len(prompt) - 1)

    def _save(self, slot: Slot, ids: list[int], held: int, *, shared: bool) -> None:
        """Make room for all that the slot is known to hold; the engine has not processed the last id of an answer."""
        rates, kept = self.paging.rates, self.paging.kept
        if kept.make_room(ids, OWNER, rates.size(len(ids))) is not None:
            name, size = str(next(self._names)), rates.size(held)
            kept.add(SlotFile(name, ids[:held], OWNER, size, "", held, shared), None if shared else slot.number)
            self.moved += held


class Simulated(PagedSlots):
    """The same for a given order, in which the length of each generation is known."""

    def __init__(self, paging: Paging, slots: Iterable[Slot]) -> None:
        super().__init__(paging, slots)
        self._running: list[tuple[float, int, Slot, list[int]]] = []

    def until(self, time: float) -> list[Slot]:
        """Return the free slots when all that end before `time` have ended; at least one."""
        while self._running and (self._running[0][0] <= time or len(self._running) == len(self.slots)):
            _, _, slot, ids = heapq.heappop(self._running)
            slot.holds(ids, at_rest=True, answered=True)
        busy = [slot.number for _, _, slot, _ in self._running]
        return [slot for slot in self.slots if slot.number not in busy]

    def ask(self, start: Start, prompt: list[int], answer: list[int]) -> int:
        """Run one generation; returns how many ids it finds."""
        slot, found = self.take(self.until(start.begin), prompt)
        heapq.heappush(self._running, (start.end, slot.used, slot, [*prompt, *answer]))
        return found


def simulate(scene: Scene, order: Sequence[Start], limit: int) -> Counts:
    """Run a scene with room for `limit` ids in files."""
    drawn, counts = random.Random(0), Counts()
    engine = Simulated(Paging(limit, IdRates()), map(Slot, range(scene.slots)))
    all_talks = talks(scene, VOCABULARY)
    waiting: deque[tuple[list[int], ExitStack]] = deque()
    for place, start in enumerate(order):
        # Those that have arrived by now are waiting, including this one.
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
