"""Swaps slots of our own engine to files and back, as planned by `swap_plan.py`.

Turns a `Plan` into requests to the engine, checks of files, and counts. An unfit file, a full disk or a missing
directory costs a recomputation, and is counted and logged; the generation goes on. Only a slot that the caller holds
and that is at rest is touched, and a swap is never interrupted, so it is always known what a slot holds afterwards.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final

import anyio
from anyio.to_thread import run_sync

from gateway.engine.interface import Moved, Rewind, SlotMover
from gateway.engine.slots.slot import NO_HINTS, Checkpoints, Hints, Slot
from gateway.engine.slots.slot_directory import FileUnfit, SlotDirectory, SlotFile
from gateway.engine.slots.swap_plan import Paging, Plan
from gateway.errors import EngineRefused
from gateway.observe.backend_metrics import SlotFileMetrics
from gateway.observe.logs import get_logger

_FIRST_PART: Final = 512
"""Tokens of a shared beginning that are processed in one request, until it is known how long they take."""
_PART: Final = 10.0
"""Seconds that each further request may take."""
_PAUSE: Final = 30.0
"""Seconds without another attempt to save after a failed one: a full disk stays full for a while."""

log = get_logger("engine.slots")


@dataclass(slots=True, eq=False)
class _Leaving:
    """What a slot held before it was given to another prompt; until it is saved, it is in neither a slot nor a file."""

    ids: list[int]
    owner: str | None
    checkpoints: Checkpoints
    done: anyio.Event = field(default_factory=anyio.Event)


class Swapper:
    """The swaps of one running engine. The files outlive it; `Paging` keeps track of them."""

    def __init__(
        self,
        engine: SlotMover,
        directory: SlotDirectory,
        paging: Paging,
        metrics: SlotFileMetrics,
        rewind: Rewind = "anywhere",
    ) -> None:
        """Swap nothing before `adopt`. `rewind`: where the engine's caches can be cut."""
        self._engine = engine
        self._directory = directory
        self._paging = paging
        self._metrics = metrics
        self.rewind: Rewind = rewind
        self._identity = ""
        self.adopted = anyio.Event()
        """Set once it is known which files fit this engine: before that nothing is swapped."""
        self._not_before = 0.0
        self._leaving: list[_Leaving] = []

    async def adopt(self, model: Path | None, about: Mapping[str, object]) -> None:
        """Find out which engine this is, and start with the files that an identical engine has left.

        Args:
            model: its model file, if known.
            about: what else makes the states of one engine unfit for another.
        """
        digest = await run_sync(model_digest, model) if model is not None else None
        identity = hashlib.sha256(json.dumps({**about, "model": digest}, sort_keys=True).encode()).hexdigest()
        await self._forget_others(identity)
        self._identity = identity
        self.adopted.set()
        self._metrics.held(self._paging.kept.size)

    async def _forget_others(self, identity: str) -> None:
        """Remove the files of other engines, and take over those of an identical one."""
        if self._paging.fit(identity):
            return
        for file in list(self._paging.kept.files):
            await self._refuse(file, "engine")
        self._paging.begin(identity)
        if not self._directory.kept:
            return
        for known in await run_sync(lambda: list(self._directory.known(identity))):
            if isinstance(known, SlotFile):
                await self._remove(self._paging.kept.add(known))
            else:
                self._metrics.refused(known)
                log.warning("a slot file was not used", reason=known)

    def choose(self, free: Sequence[Slot], prompt: list[int], owner: str, hints: Hints = NO_HINTS) -> Slot:
        """The free slot to take for a prompt."""
        return self._paging.choose(free, prompt, owner, hints)

    def awaiting(self, prompt: list[int], owner: str, hints: Hints = NO_HINTS) -> AbstractContextManager[None]:
        """A context for the time that a prompt waits for a slot."""
        return self._paging.kept.awaiting(prompt, owner, hints)

    async def prepare(self, slot: Slot, prompt: list[int], owner: str, hints: Hints = NO_HINTS) -> int:
        """Prepare a slot that is at rest for a prompt: save what is in it, and restore what the prompt continues.

        Returns the number of ids that the prompt's principal may be told it found in a file of its own.
        """
        before, leaving = list(self._leaving), _Leaving(slot.ids, slot.owner, slot.checkpoints)
        self._leaving.append(leaving)
        try:
            # Wait only for earlier ones: two that wait for each other would never end.
            for each in before:
                left = each.ids, each.checkpoints
                if each.owner == owner and self._paging.is_worth_waiting(slot, prompt, owner, *left):
                    await each.done.wait()
            return await self._prepare(slot, prompt, owner, leaving, hints)
        finally:
            self._leaving.remove(leaving)
            leaving.done.set()

    async def _prepare(self, slot: Slot, prompt: list[int], owner: str, leaving: _Leaving, hints: Hints) -> int:
        plan = self._paging.plan(slot, prompt, owner, hints)
        # Only the own file is protected. What is given up must not depend on prompts of others, so theirs may go.
        if plan.own is not None:
            plan.own.readers += 1
        told, restored = 0, False
        try:
            # An interrupted swap would leave a slot with unknown content.
            with anyio.CancelScope(shield=True):
                if plan.save:
                    await self._save(slot, slot.owner or "", shared=False)
                leaving.done.set()
                self._paging.take(slot.number, plan, owner, hints)
                restored = plan.restore is None or await self._restore_one(slot, plan)
                told = plan.told if restored else 0
            if plan.beginning and restored:
                await self._keep_beginning(slot, prompt[: plan.beginning], owner)
        except BaseException:
            slot.holds([], at_rest=False, answered=False)
            raise
        finally:
            if plan.own is not None:
                plan.own.readers -= 1
            self._metrics.held(self._paging.kept.size)
        return told

    async def keep(self, slots: Sequence[Slot]) -> None:
        """Save what slots at rest hold, if files are kept for the next process."""
        for slot in slots:
            if self._directory.kept and self.adopted.is_set() and slot.at_rest and self._paging.is_worth_saving(slot):
                await self._save(slot, slot.owner or "", shared=False)

    async def _restore_one(self, slot: Slot, plan: Plan) -> bool:
        """Restore the file that brings most; if it is another principal's and gone, the principal's own."""
        files = [file for file in (plan.restore, plan.own) if file is not None]
        for file in dict.fromkeys(files):
            if file in self._paging.kept.files and await self._restore(slot, file):
                return True
        return False

    async def _keep_beginning(self, slot: Slot, ids: list[int], owner: str) -> None:
        """Keep a beginning that conversations share, once for all of them.

        A request for a long one could take minutes, so it is processed in parts, between which the caller may leave.
        """
        try:
            with anyio.CancelScope(shield=True):
                if slot.mixed or slot.owner not in (None, owner):
                    # Its states would be those of another principal, and how long it takes would tell what that holds.
                    await self._engine.erase_slot(slot.number)
                    slot.holds([], at_rest=True, answered=False)
                slot.owner, slot.mixed = owner, False
            size = _FIRST_PART
            while slot.ids != ids:
                with anyio.CancelScope(shield=True):
                    await self._fill(slot, ids[: slot.reused(ids) + size])
                size = max(int(_PART / self._paging.rates.to_process(1)), _FIRST_PART)
                await anyio.lowlevel.checkpoint()
        except EngineRefused as error:
            log.warning("a shared beginning was not kept", reason=error.message)
            return
        with anyio.CancelScope(shield=True):
            await self._save(slot, owner, shared=True)

    async def _fill(self, slot: Slot, ids: list[int]) -> None:
        filled = await self._engine.fill_slot(slot.number, ids)
        self._paging.rates.processed(filled.ids, filled.seconds)
        slot.holds(ids, at_rest=True, answered=True, cached=len(ids) - filled.ids)

    async def _save(self, slot: Slot, owner: str, *, shared: bool) -> None:
        ids = slot.ids
        if monotonic() < self._not_before:
            return
        given_up = self._paging.kept.make_room(ids, owner, self._paging.rates.size(len(ids)))
        if given_up is None:
            return
        await self._remove(given_up)
        name = self._directory.new_name()
        try:
            if self.rewind == "window" and not shared:
                # A restored window can only be continued from a checkpoint, and generating leaves none. This makes one
                # at the end, for one token. A full context has no room for it.
                with suppress(EngineRefused):
                    await self._fill(slot, ids)
            file = await self._written(slot, name, owner, shared=shared)
        except (EngineRefused, FileUnfit, OSError) as error:
            await run_sync(self._directory.remove, name)
            self._not_before = monotonic() + _PAUSE
            self._metrics.refused("save")
            log.warning("a slot could not be saved", reason=str(error), bytes=self._paging.kept.size)
            return
        await self._remove(self._paging.kept.add(file, None if shared else slot.number))

    async def _written(self, slot: Slot, name: str, owner: str, *, shared: bool) -> SlotFile:
        moved = await self._engine.save_slot(slot.number, name)
        begun = monotonic()
        await run_sync(self._directory.close_to_others, name)
        size, digest = await run_sync(self._directory.measure, name)
        self._paging.rates.moved(moved.ids, size, moved.seconds + monotonic() - begun)
        self._metrics.moved("save", size)
        ids = slot.ids[: moved.ids]
        told = (name, ids, owner, size, digest, moved.ids, shared)
        file = SlotFile(*told, checkpoints=slot.checkpoints, answer=slot.answer, question=slot.question)
        await run_sync(self._directory.note, file, self._identity)
        return file

    async def _restore(self, slot: Slot, file: SlotFile) -> bool:
        """Restore a file. Returns whether the slot now holds it. An unfit file is removed."""
        begun = monotonic()
        try:
            await run_sync(self._directory.check, file)
        except (FileUnfit, OSError) as error:
            # The slot still holds what it held.
            await self._refuse(file, error.fault if isinstance(error, FileUnfit) else "gone")
            return False
        checked = monotonic() - begun
        if (moved := await self._restored(slot.number, file)) is None:
            slot.holds([], at_rest=True, answered=False)
            await self._refuse(file, "engine")
            return False
        self._paging.rates.moved(moved.ids, moved.size, moved.seconds + checked)
        self._metrics.moved("restore", moved.size, ids=moved.ids)
        slot.holds(list(file.ids), at_rest=True, answered=True)
        slot.owner, slot.mixed, slot.checkpoints = file.owner, False, file.checkpoints
        return True

    async def _restored(self, number: int, file: SlotFile) -> Moved | None:
        """The engine's report; None if it refuses, or reports something else than at the save: the slot is empty."""
        try:
            moved = await self._engine.restore_slot(number, file.name)
        except EngineRefused:
            return None
        if (moved.ids, moved.size) == (file.held, file.size):
            return moved
        await self._engine.erase_slot(number)
        return None

    async def _refuse(self, file: SlotFile, fault: str) -> None:
        self._paging.kept.drop(file)
        await self._remove([file])
        self._metrics.refused(fault)
        log.warning("a slot file was not used", reason=fault, ids=file.held, bytes=file.size)

    async def _remove(self, files: Sequence[SlotFile]) -> None:
        for file in files:
            await run_sync(self._directory.remove, file.name)


def model_digest(model: Path) -> str:
    """The digest of the whole file, since models of the same shape may differ anywhere."""
    with model.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
