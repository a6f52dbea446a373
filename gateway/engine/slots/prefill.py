"""Processes ids that are certain to follow ahead of time, while an engine has nothing else to do.

Turns the ids that a slot of our own holds, and those that will follow them, into requests for one piece at a time. A
piece is requested only while no generation runs or waits, so that a new generation, or one that continues in the slot,
waits for one piece at most. If the gain is less than two passes of the engine, nothing is done: on a fast GPU, or for
only a few ids. It knows no conversation and no tool.
"""

from collections.abc import Awaitable, Callable, Sequence
from math import ceil
from typing import Final

import anyio

from gateway.engine.interface import Filled
from gateway.engine.slots.allocation import SlotTable
from gateway.engine.slots.engine_speed import Rates
from gateway.errors import EngineError
from gateway.observe.logs import get_logger

PIECE: Final = 32
"""Most ids of one request, for which others may have to wait. On a CPU they take as long as about fifteen generated
ids."""
_PASSES: Final = 2
"""Passes that must be gained: a request ahead of time costs one."""

Fill = Callable[[int, Sequence[int]], Awaitable[Filled]]
"""Makes a slot hold these ids. Returns what was processed for it."""
Told = Callable[[int, float], None]
"""Called with the number of ids that a slot holds in addition, and the seconds the engine took to process them."""

log = get_logger("engine")


class Prefill:
    """Processing ahead of time on one running engine, whose slots are ours to choose."""

    def __init__(self, slots: SlotTable, fill: Fill, rates: Rates) -> None:
        self._slots = slots
        self._fill = fill
        self._rates = rates

    def pays(self, ids: int) -> bool:
        """Whether this many ids take longer than two passes; False until the engine has generated something."""
        return self._rates.step > 0 and self._rates.to_process(ids) > _PASSES * self._rates.step

    async def run(self, held: Sequence[int], ahead: Sequence[int], owner: str, over: anyio.Event, told: Told) -> None:
        """Make the slot that holds `held` hold `ahead` as well, as far as there is time. Never raises `EngineError`.

        Args:
            held: everything that the slot holds.
            ahead: the ids that are certain to follow.
            owner: the principal whose slot it is.
            over: ends it, after the piece that is being processed.
            told: called after each piece.
        """
        # Each request makes checkpoints where a cache needs them, and drops earlier ones, so there it is a single one.
        pieces = ceil(len(ahead) / PIECE) if self._slots.rewind == "anywhere" else 1
        size = ceil(len(ahead) / max(pieces, 1))
        done = 0
        while done < len(ahead) and not over.is_set():
            if not self._slots.is_idle:
                await _first(self._slots.idle, over.wait)
                continue
            new = ahead[done : done + size]
            try:
                filled = await self._piece([*held, *ahead[:done]], new, owner)
            except EngineError as error:
                # The next generation in the slot meets the error itself, if it concerns it.
                log.info("ids were not processed ahead of time", reason=error.message)
                return
            if filled is None:
                return
            told(len(new), filled.seconds)
            done += len(new)
            if filled.ids > len(new):
                # The slot held something else than we believed.
                return

    async def _piece(self, held: list[int], new: Sequence[int], owner: str) -> Filled | None:
        """What was processed; None if the slot is no longer available."""
        async with self._slots.lent(held, owner) as slot:
            if slot is None:
                return None
            ids = [*held, *new]
            filled = await self._fill(slot.number, ids)
            slot.holds(ids, at_rest=True, answered=True, cached=len(ids) - filled.ids)
        return filled


async def _first(*waits: Callable[[], Awaitable[None]]) -> None:
    """Wait until the first of several waits ends."""

    async def end_all(wait: Callable[[], Awaitable[None]]) -> None:
        await wait()
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for wait in waits:
            tasks.start_soon(end_all, wait)
