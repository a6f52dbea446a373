"""Which slot files are kept, and which are given up for new ones.

A pure core: it is told of files as they come and are asked for, and answers with those that have to go. It knows no
engine, no directory and no clock; which slot a prompt gets is decided in `paging.py`.

What goes first is what saves least a byte, grown older by what was given up since (GreedyDual). Recency says little of
many conversations that take turns: the one that has waited longest comes back first. So what waits for a slot is kept:
it comes back sooner than what has just ended.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from gateway.engine.left_behind import shared_prefix
from gateway.engine.slot import takes_over
from gateway.engine.slot_file import SlotFile

_FILES: Final = 4096
"""Files in all: each is looked at for each prompt."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A prompt that waits for a slot, and the file that it will go on with."""

    prompt: list[int]
    owner: str
    file: SlotFile | None = None
    found: int = 0
    """Ids that it brings."""

    def see(self, file: SlotFile) -> None:
        """Go on with this one if it brings more.

        Of another conversation that begins alike the shared beginning is enough: it has a file of its own soon.
        """
        if self.found < min(len(file.ids), len(self.prompt)) and file.ids[self.found] == self.prompt[self.found]:
            shared = shared_prefix(file.ids, self.prompt)
            if shared > self.found and (file.shared or takes_over(file.ids, shared, self.prompt)):
                self.file, self.found = file, shared


class KeptFiles:
    """The slot files of one gateway."""

    def __init__(self, limit: int, share: float = 1.0) -> None:
        """There are none yet.

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
        """The worth of what was given up last: what has come or was used since then is worth so much more."""

    def longest(self, prompt: list[int], owner: str | None, least: int = 0) -> tuple[SlotFile | None, int]:
        """The file that shares most with a prompt, if that is more than `least`; None as the owner: anybody's."""
        found: SlotFile | None = None
        for file in self.files:
            # Most begin otherwise: one id tells, before slices are made.
            longer = least < min(len(file.ids), len(prompt)) and file.ids[least] == prompt[least]
            if longer and owner in (None, file.owner) and file.ids[:least] == prompt[:least]:
                found, least = file, shared_prefix(file.ids, prompt)
        return found, least

    def known_beginning(self, ids: list[int], owner: str) -> int:
        """How many of these ids a shared file of the owner's has."""
        return max((shared_prefix(file.ids, ids) for file in self._own(owner) if file.shared), default=0)

    @contextmanager
    def awaiting(self, prompt: list[int], owner: str) -> Generator[None]:
        """While a prompt waits for a slot: what it will go on with is kept."""
        waiting = _Waiting(prompt, owner)
        for file in self._own(owner):
            waiting.see(file)
        self._waiting.append(waiting)
        try:
            yield
        finally:
            self._waiting.remove(waiting)

    def make_room(self, ids: list[int], owner: str, size: int) -> list[SlotFile] | None:
        """Give files up until so many bytes more fit; None where what is new is worth less than what would go."""
        if size > self.limit:
            return None
        known = self.known_beginning(ids, owner)
        rank = (True, self._floor + (len(ids) - known) / max(len(ids), 1), self._clock + 1)
        going: list[SlotFile] = []
        for file in sorted(filter(self._may_go(owner, size), self.files), key=lambda each: each.rank):
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
        known = self.known_beginning(file.ids, file.owner)
        # A beginning that two have asked for will be asked for more often than either.
        file.density = (1 + file.shared) * (len(file.ids) - known) / max(len(file.ids), 1)
        self.touch(file)
        own = [each for each in self._own(file.owner) if not each.shared and not each.readers]
        gone = [each for each in own if number is not None and _is_in(each, file, number)]
        for each in gone:
            self.drop(each)
        self.files.append(file)
        self.size += file.size
        for waiting in self._waiting:
            # It has ended and come back before its slot was saved.
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

    def touch(self, file: SlotFile) -> None:
        """Its owner has asked for it."""
        self._clock += 1
        file.used, file.floor = self._clock, self._floor

    def _awaited(self) -> set[SlotFile | None]:
        return {each.file for each in self._waiting}

    def _own(self, owner: str) -> Iterator[SlotFile]:
        return (file for file in self.files if file.owner == owner)

    def _value_again(self, beginning: SlotFile) -> None:
        """What goes on from a shared beginning is worth only what it has beyond that."""
        for file in self._own(beginning.owner):
            known = shared_prefix(file.ids, beginning.ids)
            if not file.shared and known:
                file.density = min(file.density, (len(file.ids) - known) / len(file.ids))

    def _may_go(self, owner: str, size: int) -> Callable[[SlotFile], bool]:
        """Which files may go for one of this owner's: none that is about to be restored, or that somebody waits for.

        Of several principals one that has its share makes room among its own; to one that has not, those that have
        more give way, wait as they may.
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
    """Whether a newer file makes an older one needless: it begins with it, or goes on with it in that slot."""
    shared = shared_prefix(file.ids, newer.ids)
    return shared == len(file.ids) or (file.slot == number and takes_over(file.ids, shared, newer.ids))
