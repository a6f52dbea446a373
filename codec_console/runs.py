"""The ids of a conversation as runs of one source each, built answer by answer.

Every id belongs to exactly one run, and runs are in order. Spans are appended as answers lengthen a conversation; where
more is learned about some ids, it overwrites their runs afterwards. Pure.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from gateway.observe.trajectories import Source, Span

if TYPE_CHECKING:
    from array import array

RunSource = Source | Literal["reasoning", "unknown"]


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive ids with one source."""

    start: int
    count: int
    source: RunSource
    tool: str | None = None
    server: str | None = None
    call: int | None = None
    """Number, in the conversation, of the call whose result the ids are; None where they are no result."""

    @property
    def stop(self) -> int:
        """Position at which the next run begins."""
        return self.start + self.count


class Runs:
    """A sequence of runs that is being built. It begins at 0 and has no gaps."""

    def __init__(self) -> None:
        self._runs: list[Run] = []

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    @property
    def count(self) -> int:
        """How many ids there are in all."""
        return self._runs[-1].stop if self._runs else 0

    def cut(self, count: int) -> None:
        """Keep only the first `count` ids."""
        del self._runs[self._split(count) :]

    def add(self, spans: Iterable[Span]) -> None:
        """Append ids with these sources."""
        for span in spans:
            if span.count:
                self._runs.append(Run(self.count, span.count, span.source, span.tool, span.server))

    def add_unknown(self, count: int) -> None:
        """Append ids whose source is not known."""
        if count > 0:
            self._runs.append(Run(self.count, count, "unknown"))

    def between(self, start: int, stop: int) -> Sequence[Run]:
        """The runs of these ids, split at both ends if necessary."""
        first, last = self._split(start), self._split(stop)
        return self._runs[first:last]

    def tell(
        self, start: int, count: int, source: RunSource, tool: str | None = None, server: str | None = None
    ) -> None:
        """Set the source of these ids."""
        if count > 0:
            first, last = self._split(start), self._split(start + count)
            self._runs[first:last] = [Run(start, count, source, tool, server)]

    def link(self, start: int, count: int, call: int) -> None:
        """Mark these ids as the result of a call."""
        first, last = self._split(start), self._split(start + count)
        self._runs[first:last] = [replace(run, call=call) for run in self._runs[first:last]]

    def _split(self, at: int) -> int:
        """The index of the run that begins at this id, splitting one if necessary; past the end, the number of runs."""
        number = bisect_right(self._runs, at, key=lambda run: run.start) - 1
        if number < 0 or at >= self.count:
            return len(self._runs) if at else 0
        run = self._runs[number]
        if run.start == at:
            return number
        self._runs[number : number + 1] = [
            replace(run, count=at - run.start),
            replace(run, start=at, count=run.stop - at),
        ]
        return number + 1


def only_places(ids: "array[int]", parts: Sequence["array[int]"]) -> list[int] | None:
    """The positions of these parts in the ids, in order; None where they fit in more than one way, or not at all."""
    data, size = ids.tobytes(), ids.itemsize
    first: list[int] = []
    last: list[int] = []
    at, end = 0, len(data)
    for part in (each.tobytes() for each in parts):
        found = data.find(part, at)
        while found > 0 and found % size:
            found = data.find(part, found + 1)
        first.append(found // size)
        at = found + len(part)
    for part in (each.tobytes() for each in reversed(parts)):
        found = data.rfind(part, 0, end)
        while found > 0 and found % size:
            found = data.rfind(part, 0, found + len(part) - 1)
        last.append(found // size)
        end = max(found, 0)
    return first if first == last[::-1] and min(first, default=0) >= 0 else None
