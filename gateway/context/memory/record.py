"""How an answer was made: the source of each of its ids, what its client changed, and how long each part took.

Kept with the remembered answer, and only while somebody is watching (`gateway/context/compose/recall.py`): a
conversation can continue without it. It holds figures and names, and no text except the few words around what a client
changed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.context.memory.misses import Miss
from gateway.observe.trajectories import Span

if TYPE_CHECKING:
    from array import array

_RECORD_BYTES: Final = 700
_PART_BYTES: Final = 160
"""Bytes that a record takes, and each span, generation and call of it, measured."""


@dataclass(frozen=True, slots=True)
class GenerationRecord:
    """One generation. Counts are ids, times are seconds; None: the engine did not say."""

    start: int
    """Ids of the context before it."""
    count: int
    reasoning: int
    """Part of `count`, at its beginning."""
    held: int
    """Ids of the previous generation's prompt and output: what could be reused."""
    cached: int | None
    """Ids of its prompt that were found in the cache."""
    prefilled: int
    """Ids that were processed while the tools before it worked."""
    prefilled_seconds: float
    """Seconds that the engine took for those."""
    first: float
    """Time to its first id, from when everything for it was there."""
    prompt_seconds: float | None
    generate_seconds: float | None
    guessed: bool
    logprobs: "array[float]"
    """Log-probabilities of its ids; NaN where the engine did not say. Empty: it was not asked."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call that the gateway made. Counts are ids of its result."""

    call_id: str
    name: str
    server: str | None
    seconds: float
    leaf: int
    shim: int
    is_error: bool


@dataclass(frozen=True, slots=True)
class AnswerRecord:
    """How one answer was made."""

    ended: str
    kept: int
    """Ids at its beginning that it has in common with the answer before."""
    spans: Sequence[Span]
    """Sources of all ids after those, as the answer is remembered."""
    generations: Sequence[GenerationRecord]
    calls: Sequence[CallRecord]
    recall_miss: Miss | None
    """What its client changed, where that is why it continues from nothing."""

    @property
    def size(self) -> int:
        """Bytes that it takes, approximately."""
        parts = len(self.spans) + len(self.generations) + len(self.calls)
        logprobs = sum(len(each.logprobs) * each.logprobs.itemsize for each in self.generations)
        return _RECORD_BYTES + parts * _PART_BYTES + logprobs
