"""Which slot a prompt gets if slots are swapped to files: what is saved first, what is restored, which files are kept.

A pure core: it is told what slots and files hold, and answers with a `Plan`. It knows no engine, no directory and no
clock. Decisions are made by cost: ids that need not be processed again, at the engine's rate, against bytes that must
be moved, at their rate (`engine_speed.py`).

What a principal is told about the cache must not depend on what others ask (docs/adr/0017). So everything that affects
it (what is saved, what its own file would bring, what is given up) is decided by its own files and by the sizes of
others', never by the ids of others. A file of another principal may add to what is reused, but nobody is told that.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from gateway.engine.interface import shared_prefix
from gateway.engine.slots.engine_speed import Rates
from gateway.engine.slots.slot import (
    NO_HINTS,
    Checkpoints,
    Hints,
    Slot,
    continued,
    is_at,
    is_continued,
    longest_rested,
    reused,
    takes_over,
)
from gateway.engine.slots.slot_directory import SlotFile

# Which slot files are kept, and which are given up for new ones.
#
# A pure core: it is told of files as they are written and asked for, and answers with those that must go. It knows no
# engine, no directory and no clock; which slot a prompt gets is decided below.
#
# The files that save least per byte go first; what has been given up since a file was used counts as its age
# (GreedyDual). Recency says little about many conversations that take turns: the one that has waited longest comes back
# first. So files that a waiting prompt needs are kept: it comes back sooner than a conversation that has just ended.

_FILES: Final = 4096
"""Most files in all: every file is compared with every prompt."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A prompt that waits for a slot, and the file that it will continue."""

    prompt: list[int]
    owner: str
    hints: Hints = NO_HINTS
    file: SlotFile | None = None
    found: int = 0
    """Ids that the file brings."""

    def see(self, file: SlotFile) -> None:
        """Use this file if it brings more.

        A file of another conversation with the same beginning is not used: the shared beginning soon has its own.
        """
        if self.found < min(len(file.ids), len(self.prompt)) and file.ids[self.found] == self.prompt[self.found]:
            brings = file.reused(self.prompt)
            goes_on = is_continued(file.answer, self.hints) or takes_over(file.ids, brings, self.prompt)
            if brings > self.found and (file.shared or goes_on):
                self.file, self.found = file, brings


class KeptFiles:
    """The slot files of one gateway."""

    def __init__(self, limit: int, share: float = 1.0) -> None:
        """Start without files.

        Args:
            limit: bytes of all files.
            share: part of them that one of several principals may have while others want room.
        """
        self.limit = limit
        self._share = share
        self.files: list[SlotFile] = []
        self.size = 0
        """Bytes of all files."""
        self._waiting: list[_Waiting] = []
        self._clock = 0
        self._floor = 0.0
        """The worth of what was given up last; files that are added or used after that are worth this much more."""

    def longest(self, prompt: list[int], owner: str | None, least: int = 0) -> tuple[SlotFile | None, int]:
        """The file of which a prompt reuses most ids, and how many, if more than `least`. `owner`: None: anybody."""
        found: SlotFile | None = None
        for file in self.files:
            # Most begin differently, so one id is compared before any slices are made.
            longer = least < min(len(file.ids), len(prompt)) and file.ids[least] == prompt[least]
            longer = longer and owner in (None, file.owner) and file.ids[:least] == prompt[:least]
            if longer and (brings := file.reused(prompt)) > least:
                found, least = file, brings
        return found, least

    def known_beginning(self, ids: list[int], owner: str) -> int:
        """How many of these ids a shared beginning of the owner brings."""
        return max((file.reused(ids) for file in self._own(owner) if file.shared), default=0)

    @contextmanager
    def awaiting(self, prompt: list[int], owner: str, hints: Hints = NO_HINTS) -> Generator[None]:
        """Keep the file that a prompt will continue, while it waits for a slot."""
        waiting = _Waiting(prompt, owner, hints)
        for file in self._own(owner):
            waiting.see(file)
        self._waiting.append(waiting)
        try:
            yield
        finally:
            self._waiting.remove(waiting)

    def make_room(self, ids: list[int], owner: str, size: int) -> list[SlotFile] | None:
        """Give up files until `size` more bytes fit, and return them; None if they can't, or are worth more."""
        if size > self.limit:
            return None
        known = self.known_beginning(ids, owner)
        rank = (True, self._floor + (len(ids) - known) / max(len(ids), 1), self._clock + 1)
        going: list[SlotFile] = []
        for file in sorted(filter(self._may_go(owner, size), self.files), key=lambda each: each.rank):
            if self._fits(size, going):
                break
            if file.rank > rank:
                # Raise the floor, so that what is asked for again and again is kept at some time.
                self._floor = max(self._floor, rank[1])
                return None
            going.append(file)
        if not self._fits(size, going):
            return None
        for file in going:
            if file.slot is None:
                self._floor = max(self._floor, file.floor + file.density)
            self.drop(file)
        return going

    def add(self, file: SlotFile, number: int | None = None) -> list[SlotFile]:
        """Add a file. Returns those that must go: the new file contains them, or there are too many bytes or files.

        Args:
            number: the slot that holds its conversation; None: it is a shared beginning, or from an earlier run.
        """
        known = self.known_beginning(file.ids, file.owner)
        # A beginning that two have asked for will be asked for more often than either. Where caches can't be cut, it is
        # kept at the first one (`ask_for`).
        twice = file.shared and file.checkpoints is None
        file.density = (1 + twice) * (len(file.ids) - known) / max(len(file.ids), 1)
        self.touch(file)
        own = [each for each in self._own(file.owner) if not each.shared and not each.readers]
        gone = [each for each in own if number is not None and _is_in(each, file, number)]
        for each in gone:
            self.drop(each)
        self.files.append(file)
        self.size += file.size
        for waiting in self._waiting:
            # A waiting prompt may continue it: its conversation came back before the slot was saved.
            if waiting.owner == file.owner:
                waiting.see(file)
        if file.shared:
            self._value_again(file)
        while self.size > self.limit or len(self.files) > _FILES:
            idle, awaited = [each for each in self.files if not each.readers], self._awaited()
            if not idle:
                break
            least = min(idle, key=lambda each: (each in awaited, each.rank))
            self.drop(least)
            gone.append(least)
        return gone

    def drop(self, file: SlotFile) -> None:
        """Forget a file, if it is known."""
        if file in self.files:
            self.files.remove(file)
            self.size -= file.size

    def ask_for(self, file: SlotFile) -> None:
        """Note that a prompt of its owner continues a file."""
        self.touch(file)
        if file.shared and file.checkpoints is not None and file.density <= 1:
            file.density *= 2

    def touch(self, file: SlotFile) -> None:
        """Note that the owner of a file has asked for it."""
        self._clock += 1
        file.used, file.floor = self._clock, self._floor

    def _awaited(self) -> set[SlotFile | None]:
        return {each.file for each in self._waiting}

    def _own(self, owner: str) -> Iterator[SlotFile]:
        return (file for file in self.files if file.owner == owner)

    def _value_again(self, beginning: SlotFile) -> None:
        """Lower the worth of files that continue a shared beginning: they save only what they have beyond it."""
        for file in self._own(beginning.owner):
            known = shared_prefix(file.ids, beginning.ids)
            if not file.shared and known:
                file.density = min(file.density, (len(file.ids) - known) / len(file.ids))

    def _may_go(self, owner: str, size: int) -> Callable[[SlotFile], bool]:
        """Which files may go for a new one of this owner: none that is about to be restored, or that a prompt awaits.

        If there are several principals, one that has its share makes room among its own files. For one that has less,
        files of those that have more may go, even if they are awaited.
        """
        held = Counter[str]()
        for file in self.files:
            held[file.owner] += file.size * (not file.readers)
        most = self.limit * self._share if len({owner, *held}) > 1 else self.limit
        has_its_share, awaited = held[owner] + size > most, self._awaited()

        def may_go(file: SlotFile) -> bool:
            if file.readers or (has_its_share and file.owner != owner):
                return False
            return file not in awaited or (file.owner != owner and held[file.owner] > most)

        return may_go

    def _fits(self, size: int, going: list[SlotFile]) -> bool:
        left = self.size - sum(file.size for file in going)
        return left + size <= self.limit and len(self.files) - len(going) < _FILES


def _is_in(file: SlotFile, newer: SlotFile, number: int) -> bool:
    """Whether a newer file replaces an older one: it begins with all of it, or continues it in that slot."""
    shared, asked_again = shared_prefix(file.ids, newer.ids), file.question < newer.question
    if shared < len(file.ids):
        return file.slot == number and (asked_again or takes_over(file.ids, shared, newer.ids))
    # Until the next question the conversation may come back to the last one, which the newer file may be unable to.
    return asked_again or is_at(newer.question, newer.checkpoints) or not is_at(file.question, file.checkpoints)


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
