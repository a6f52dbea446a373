"""Which slot a prompt gets where slots are swapped to files: what is saved first, what is restored, what is given up.

A pure core: it is told what slots and files hold, and answers with a `Plan`. It knows no engine, no directory and no
clock. All of it is decided by cost: ids that need not be processed again, at the rate at which the engine processes
them, against bytes that must be moved, at the rate at which they are (`rates.py`).

What a principal is told of the cache must not depend on what others ask (docs/adr/0017). So everything that bears on
it (what is saved, what its own file would bring, what is given up) is decided by its own files and by the sizes of
others', never by the ids of others; a file of another only adds to that what nobody is told of.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.engine.left_behind import shared_prefix
from gateway.engine.rates import Rates
from gateway.engine.slot import Slot, continued, longest_rested, takes_over
from gateway.engine.slot_file import SlotFile

_FILES: Final = 4096
"""Files in all: each is looked at for each prompt."""
_LEAST: Final = 32
"""Ids of a beginning that is worth a file of its own: fewer are processed in the time of the requests for it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done with a slot before a prompt runs in it, in this order."""

    save: bool = False
    restore: SlotFile | None = None
    beginning: int = 0
    """Ids at the prompt's beginning that are to be kept as a file of their own, since conversations share them."""
    own: SlotFile | None = None
    """The principal's own file that it has, or would have if another's had not brought more."""
    goes_on: bool = False
    """Whether the prompt is that of the own file's conversation."""
    told: int = 0
    """Ids that the principal may be told that it found again: those of its own file."""


class Paging:
    """The slot files of one gateway."""

    def __init__(self, limit: int, rates: Rates, *, isolate: bool = False, share: float = 1.0) -> None:
        """There are none yet.

        Args:
            limit: bytes of all files.
            rates: what processing and moving take.
            isolate: whether no principal is ever served by a file of another.
            share: part of the bytes that one of several principals may have while others want room.
        """
        self.limit = limit
        self.rates = rates
        self._isolate = isolate
        self._share = share
        self._engine: str | None = None
        self.files: list[SlotFile] = []
        self.size = 0
        """Bytes of all files."""
        self._clock = 0
        self._floor = 0.0
        """The worth of what was given up last: what has come or was used since then is worth so much more."""

    def fit(self, engine: str) -> bool:
        """Whether an engine that has come up is such a one as wrote the files; its slots hold none of them yet."""
        for file in self.files:
            file.slot = None
        return self._engine == engine

    def begin(self, engine: str) -> None:
        """From now on this is the engine that writes the files."""
        self._engine = engine

    def choose(self, free: Sequence[Slot], prompt: list[int], owner: str) -> Slot:
        """The free slot in which this prompt costs least, with what it takes to bring back what is there now."""
        file, found = self._longest(prompt, owner)
        oldest, going_on = longest_rested(free), continued(free, prompt, owner)
        alike = max(free, key=lambda slot: _own_share(slot, prompt, owner))
        offers = [(slot, _own_share(slot, prompt, owner), 0) for slot in (going_on, oldest, alike) if slot is not None]
        if file is not None:
            offers += [(slot, found, len(file.ids)) for slot in (going_on, oldest) if slot is not None]

        def cost(offer: tuple[Slot, int, int]) -> float:
            slot, reused, moved = offer
            stays = not moved and takes_over(slot.ids, reused, prompt)
            given_up = 0 if stays or not slot.answered else 2 * len(slot.ids)
            return self.rates.to_process(len(prompt) - reused) + self.rates.to_move(moved + given_up)

        return min(offers, key=cost)[0]

    def plan(self, slot: Slot, prompt: list[int], owner: str) -> Plan:
        """What is done with a slot that is at rest, before this prompt runs in it. Carry it out at once."""
        in_place = _own_share(slot, prompt, owner)
        file, found = self._longest(prompt, owner)
        if file is None or not self._pays(found - in_place, len(file.ids)):
            file, found = None, 0
        source, shared = (file.ids, found) if file is not None else (slot.ids, in_place)
        stays = file is None and takes_over(slot.ids, in_place, prompt)
        beginning = self._beginning(prompt, source, shared, owner)
        save = not stays and self.is_worth_saving(slot)
        restore = file
        if not (self._isolate or beginning):
            restore = self._best_of_all(slot, prompt, owner, file, found, in_place)
        goes_on = file is not None and not file.shared and takes_over(file.ids, found, prompt)
        return Plan(save, restore, beginning, file, goes_on, found)

    def is_worth_saving(self, slot: Slot) -> bool:
        """Whether a slot that is at rest holds more than the files of its owner, and moving that pays."""
        if not slot.answered or slot.owner is None:
            return False
        _, known = self._longest(slot.ids, slot.owner)
        # There and back.
        return self._pays(len(slot.ids) - known, 2 * len(slot.ids))

    def take(self, number: int, plan: Plan) -> None:
        """A slot is another prompt's now, and what it held is saved: no file is what it goes on with."""
        for file in self.files:
            if file.slot == number:
                file.slot = None
        if plan.own is not None:
            self._touch(plan.own)
            plan.own.slot = number if plan.goes_on else None

    def make_room(self, ids: list[int], owner: str, size: int) -> list[SlotFile] | None:
        """Give files up until so many bytes more fit; None where what is new is worth less than what would go."""
        if size > self.limit:
            return None
        known = self._known_beginning(ids, owner)
        rank = (True, self._floor + (len(ids) - known) / max(len(ids), 1), self._clock + 1)
        going: list[SlotFile] = []
        for file in sorted(self._that_may_go(owner, size), key=lambda each: each.rank):
            if self._fits(size, going):
                break
            if file.rank > rank:
                # So that what is asked for over and over comes in some time.
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
        """Know a file from now on. Gives those that have to go: it begins with them, or they are too much now.

        Args:
            number: the slot whose conversation it is; None: it is a beginning that several share, or from a run before.
        """
        known = self._known_beginning(file.ids, file.owner)
        # A beginning that two have asked for will be asked for more often than either.
        file.density = (1 + file.shared) * (len(file.ids) - known) / max(len(file.ids), 1)
        self._touch(file)
        own = [each for each in self._own(file.owner) if not each.shared and not each.readers]
        gone = [each for each in own if number is not None and _is_in(each, file, number)]
        for each in gone:
            self.drop(each)
        self.files.append(file)
        self.size += file.size
        if file.shared:
            self._value_again(file)
        while self.size > self.limit or len(self.files) > _FILES:
            least = min((each for each in self.files if not each.readers), key=lambda each: each.rank, default=None)
            if least is None:
                break
            self.drop(least)
            gone.append(least)
        return gone

    def drop(self, file: SlotFile) -> None:
        """Forget a file, if it is known."""
        if file in self.files:
            self.files.remove(file)
            self.size -= file.size

    def _touch(self, file: SlotFile) -> None:
        self._clock += 1
        file.used, file.floor = self._clock, self._floor

    def _own(self, owner: str) -> Iterator[SlotFile]:
        return (file for file in self.files if file.owner == owner)

    def _longest(self, prompt: list[int], owner: str | None, least: int = 0) -> tuple[SlotFile | None, int]:
        """The file that shares most with a prompt, if that is more than `least`; None as the owner: anybody's."""
        found: SlotFile | None = None
        for file in self.files:
            # Most begin otherwise: one id tells, before slices are made.
            longer = least < min(len(file.ids), len(prompt)) and file.ids[least] == prompt[least]
            if longer and owner in (None, file.owner) and file.ids[:least] == prompt[:least]:
                found, least = file, shared_prefix(file.ids, prompt)
        return found, least

    def _pays(self, ids: int, moved: int) -> bool:
        """Whether so many ids are processed in more time than a state is moved in."""
        return ids > 0 and self.rates.to_process(ids) > self.rates.to_move(moved)

    def _best_of_all(
        self, slot: Slot, prompt: list[int], owner: str, file: SlotFile | None, found: int, in_place: int
    ) -> SlotFile | None:
        """The principal's own file, unless what others have left brings more."""
        there = shared_prefix(slot.ids, prompt) if slot.answered else 0
        if file is not None and there >= found:
            file = None
        least = max(found, in_place, there)
        other, more = self._longest(prompt, None, least)
        if other is not None and other.owner != owner and self._pays(more - least, len(other.ids)):
            return other
        return file

    def _beginning(self, prompt: list[int], source: list[int], shared: int, owner: str) -> int:
        """How much of what a prompt is made from is a beginning that conversations share, and is not kept yet."""
        if takes_over(source, shared, prompt) or shared >= len(prompt):
            return 0
        known = self._known_beginning(prompt[:shared], owner)
        # Those that differ by a word more or less are one.
        new = shared - known
        if new < _LEAST or new * 10 <= shared or not self._pays(new, 2 * shared):
            return 0
        return shared

    def _known_beginning(self, ids: list[int], owner: str) -> int:
        """How many of these ids a shared file of the owner's has."""
        return max((shared_prefix(file.ids, ids) for file in self._own(owner) if file.shared), default=0)

    def _value_again(self, beginning: SlotFile) -> None:
        """What goes on from a shared beginning is worth only what it has beyond that."""
        for file in self._own(beginning.owner):
            known = shared_prefix(file.ids, beginning.ids)
            if not file.shared and known:
                file.density = min(file.density, (len(file.ids) - known) / len(file.ids))

    def _that_may_go(self, owner: str, size: int) -> list[SlotFile]:
        """All that are not in use; of several principals one that has its share makes room among its own."""
        idle = [file for file in self.files if not file.readers]
        mine = [file for file in idle if file.owner == owner]
        if len(mine) == len(idle) or sum(file.size for file in mine) + size <= self.limit * self._share:
            return idle
        return mine

    def _fits(self, size: int, going: list[SlotFile]) -> bool:
        left = self.size - sum(file.size for file in going)
        return left + size <= self.limit and len(self.files) - len(going) < _FILES


def _own_share(slot: Slot, prompt: list[int], owner: str) -> int:
    """Ids of a prompt that its own principal has left in a slot."""
    return shared_prefix(slot.ids, prompt) if slot.answered and slot.owner == owner and not slot.mixed else 0


def _is_in(file: SlotFile, newer: SlotFile, number: int) -> bool:
    """Whether a newer file makes an older one needless: it begins with it, or goes on with it in that slot."""
    shared = shared_prefix(file.ids, newer.ids)
    return shared == len(file.ids) or (file.slot == number and takes_over(file.ids, shared, newer.ids))
