"""One slot of an engine, as the gateway knows it: which ids it holds, whose they are, and where it can be cut.

A record, and the rules for when a prompt continues what a slot holds. Which generation gets it is decided elsewhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from gateway.engine.embedded.child_process import KEPT_CHECKPOINTS
from gateway.engine.interface import shared_prefix

# How much of a cache a prompt can reuse, where the cache can only go back to checkpoints.
#
# A dense model's cache can be cut behind any token. One with sliding windows or recurrent layers can only be continued
# at its end, or taken back to a checkpoint, of which llama.cpp makes two for each prompt that it processes
# (`tools/server/server-context.cpp`): everything behind the checkpoint is processed again. Pure; positions and counts
# are tokens. A position that is assumed too early costs a decision; what the engine reports corrects it at the next
# prompt.

Checkpoints = tuple[int, ...] | None
"""Where a cache can go back to, in order; None: anywhere."""

_END: Final = 4
"""llama.cpp makes a checkpoint so many tokens before a prompt's end,"""
_BATCH: Final = 512 + _END
"""and another so many before it, or where the reused part ended if that is nearer."""


def reused(ids: Sequence[int], checkpoints: Checkpoints, prompt: Sequence[int]) -> int:
    """How many tokens at the beginning of a prompt need not be processed by a cache that holds these ids."""
    shared = shared_prefix(ids, prompt)
    if checkpoints is None or shared == len(ids):
        return shared
    return max((place for place in checkpoints if place <= shared), default=0)


def after_prompt(checkpoints: Checkpoints, prompt: int, cached: int | None) -> Checkpoints:
    """The checkpoints of a slot that has processed a prompt.

    Args:
        checkpoints: those that it had before.
        prompt: tokens of the prompt.
        cached: how many of them were reused, as the engine reports; None: it did not.
    """
    if checkpoints is None:
        return None
    if cached is None:
        return tuple(place for place in (prompt - _END,) if place > 0)
    # Those behind the place to which it went back are gone.
    places = {place for place in checkpoints if place <= cached}
    places |= {place for place in (prompt - _BATCH, prompt - _END) if place > cached}
    if cached > 0 and prompt - cached <= _BATCH:
        places.add(cached)
    return tuple(sorted(places)[-KEPT_CHECKPOINTS:])


@dataclass(frozen=True, slots=True)
class Hints:
    """What is known of the conversation whose prompt needs a slot, and can't be seen from the ids."""

    preamble: int = 0
    """Ids at the prompt's beginning that other conversations begin with too."""
    question: int = 0
    """Ids up to the end of the user's last message; 0: not known."""
    returns: bool = False
    """Whether the conversation will come back to that place: its template drops what the model thought after it."""
    answer: str = ""
    """The name of the answer that is being made."""
    before: str = ""
    """The name of the answer that it continues from, if one is remembered."""


NO_HINTS: Final = Hints()
_NEAR: Final = 16
"""Ids that a checkpoint may lie before a place and still count as being there."""


@dataclass(slots=True, eq=False)
class Slot:
    """One slot, equal to itself alone. The generation that has used it notes what it holds (`holds`)."""

    number: int
    ids: list[int] = field(default_factory=list[int])
    owner: str | None = None
    """The principal whose ids it holds."""
    used: int = 0
    """When it was last used, as a count of slots handed out."""
    at_rest: bool = False
    """Whether the engine has reported the end of the last generation in it."""
    left: float | None = None
    """When a generation left it at work, by the monotonic clock; None: none has, or it has come to rest since."""
    answered: bool = False
    """Whether the engine has answered the last generation: only then has it processed the prompt."""
    mixed: bool = False
    """Whether it may still hold what a principal other than its owner has left."""
    checkpoints: Checkpoints = None
    """Where what it holds can be cut."""
    answer: str = ""
    """The name of the answer whose ids it holds."""
    question: int = 0
    """Ids up to the user's message that it answers; 0: not known."""

    def holds(
        self, ids: list[int], *, at_rest: bool, answered: bool, prompt: int = 0, cached: int | None = None
    ) -> None:
        """Note what a generation has left in it.

        Args:
            at_rest: whether the engine reported the end.
            answered: whether the engine has answered. If a prompt was refused, or given up before the answer, nobody
                knows how much of it was processed.
            prompt: ids that the engine was given.
            cached: ids of those that it reused; None: it did not report that.
        """
        self.ids = ids
        self.at_rest = at_rest
        self.answered = answered
        if answered and self.checkpoints is not None:
            self.checkpoints = after_prompt(self.checkpoints, prompt or len(ids), cached)

    def reused(self, prompt: Sequence[int]) -> int:
        """How many ids of a prompt need not be processed in it."""
        return reused(self.ids, self.checkpoints, prompt)

    def is_continued_by(self, hints: Hints) -> bool:
        """Whether it holds the conversation that a prompt continues, of which nothing but that prompt is needed."""
        return is_continued(self.answer, hints)


def is_continued(answer: str, hints: Hints) -> bool:
    """Whether a prompt continues the conversation that was left with this answer, or makes more of it."""
    return bool(answer) and answer in (hints.before, hints.answer)


def is_at(question: int, checkpoints: Checkpoints) -> bool:
    """Whether a cache can go back to the end of a user's message."""
    return checkpoints is not None and any(question - _NEAR < place <= question for place in checkpoints)


_TAIL: Final = 16
"""Ids at the end of what is held that are ignored: there, the texts of clients differ from what the model wrote."""


def goes_on(ids: Sequence[int], shared: int) -> bool:
    """Whether a prompt that shares this many ids with these continues them, and does not just begin like them."""
    return shared >= _enough(ids)


def _enough(ids: Sequence[int]) -> int:
    """How many of these ids a prompt must share to count as their continuation.

    A tenth may differ: an answer that is asked for again differs at the end from what was held.
    """
    return max(1, len(ids) - len(ids) // 10)


def takes_over(ids: Sequence[int], shared: int, prompt: Sequence[int]) -> bool:
    """Whether these ids are no longer needed once a prompt that shares this many of them has their slot.

    A conversation's own part may be less than a tenth of it, so sharing nearly all of the ids is not enough.
    """
    return goes_on(ids, shared) and (len(ids) - shared <= _TAIL or shared >= len(prompt) - 1)


def continued(free: Sequence[Slot], prompt: Sequence[int], owner: str) -> Slot | None:
    """The free slot that a prompt of this owner continues: the one of which most is reused."""
    continuing = [slot for slot in free if slot.owner == owner and _is_continued(slot.ids, prompt)]
    # Of those of which equally much is reused, the one that was used longest ago.
    return max(continuing, key=lambda slot: (shared_prefix(slot.ids, prompt), -slot.used), default=None)


def longest_rested(free: Sequence[Slot]) -> Slot:
    """The free slot that was used longest ago."""
    return min(free, key=attrgetter("used"))


def _is_continued(ids: Sequence[int], prompt: Sequence[int]) -> bool:
    """Whether the prompt continues these ids. A big engine has many slots, so one id is compared before any slices."""
    least = _enough(ids)
    if not ids or least > len(prompt) or ids[least - 1] != prompt[least - 1]:
        return False
    return ids[:least] == prompt[:least]
