"""Which of the engine's slots a generation gets, and what its principal may be told of the cache.

A llama.cpp server keeps one KV cache per slot. This table remembers which ids each slot holds and whose they are. Where
the engine is ours alone, a prompt that continues what a free slot holds *for the same principal* gets that slot; any
other prompt gets the slot that was used longest ago. A slot is named only when it is known to be at rest: on a server
with a host cache, a request that names a busy slot makes the running answer continue with another conversation's text
(docs/adr/0017). Elsewhere the server chooses. All conversations begin with the same preamble, so by the longest common
prefix alone a new one would take the cache of one that waits for a tool.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from time import monotonic
from typing import Final

import anyio

from gateway.engine.interface import GenerationEnd, Rewind, Timings, shared_prefix
from gateway.engine.slots.slot import NO_HINTS, Hints, Slot, continued, longest_rested
from gateway.engine.slots.slot_save_restore import Swapper
from gateway.errors import EngineBusy, EngineError, EngineUnavailable

_QUEUE: Final = 64
"""Generations that may wait for a slot; one more is refused."""
_REST_TIME: Final = 60.0
"""Seconds that a slot may go on working after it was told to stop: a batch of the prompt is always completed."""
_KEEP_TIME: Final = 10.0
"""Seconds that saving all slots may take when the gateway ends."""
_LOOK: Final = 0.01
"""Seconds of the first pause between two looks at a busy slot; each further pause is twice as long."""
_LOOK_MAX: Final = 0.2
_LEFT_IDS: Final = 1 << 20
"""Ids of past generations that are remembered in all, 8 MiB of references; the oldest are forgotten first."""
_LEFT_GENERATIONS: Final = 64
"""Past generations that are remembered."""

AtRest = Callable[[int], Awaitable[bool]]
"""Asks the engine whether a slot is at rest."""


@dataclass(frozen=True, slots=True)
class Place:
    """The slot that a generation has been given, and what its principal may be told."""

    slot: Slot
    pinned: int | None
    """The slot to name in the request; None: the server chooses."""
    reuse: bool
    """Whether what the slot holds may be reused."""
    own: int
    """Ids at the prompt's beginning that its principal's own requests have left there, whatever others asked for."""
    in_slot: int = 0
    """Ids at the prompt's beginning that the slot held for its principal; 0 where the server chooses the slot."""
    salt: str | None = None
    """The salt to send, so that the request shares cached ids only with others of its principal."""

    def leaves(self, ids: list[int], prompt: int, end: GenerationEnd | None, *, answered: bool) -> None:
        """Note what a generation has left in the slot.

        Args:
            ids: everything that it was given or has generated.
            prompt: how many of them it was given.
            end: its last event; None: it was cut off.
            answered: whether it has given an id.
        """
        reported = end is not None and end.reported
        known = None if end is None else end.known
        cached = None if known is None else known.cache_n
        self.slot.holds(ids, at_rest=reported, answered=answered or end is not None, prompt=prompt, cached=cached)

    def shown(self, timings: Timings) -> Timings:
        """The engine's timings as the principal may see them: they do not depend on what others have left behind."""
        hidden = max(timings.cache_n - self.own, 0)
        return timings.counting(hidden) if hidden else timings


class LeftBehind:
    """What a principal's generations have left in an engine's cache, while it is the only one: then it may be told.

    When a second principal appears, everything is forgotten, since the longest common beginning is then an oracle:
    whoever asks twice, with a request of another principal in between that takes the slot, would learn how far the two
    agree.
    """

    def __init__(self, max_ids: int = _LEFT_IDS, max_entries: int = _LEFT_GENERATIONS) -> None:
        """Remember nothing yet. `max_ids`: ids in all; `max_entries`: generations."""
        self._max_ids = max_ids
        self._max_entries = max_entries
        self._owner: str | None = None
        self.several = False
        """Whether more than one principal has used the engine."""
        self._held: list[list[int]] = []
        """The ids of each generation, the latest last."""
        self.size = 0
        """Ids that are remembered now."""

    def enter(self, owner: str) -> None:
        """Note that a principal is about to generate."""
        self._owner = self._owner or owner
        if owner != self._owner:
            self.several = True
            self._held, self.size = [], 0

    def own(self, prompt: Sequence[int]) -> int:
        """How many ids of a prompt's beginning one of the generations had."""
        best, length = 0, len(prompt)
        for ids in reversed(self._held):
            # Most begin differently, so one id is compared before any slices are made.
            if best < length and best < len(ids) and ids[best] == prompt[best] and ids[:best] == prompt[:best]:
                best = shared_prefix(ids, prompt)
        return best

    def note(self, ids: list[int]) -> None:
        """Remember a generation, including its prompt. Generations that it continues are forgotten."""
        if self.several or not ids:
            return
        size = len(ids)
        # As above.
        self._held = [
            each
            for each in self._held
            if len(each) > size or each[-1] != ids[len(each) - 1] or each != ids[: len(each)]
        ]
        self._held.append(ids)
        self.size = sum(map(len, self._held))
        while len(self._held) > self._max_entries or self.size > self._max_ids:
            self.size -= len(self._held.pop(0))


class SlotTable:
    """The slots of one engine."""

    def __init__(
        self,
        count: int,
        *,
        first: int = 0,
        at_rest: AtRest | None = None,
        isolate: bool = False,
        share: float = 1.0,
        swapper: Swapper | None = None,
        salt: Callable[[str], str] | None = None,
        rest_time: float = _REST_TIME,
        rewind: Rewind = "anywhere",
    ) -> None:
        """Start with all slots free and none known to be at rest.

        Args:
            count: how many there are.
            first: the number of the first, if other gateways have the slots before it.
            at_rest: asks the engine whether a slot is at rest, if the engine is ours alone; None: the server chooses
                slots.
            isolate: whether a principal never reuses what another has left in a slot.
            share: part of the queue that one principal may fill.
            swapper: keeps in files what slots held, if they are ours; only with `at_rest`.
            salt: returns a principal's salt, if the engine keeps caches apart by it; only without `at_rest`.
            rest_time: seconds that a slot may go on working after it was told to stop.
            rewind: where the engine's caches can be cut.
        """
        self.rewind: Rewind = rewind
        checkpoints = None if rewind == "anywhere" else ()
        self._free = [Slot(number, checkpoints=checkpoints) for number in range(first, first + count)]
        self._at_rest = at_rest
        self._isolate = isolate
        self._salt = salt
        self.swapper = swapper
        self._rest_time = rest_time
        self.jammed: int | None = None
        """The slot that did not come to rest in time, if one has not."""
        self._left = LeftBehind()
        self._clock = 0
        self._count = count
        self._idle = anyio.Event()
        # A free slot is taken at once, without a turn of the loop in between.
        self._available = anyio.Semaphore(count, fast_acquire=True)
        self._waiting: Counter[str] = Counter()
        """Generations that wait, by principal."""
        self._share = max(1, int(_QUEUE * share))

    @asynccontextmanager
    async def take(
        self, prompt: list[int], owner: str, *, alone: bool = False, hints: Hints = NO_HINTS
    ) -> AsyncGenerator[Place]:
        """A slot for `prompt`, for as long as the context lasts. Waits while all are taken.

        Args:
            prompt: the whole context as ids.
            owner: the principal on whose behalf the generation runs.
            alone: whether the principal may fill the whole queue, and not only its share.
            hints: what is known of its conversation.

        Raises `EngineBusy` when too many wait already, and `EngineUnavailable` when the slot does not come to rest.
        """
        swapper, at_rest = self.swapper, self._at_rest
        await self._turn(prompt, owner, hints, alone=alone)
        self._left.enter(owner)
        if swapper is not None and swapper.adopted.is_set():
            slot = swapper.choose(self._free, prompt, owner, hints)
        else:
            slot = continued(self._free, prompt, owner) or longest_rested(self._free)
        self._free.remove(slot)
        self._clock += 1
        slot.used = self._clock
        try:
            pinned = None if at_rest is None else await self._rested(slot, at_rest)
            # Counted before the swap, which may replace it with what others have left.
            there, held = self._own(slot, prompt, owner) if pinned is not None else 0, slot.ids
            # How far a cache that can't be cut goes back may depend on what others left in it; its end does not.
            known = there if slot.checkpoints is None or slot.reused(prompt) == len(slot.ids) else 0
            found = 0
            if swapper is not None and swapper.adopted.is_set():
                found = await swapper.prepare(slot, prompt, owner, hints)
            in_slot = there if slot.ids is held else self._own(slot, prompt, owner)
            slot.mixed = slot.mixed or slot.owner not in (None, owner)
            place = self._place(slot, prompt, owner, pinned, max(known, found), in_slot)
            slot.holds([], at_rest=False, answered=False)
            slot.owner, slot.answer, slot.question = owner, hints.answer, hints.question
            try:
                yield place
            finally:
                if slot.answered:
                    slot.mixed = False
                    self._left.note(slot.ids)
        finally:
            self._give_back(slot)

    def _place(self, slot: Slot, prompt: list[int], owner: str, pinned: int | None, own: int, in_slot: int) -> Place:
        if self._salt is not None:
            # Whatever the engine reuses under this salt is the principal's own.
            return Place(slot, pinned, True, len(prompt), salt=self._salt(owner))
        reuse = not (self._isolate and slot.mixed)
        return Place(slot, pinned, reuse, own if self._left.several else self._left.own(prompt), in_slot)

    @property
    def chooses(self) -> bool:
        """Whether slots are ours to choose."""
        return self._at_rest is not None

    @property
    def is_idle(self) -> bool:
        """Whether no slot is taken, and nobody waits for one."""
        return self._available.value == self._count

    async def idle(self) -> None:
        """Wait until no slot is taken."""
        while not self.is_idle:
            await self._idle.wait()

    @asynccontextmanager
    async def lent(self, held: list[int], owner: str) -> AsyncGenerator[Slot | None]:
        """The slot that holds exactly these ids, for as long as the context lasts; None if there is none.

        It is used to prepare the principal's next generation, and loses nothing that this may reuse. The borrower must
        say what the slot holds (`Slot.holds`) before the context ends, or it counts as unknown. Works only while the
        table is idle (`is_idle`), and never waits for other generations. Raises `EngineUnavailable` when the slot does
        not come to rest.
        """
        own = (slot for slot in self._free if slot.answered and slot.owner == owner and slot.ids == held)
        at_rest = self._at_rest
        slot = next(own, None) if at_rest is not None and self.is_idle else None
        if slot is None or at_rest is None:
            yield None
            return
        self._available.acquire_nowait()
        self._free.remove(slot)
        try:
            await self._rested(slot, at_rest)
            slot.holds(held, at_rest=False, answered=False)
            yield slot
            self._left.note(slot.ids)
        finally:
            self._give_back(slot)

    async def look(self) -> bool:
        """Ask about free slots that were left at work; returns whether one has been at it for too long (`jammed`)."""
        for slot in tuple(self._free):
            left, rests = slot.left, False
            if left is None or self._at_rest is None:
                continue
            with suppress(EngineError):
                rests = await self._at_rest(slot.number)
            # Whoever has taken it meanwhile finds out for himself.
            if slot not in self._free or slot.left != left:
                continue
            if rests:
                slot.at_rest, slot.left = True, None
            elif monotonic() - left > self._rest_time:
                self.jammed = slot.number
        return self.jammed is not None

    def _give_back(self, slot: Slot) -> None:
        slot.left = None if slot.at_rest or self._at_rest is None else monotonic()
        self._free.append(slot)
        self._available.release()
        if self.is_idle:
            self._idle.set()
            self._idle = anyio.Event()

    def reserve(self) -> int:
        """Remove a free slot from the table for good, for a user who needs one alone. Returns its number."""
        self._available.acquire_nowait()
        self._count -= 1
        return self._free.pop().number

    async def keep(self) -> None:
        """Save what free slots hold, if slot files are kept for the next process; even during a cancellation."""
        if self.swapper is not None:
            with anyio.move_on_after(_KEEP_TIME, shield=True), suppress(EngineError):
                await self.swapper.keep(self._free)

    def _own(self, slot: Slot, prompt: Sequence[int], owner: str) -> int:
        """How much of a prompt its principal's own last generation has left in a slot, if nobody else had it since.

        If there are several principals, each is told only of that and of what it has in a file of its own. Where the
        server chooses the slot, it does so by what others have left, so there nothing is told.
        """
        if slot.mixed or not slot.answered or slot.owner != owner:
            return 0
        # The last id may have been sampled but not processed.
        return shared_prefix(slot.ids[:-1], prompt)

    async def _rested(self, slot: Slot, at_rest: AtRest) -> int:
        """The slot's number once it is known to be at rest."""
        pause = _LOOK
        with anyio.move_on_after(self._rest_time):
            while not slot.at_rest:
                slot.at_rest = await at_rest(slot.number)
                if not slot.at_rest:
                    await anyio.sleep(pause)
                    pause = min(pause * 2, _LOOK_MAX)
        if not slot.at_rest:
            self.jammed = slot.number
            raise EngineUnavailable(
                f"slot {slot.number} of the engine is still busy with a generation that was cancelled; try again"
            )
        return slot.number

    async def _turn(self, prompt: list[int], owner: str, hints: Hints, *, alone: bool) -> None:
        if self._waiting.total() >= _QUEUE:
            raise EngineBusy(f"every slot of the engine is taken, and {_QUEUE} requests are waiting; try again later")
        if not alone and self._waiting[owner] >= self._share:
            raise EngineBusy(
                f"every slot of the engine is taken, and {owner!r} has {self._waiting[owner]} of the {_QUEUE} requests "
                f"that may wait; its share is {self._share} (limits.principal_share): try again later"
            )
        self._waiting[owner] += 1
        try:
            swapper = None if self._available.value else self.swapper
            with swapper.awaiting(prompt, owner, hints) if swapper is not None else nullcontext():
                await self._available.acquire()
        finally:
            self._waiting[owner] -= 1
            if not self._waiting[owner]:
                del self._waiting[owner]
