"""Which of the engine's slots a generation gets.

A llama.cpp server keeps one KV cache a slot. This table remembers which ids each slot holds. A prompt that continues
what a free slot holds gets that slot; any other gets the one that has rested longest. All conversations begin with the
same preamble, so the longest common prefix alone would let a new one take the cache of one that waits for a tool. It
does not know the engine. Above: `gateway.agent`.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio

from gateway.errors import EngineUnavailable

_QUEUE = 64
"""Generations that may wait for a slot; one more is refused."""


@dataclass(slots=True)
class Slot:
    """One slot while a generation has it. The generation writes what the slot holds afterwards into `ids`."""

    number: int
    ids: list[int] = field(default_factory=list[int])
    used: int = 0
    """When it was used last, as a count of hand-outs."""


class SlotTable:
    """The slots of one engine."""

    def __init__(self, count: int) -> None:
        self._free = [Slot(number) for number in range(count)]
        self._clock = 0
        # A free slot is taken at once, without a turn of the loop in between.
        self._available = anyio.Semaphore(count, fast_acquire=True)
        self._waiting = 0

    @asynccontextmanager
    async def take(self, prompt: Sequence[int]) -> AsyncGenerator[Slot]:
        """A slot for `prompt`, for as long as the context lasts. Waits while all are taken.

        Raises `EngineUnavailable` when too many wait already.
        """
        await self._turn()
        slot = self._choose(prompt)
        self._free.remove(slot)
        self._clock += 1
        slot.used = self._clock
        try:
            yield slot
        finally:
            self._free.append(slot)
            self._available.release()

    def _choose(self, prompt: Sequence[int]) -> Slot:
        # Most slots of a big engine begin with other ids: to look at no more than the first costs a tenth.
        first = prompt[0] if prompt else None
        continued = [slot for slot in self._free if slot.ids and slot.ids[0] == first]
        best = max(continued, key=lambda slot: _worth(slot, prompt), default=None)
        if best is not None and _worth(best, prompt)[0]:
            return best
        return min(self._free, key=lambda slot: slot.used)

    async def _turn(self) -> None:
        if self._waiting >= _QUEUE:
            raise EngineUnavailable(f"every slot of the engine is taken, and {_QUEUE} requests wait; ask again later")
        self._waiting += 1
        try:
            await self._available.acquire()
        finally:
            self._waiting -= 1

    def reserve(self) -> int:
        """Take a free slot out of the table for good, for somebody who must have one alone; returns its number."""
        self._available.acquire_nowait()
        return self._free.pop().number


def _worth(slot: Slot, prompt: Sequence[int]) -> tuple[int, int]:
    """How well a free slot suits a prompt: one that continues it first, by what is reused; then the longest rested.

    A tenth may be lost: an answer that is asked for again differs from what the slot holds at its end.
    """
    shared = shared_prefix(slot.ids, prompt)
    continues = shared > 0 and shared * 10 >= len(slot.ids) * 9
    return (shared if continues else 0, -slot.used)


def shared_prefix(held: Sequence[int], prompt: Sequence[int]) -> int:
    """Length of the common prefix, in ids. Compares in halves, since slices compare at C speed."""
    low, high = 0, min(len(held), len(prompt))
    while low < high:
        middle = (low + high + 1) // 2
        if held[low:middle] == prompt[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
