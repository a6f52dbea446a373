"""One simulated engine: slots that are swapped to files, requests that wait, and passes that all requests share.

The gateway's own paging decides what it holds (`bench/cache/simulated.py` carries out its plans), on ids that stand for
a `grain` of ids each. A pass takes up to 2,048 ids of prompts and writes one id of each answer, as llama.cpp does: a
prompt that is processed keeps the others waiting. Has no clock: the time is passed in.
"""

from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from bench.cache.simulated import OWNER, PagedSlots
from bench.scaling.costs import Costs, SimulatedRates
from bench.scaling.traces import Conversation
from gateway.engine.slots.slot import Slot
from gateway.engine.slots.swap_plan import Paging

_BATCH: Final = 2048
"""The most ids of prompts that a pass takes: llama.cpp's `n_batch`."""
_NEVER: Final = float("inf")


@dataclass(slots=True, eq=False)
class Request:
    """One request in progress, or the rest of one whose answer is continued elsewhere."""

    conversation: Conversation
    turn: int
    prompt: int
    answered: int
    """Ids still to be written when it arrives."""
    came: float
    gateway: int = 0
    engine: str = ""
    slot: Slot | None = None
    ready: float = _NEVER
    """When the ids that its prompt continues are in its slot."""
    reused: int = 0
    processed: int = 0
    """Ids processed by all engines that it came to."""
    moved: int = 0
    """Ids that are saved or restored before it."""
    left: int = 0
    """Ids of its prompt that have not been processed yet."""
    written: int = 0
    first: float | None = None
    """When its first token was written."""
    waits: ExitStack = field(default_factory=ExitStack)

    @classmethod
    def of(cls, conversation: Conversation, turn: int, came: float) -> "Request":
        """Make a conversation's request."""
        return cls(conversation, turn, conversation.prompt(turn), conversation.turns[turn].answered, came)

    def rest(self) -> "Request":
        """Return what another engine has to do if this one is lost: the ids already written become prompt."""
        prompt, answered = self.prompt + self.written, self.answered - self.written
        return Request(
            *(self.conversation, self.turn, prompt, answered, self.came), processed=self.processed, first=self.first
        )


@dataclass(frozen=True, slots=True)
class Size:
    """How large an engine is."""

    slots: int = 4
    cache: int = 40_000
    """Ids in its slot files."""
    grain: int = 8
    """How many ids each id that the paging sees stands for: coarser, but decided sooner."""


class Cache:
    """What an engine holds, and who has its slots: without time."""

    def __init__(self, size: Size, costs: Costs) -> None:
        self.waiting: deque[Request] = deque()
        self._grain = size.grain
        self._slots = PagedSlots(
            Paging(size.cache // size.grain, SimulatedRates(costs, size.grain)), map(Slot, range(size.slots))
        )
        self._free = list(self._slots.slots)

    def come(self, request: Request) -> list[Request]:
        """Take a request that has arrived; returns those that get a slot."""
        if not self._free:
            kept = self._slots.paging.kept
            request.waits.enter_context(kept.awaiting(self._ids(request, request.prompt), OWNER))
        self.waiting.append(request)
        return self._let_in()

    def end(self, request: Request) -> list[Request]:
        """End a request that has been answered; returns those that get a slot."""
        if (slot := request.slot) is not None:
            slot.holds(self._ids(request, request.prompt + request.answered), at_rest=True, answered=True)
            self._free.append(slot)
        return self._let_in()

    def _let_in(self) -> list[Request]:
        placed: list[Request] = []
        while self._free and self.waiting:
            request = self.waiting.popleft()
            request.waits.close()
            before = self._slots.moved
            request.slot, found = self._slots.take(self._free, self._ids(request, request.prompt))
            self._free.remove(request.slot)
            request.moved = (self._slots.moved - before) * self._grain
            request.reused = self._exact(request, found)
            request.left = request.prompt - request.reused
            request.processed += request.left
            placed.append(request)
        return placed

    def _ids(self, request: Request, count: int) -> list[int]:
        """Return the first `count` ids of a conversation, in grains: everybody's, its kind's, and then its own."""
        talk, opening = request.conversation, request.conversation.opening // self._grain
        shared = talk.preamble // self._grain
        return [-1] * opening + [-2 - talk.kind] * (shared - opening) + [talk.number] * (count // self._grain - shared)

    def _exact(self, request: Request, found: int) -> int:
        """Return how many ids are really found: what is kept ends with a preamble or an answer."""
        if not found or self._grain == 1:
            return found
        # What is kept lacks the last id, which stands for several here.
        reused = max((ids for ids in _ends(request) if ids // self._grain <= found + 1), default=0)
        return min(reused, request.prompt - 1)


class Engine:
    """One engine."""

    def __init__(self, name: str, size: Size, costs: Costs) -> None:
        self.name = name
        self.busy = 0.0
        """Seconds that its passes have taken."""
        self.wakes = _NEVER
        """When something has to be done next."""
        self._costs = costs
        self._cache = Cache(size, costs)
        self._prompts: list[Request] = []
        """Requests whose prompts are not processed yet."""
        self._writing: list[Request] = []
        self._began = self._pass = 0.0
        """When the running passes began, and how long each takes."""
        self._passes = 0
        self._taken: list[Request] = []
        """Requests whose prompts are in the running pass."""

    def lost(self, now: float) -> list[Request]:
        """Be lost; returns all requests that were here, with the ids that they had."""
        if self._passes:
            self.busy += now - self._began
        if not self._taken:
            for request in self._writing:
                request.written += int((now - self._began) / self._pass)
        return [*self._writing, *self._prompts, *self._cache.waiting]

    def come(self, request: Request, now: float) -> None:
        """Take a request that has arrived."""
        self._begin(self._cache.come(request), now)
        if not self._passes:
            self._go_on(now)

    def wake(self, now: float) -> list[Request]:
        """Do what is due at the time in `wakes`; returns the requests that have been answered."""
        ended = self._passed(now) if self._passes else []
        for request in ended:
            self._begin(self._cache.end(request), now)
        self._go_on(now)
        return ended

    def _begin(self, placed: Sequence[Request], now: float) -> None:
        for request in placed:
            request.ready = now + self._costs.request + request.moved * self._costs.move
            self._prompts.append(request)
            self._cut(request.ready)

    def _go_on(self, now: float) -> None:
        """Begin the next pass, or several equal ones."""
        self._taken, room = [], _BATCH
        for request in self._prompts:
            if request.ready <= now and room:
                self._taken.append(request)
                room -= min(room, request.left)
        self._began, self._passes, self.wakes = now, 0, _NEVER
        later = min((request.ready for request in self._prompts if request.ready > now), default=_NEVER)
        if self._taken:
            self._passes = 1
            self._pass = (_BATCH - room) * self._costs.prefill + self._costs.step(max(len(self._writing), 1))
        elif self._writing:
            self._passes = min(request.answered - request.written for request in self._writing)
            self._pass = self._costs.step(len(self._writing))
        else:
            self.wakes = later
            return
        self.wakes = now + self._passes * self._pass
        self._cut(later)

    def _cut(self, time: float) -> None:
        """Let the running passes end with the one at this time, because another prompt has arrived."""
        if self._passes and not self._taken and time < self.wakes:
            self._passes = min(max(1, ceil((time - self._began) / self._pass)), self._passes)
            self.wakes = self._began + self._passes * self._pass

    def _passed(self, now: float) -> list[Request]:
        """Apply what the finished passes have done; returns the requests that have been answered."""
        self.busy += self._passes * self._pass
        for request in self._writing:
            request.written += self._passes
        room = _BATCH
        for request in self._taken:
            done = min(room, request.left)
            request.left -= done
            room -= done
            if not request.left:
                request.written = 1
                request.first = now if request.first is None else request.first
                self._prompts.remove(request)
                self._writing.append(request)
        ended = [request for request in self._writing if request.written >= request.answered]
        for request in ended:
            self._writing.remove(request)
        return ended


def _ends(request: Request) -> Sequence[int]:
    """Return where what is kept of a conversation may end. The last id of an answer is sampled but not processed."""
    talk, at = request.conversation, request.conversation.preamble
    ends = [at]
    for turn in talk.turns[: request.turn]:
        at += turn.added + turn.answered
        ends.append(at - 1)
    return ends
