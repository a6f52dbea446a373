"""One slot of an engine, as the gateway knows it: which ids it holds, whose they are, and whether that is sure.

A record, and the question whether a prompt goes on with what it holds. Who gets it is decided elsewhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from gateway.engine.left_behind import shared_prefix


@dataclass(slots=True)
class Slot:
    """One slot while a generation has it. The generation says afterwards what it holds (`holds`)."""

    number: int
    ids: list[int] = field(default_factory=list[int])
    owner: str | None = None
    """The principal whose ids it holds."""
    used: int = 0
    """When it was used last, as a count of hand-outs."""
    at_rest: bool = False
    """Whether the engine has told the end of the last generation in it."""
    answered: bool = False
    """Whether the engine has answered the last generation: only then has it processed the prompt."""
    mixed: bool = False
    """Whether it may still hold what another principal than its owner has left."""

    def holds(self, ids: list[int], *, at_rest: bool, answered: bool) -> None:
        """Note what a generation has left in it.

        Args:
            at_rest: the engine told its end itself.
            answered: it has answered. Of a prompt that was given up before, or refused, nobody knows what it processed.
        """
        self.ids = ids
        self.at_rest = at_rest
        self.answered = answered


_TAIL: Final = 16
"""Ids at the end of what is held that count as nothing: there the texts of clients differ from what a model wrote."""


def goes_on(ids: Sequence[int], shared: int) -> bool:
    """Whether a prompt that shares so many ids with these goes on with them, rather than beginning like them."""
    return shared >= _enough(ids)


def _enough(ids: Sequence[int]) -> int:
    """How many of these ids a prompt shares at least that goes on with them.

    A tenth may be lost: an answer that is asked for again differs from what was held at its end.
    """
    return max(1, -(-len(ids) * 9 // 10))


def takes_over(ids: Sequence[int], shared: int, prompt: Sequence[int]) -> bool:
    """Whether nobody will ask for these ids again once this prompt, which shares so many of them, has their slot.

    What a conversation has of its own may be less than a tenth of it. So it is not enough to go on with nearly all.
    """
    return goes_on(ids, shared) and (len(ids) - shared <= _TAIL or shared >= len(prompt) - 1)


def continued(free: Sequence[Slot], prompt: Sequence[int], owner: str) -> Slot | None:
    """The free slot that a prompt of this owner goes on with: the one of which most is reused."""
    continuing = [slot for slot in free if slot.owner == owner and _is_continued(slot.ids, prompt)]
    # Of those with which as much is reused, the longest rested.
    return max(continuing, key=lambda slot: (shared_prefix(slot.ids, prompt), -slot.used), default=None)


def longest_rested(free: Sequence[Slot]) -> Slot:
    """The free slot that was used longest ago."""
    return min(free, key=lambda slot: slot.used)


def _is_continued(ids: Sequence[int], prompt: Sequence[int]) -> bool:
    """Whether the prompt goes on with these ids. A big engine has many slots: one id tells mostly, before slices."""
    least = _enough(ids)
    if not ids or least > len(prompt) or ids[least - 1] != prompt[least - 1]:
        return False
    return ids[:least] == prompt[:least]
