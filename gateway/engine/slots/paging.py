"""Which slot a prompt gets if slots are swapped to files: what is saved first, and what is restored.

A pure core: it is told what slots and files hold, and answers with a `Plan`. It knows no engine, no directory and no
clock. Decisions are made by cost: ids that need not be processed again, at the engine's rate, against bytes that must
be moved, at their rate (`rates.py`).

What a principal is told about the cache must not depend on what others ask (docs/adr/0017). So everything that affects
it (what is saved, what its own file would bring, what is given up) is decided by its own files and by the sizes of
others', never by the ids of others. A file of another principal may add to what is reused, but nobody is told that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gateway.engine.slots.kept_files import KeptFiles
from gateway.engine.slots.rates import Rates
from gateway.engine.slots.rewind import Checkpoints, reused
from gateway.engine.slots.slot import NO_HINTS, Hints, Slot, continued, is_at, is_continued, longest_rested, takes_over
from gateway.engine.slots.slot_file import SlotFile

_LEAST: Final = 32
"""Least ids of a beginning that gets a file of its own: fewer are processed in the time that the requests take."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do with a slot before a prompt runs in it: save, restore, keep a beginning, in this order."""

    save: bool = False
    restore: SlotFile | None = None
    beginning: int = 0
    """Ids at the prompt's beginning to be kept in a separate file, since conversations share them."""
    own: SlotFile | None = None
    """The principal's own file that is restored, or would be if another principal's file did not bring more."""
    goes_on: bool = False
    """Whether the prompt continues the conversation of that file."""
    held: bool = False
    """Whether the slot holds the conversation that the prompt continues, by its name."""
    told: int = 0
    """Ids that the principal may be told were reused: those of its own file."""


class Paging:
    """The slot files of one gateway."""

    def __init__(self, limit: int, rates: Rates, *, isolate: bool = False, share: float = 1.0) -> None:
        """Start without files.

        Args:
            limit: bytes of all files.
            rates: how long processing and moving take.
            isolate: whether a principal is never served by a file of another.
            share: part of the bytes that one of several principals may have while others want room.
        """
        self.kept = KeptFiles(limit, share)
        self.rates = rates
        self._isolate = isolate
        self._engine: str | None = None

    def fit(self, engine: str) -> bool:
        """Whether an engine that has come up is identical to the one that wrote the files; its slots hold none yet."""
        for file in self.kept.files:
            file.slot = None
        return self._engine == engine

    def begin(self, engine: str) -> None:
        """Note which engine writes the files from now on."""
        self._engine = engine

    def choose(self, free: Sequence[Slot], prompt: list[int], owner: str, hints: Hints = NO_HINTS) -> Slot:
        """The free slot in which this prompt costs least, including the cost of bringing back what is there now."""
        file, found = self.kept.longest(prompt, owner)
        held = next((slot for slot in free if slot.owner == owner and slot.is_continued_by(hints)), None)
        oldest, going_on = longest_rested(free), held or continued(free, prompt, owner)
        alike = max(free, key=lambda slot: _own_share(slot, prompt, owner))
        offers = [(slot, _own_share(slot, prompt, owner), 0) for slot in (going_on, oldest, alike) if slot is not None]
        if file is not None:
            offers += [(slot, found, len(file.ids)) for slot in (going_on, oldest) if slot is not None]

        def cost(offer: tuple[Slot, int, int]) -> float:
            slot, reused, moved = offer
            stays = slot is held or (not moved and takes_over(slot.ids, reused, prompt))
            given_up = 0 if stays or not slot.answered else 2 * len(slot.ids)
            return self.rates.to_process(len(prompt) - reused) + self.rates.to_move(moved + given_up)

        return min(offers, key=cost)[0]

    def plan(self, slot: Slot, prompt: list[int], owner: str, hints: Hints = NO_HINTS) -> Plan:
        """What to do with a slot that is at rest before this prompt runs in it. Carry the plan out at once."""
        in_place = _own_share(slot, prompt, owner)
        file, found = self.kept.longest(prompt, owner)
        if file is None or not self._pays(found - in_place, len(file.ids)):
            file, found = None, 0
        source, shared = (file.ids, found) if file is not None else (slot.ids, in_place)
        held = slot.owner == owner and slot.is_continued_by(hints)
        stays = held or (file is None and takes_over(slot.ids, in_place, prompt))
        beginning = self._beginning(prompt, source, shared, owner)
        if slot.checkpoints is not None:
            # A cache that can't be cut has to be kept when it ends there: at the second conversation it is too late.
            beginning = self._preamble(prompt[: hints.preamble], max(found, in_place), owner)
        save = self._is_way_back(slot, prompt, hints) if stays else self.is_worth_saving(slot)
        restore = file
        if not (self._isolate or beginning):
            restore = self._best_of_all(slot, prompt, owner, file, found, in_place)
        goes_on = False
        if file is not None and not file.shared:
            goes_on = is_continued(file.answer, hints) or takes_over(file.ids, found, prompt)
        # How far a cache that can't be cut goes back may depend on what others left in it; its end does not.
        told = found if file is None or file.checkpoints is None or found == len(file.ids) else 0
        return Plan(save, restore, beginning, file, goes_on, held, told)

    def is_worth_saving(self, slot: Slot) -> bool:
        """Whether a slot that is at rest holds more than its owner's files, and saving it is worth the cost."""
        if not slot.answered or slot.owner is None:
            return False
        _, known = self.kept.longest(slot.ids, slot.owner)
        # Twice: it is saved and restored.
        return self._pays(len(slot.ids) - known, 2 * len(slot.ids))

    def _is_way_back(self, slot: Slot, prompt: list[int], hints: Hints) -> bool:
        """Whether to save a slot because this prompt costs it the checkpoint to which its conversation will return."""
        if not hints.returns or not slot.answered or slot.owner is None or not is_at(hints.question, slot.checkpoints):
            return False
        question = prompt[: hints.question]
        _, known = self.kept.longest(question, slot.owner)
        return not is_at(hints.question, (known,)) and self._pays(len(question) - known, 2 * len(slot.ids))

    def is_worth_waiting(
        self, slot: Slot, prompt: list[int], owner: str, ids: list[int], checkpoints: Checkpoints
    ) -> bool:
        """Whether it pays to wait for a file of these ids of the same owner, which is being written."""
        _, found = self.kept.longest(prompt, owner)
        there = max(found, _own_share(slot, prompt, owner))
        return self._pays(reused(ids, checkpoints, prompt) - there, len(ids))

    def take(self, number: int, plan: Plan, owner: str, hints: Hints = NO_HINTS) -> None:
        """Note that a slot belongs to a prompt now: no file of another conversation is in it any more."""
        for file in self.kept.files:
            if file.owner == owner and not file.shared and is_continued(file.answer, hints):
                file.slot = number
            elif file.slot == number and not plan.held:
                file.slot = None
        if plan.own is not None:
            self.kept.ask_for(plan.own)
            plan.own.slot = number if plan.goes_on else None

    def _pays(self, ids: int, moved: int) -> bool:
        """Whether processing `ids` ids takes longer than moving a state of `moved` ids."""
        return ids > 0 and self.rates.to_process(ids) > self.rates.to_move(moved)

    def _best_of_all(
        self, slot: Slot, prompt: list[int], owner: str, file: SlotFile | None, found: int, in_place: int
    ) -> SlotFile | None:
        """The file to restore: the principal's own, unless what others have left brings more; None: what is there."""
        there = slot.reused(prompt) if slot.answered else 0
        if file is not None and there >= found:
            file = None
        least = max(found, in_place, there)
        other, more = self.kept.longest(prompt, None, least)
        if other is not None and other.owner != owner and self._pays(more - least, len(other.ids)):
            return other
        return file

    def _beginning(self, prompt: list[int], source: list[int], shared: int, owner: str) -> int:
        """How many ids of a prompt are a beginning that conversations share and that is not kept yet."""
        if takes_over(source, shared, prompt) or shared >= len(prompt):
            return 0
        known = self.kept.known_beginning(prompt[:shared], owner)
        # Beginnings that differ by only a few words count as the same.
        new = shared - known
        if new < _LEAST or new * 10 <= shared or not self._pays(new, 2 * shared):
            return 0
        return shared

    def _preamble(self, preamble: list[int], reused: int, owner: str) -> int:
        """How many ids of a preamble to keep: all, unless they are kept already, or a prompt reuses more than them."""
        size = len(preamble)
        if size < _LEAST or reused >= size or (size - self.kept.known_beginning(preamble, owner)) * 10 <= size:
            return 0
        return size if self._pays(size, 2 * size) else 0


def _own_share(slot: Slot, prompt: list[int], owner: str) -> int:
    """Ids at a prompt's beginning that its own principal has left in a slot, and that it reuses there."""
    return slot.reused(prompt) if slot.answered and slot.owner == owner and not slot.mixed else 0
