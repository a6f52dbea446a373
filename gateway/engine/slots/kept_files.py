"""Which slot files are kept, and which are given up for new ones.

A pure core: it is told of files as they are written and asked for, and answers with those that must go. It knows no
engine, no directory and no clock; which slot a prompt gets is decided in `paging.py`.

The files that save least per byte go first; what has been given up since a file was used counts as its age
(GreedyDual). Recency says little about many conversations that take turns: the one that has waited longest comes back
first. So files that a waiting prompt needs are kept: it comes back sooner than a conversation that has just ended.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from gateway.engine.left_behind import shared_prefix
from gateway.engine.slots.slot import NO_HINTS, Hints, is_at, is_continued, takes_over
from gateway.engine.slots.slot_file import SlotFile

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
