"""One conversation as it is looked at: all its ids as runs of one source each, and its turns, calls and reuse.

Turns what is remembered of a conversation (`gateway/agent/memory`) into that, without guessing: where memory does not
know a source it is `unknown`. Of an answer that was recorded while it was made all is known; of any other, the turns of
the model are, and results between them that can stand in one place only. Pure.
"""

from array import array
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, islice
from typing import Any, Final, cast

from gateway.agent.memory import CallRecord, Found, GenerationRecord, Lived, Remembered
from gateway.serve.console.runs import Run, Runs, only_places

_SEARCHED: Final = 20_000
"""Ids between two turns in which results are looked for that nobody has recorded."""


@dataclass(frozen=True, slots=True)
class SeenCall:
    """A call of the model."""

    call_id: str
    name: str
    arguments: str
    turn: int
    """Which turn wrote it, by its number in the conversation."""
    record: CallRecord | None
    """None where the client made it, or nobody looked."""
    result: "array[int] | None"
    """What it gave, where the gateway made it."""


@dataclass(frozen=True, slots=True)
class SeenTurn:
    """A generation of the model."""

    answer: int
    """Which answer it is part of, by its number in the conversation."""
    count: int
    start: int | None
    """Where it stands; None where that is not known, or a later request has placed it elsewhere."""
    record: GenerationRecord | None
    """None where nobody looked."""
    calls: Sequence[int]
    """By their numbers in the conversation."""


@dataclass(frozen=True, slots=True)
class SeenAnswer:
    """The answer to one request."""

    answer_id: str
    made: float | None
    """When, by the clock that never goes back."""
    kept: int
    """Ids of the answer before with which it begins."""
    ended: str | None
    found: Found | None
    recorded: bool


@dataclass(frozen=True, slots=True)
class CacheEnd:
    """How much of its prompt a generation found in the cache. Counts are ids."""

    turn: int
    cached: int
    held: int
    """What was there to be found."""
    prompt: int


@dataclass(frozen=True, slots=True)
class SeenConversation:
    """A conversation up to one of its answers."""

    number: int
    answer_id: str
    principal: str
    model: str | None
    map_id: str | None
    ids: "array[int]"
    runs: Sequence[Run]
    answers: Sequence[SeenAnswer]
    turns: Sequence[SeenTurn]
    calls: Sequence[SeenCall]

    def cache_ends(self) -> Iterator[CacheEnd]:
        """Where the cache ended for each generation that stands where it was made, and of which it is known."""
        for number, turn in enumerate(self.turns):
            if turn.record is not None and turn.record.cached is not None and turn.start is not None:
                yield CacheEnd(number, turn.record.cached, turn.record.held, turn.start)


def see(last: Remembered) -> SeenConversation:
    """Give the conversation that ended with this answer."""
    # As they are now: what was recorded of them may be forgotten meanwhile.
    nodes = [copy(node) for node in last.chain()]
    runs = Runs()
    for node in nodes:
        runs.cut(node.kept if node.record is None else node.record.kept)
        if node.record is not None:
            runs.add(node.record.spans)
        else:
            runs.add_unknown(node.kept + len(node.added) - runs.count)
    ids: array[int] = array("I")
    for node in nodes:
        del ids[node.kept :]
        ids.extend(node.added)
    turns: list[SeenTurn] = []
    calls: list[SeenCall] = []
    for number, node in enumerate(nodes):
        stay = min((each.kept for each in nodes[number + 1 :]), default=len(ids))
        _Reader(node, number, stay, turns, calls).read(runs, ids)
    known = next((node for node in reversed(nodes) if node.model is not None), last)
    return SeenConversation(
        number=last.number,
        answer_id=last.answer_id,
        principal=last.owner,
        model=known.model,
        map_id=known.map_id,
        ids=ids,
        runs=tuple(runs),
        answers=[_answer(node) for node in nodes],
        turns=turns,
        calls=calls,
    )


def _answer(node: Remembered) -> SeenAnswer:
    record = node.record
    ended, found = (None, None) if record is None else (record.ended, record.found)
    return SeenAnswer(node.answer_id, node.made, node.kept, ended, found, recorded=record is not None)


@dataclass(slots=True)
class _Reader:
    """Reads the turns and results of one answer."""

    node: Remembered
    number: int
    stay: int
    """Ids of it that stand where they stood, whatever came later."""
    turns: list[SeenTurn]
    calls: list[SeenCall]
    results: list[tuple[int, Lived]] = field(default_factory=list[tuple[int, Lived]])
    """Of the last turn, with the number of the call that each answers."""

    def read(self, runs: Runs, ids: "array[int]") -> None:
        """Tell its turns and calls, and what they say of the ids."""
        record = self.node.record
        records = iter(() if record is None else record.generations)
        before: int | None = None
        for lived in self.node.lived:
            if lived.turn is None:
                self._add_result(lived)
                continue
            start = self._start(lived)
            if before is not None and start is not None and start <= self.stay:
                self._place(runs, ids, before, start)
            self.results.clear()
            self._add_turn(lived, start, next(records, None), runs)
            before = None if start is None else start + len(lived.ids)

    def _start(self, lived: Lived) -> int | None:
        end = self.node.kept + len(self.node.added)
        is_last = lived is next(each for each in reversed(self.node.lived) if each.turn is not None)
        return end - len(lived.ids) if is_last else lived.turn.start if lived.turn is not None else None

    def _add_turn(self, lived: Lived, start: int | None, record: GenerationRecord | None, runs: Runs) -> None:
        made = {} if self.node.record is None else {call.call_id: call for call in self.node.record.calls}
        numbers: list[int] = []
        for call in cast("list[dict[str, Any]]", lived.message.get("tool_calls") or []):
            numbers.append(len(self.calls))
            function = call["function"]
            call_id, name, arguments = str(call["id"]), str(function["name"]), str(function["arguments"])
            turn = len(self.turns)
            self.calls.append(SeenCall(call_id, name, arguments, turn, made.get(call_id), None))
        size = len(lived.ids)
        left = 0 if start is None else min(max(self.stay - start, 0), size)
        place = start if start is not None and start + size <= self.stay else None
        self.turns.append(SeenTurn(self.number, size, place, record, numbers))
        if start is None:
            return
        own = min(lived.own, left)
        if self.node.record is None:
            runs.tell(start, own, "model")
            runs.tell(start + own, left - own, "assistant")
        elif record is not None:
            runs.tell(start, min(record.reasoning, own), "reasoning")

    def _add_result(self, lived: Lived) -> None:
        """Note what a call of the last turn gave."""
        answered = str(lived.message.get("tool_call_id"))
        mine = self.turns[-1].calls if self.turns else ()
        number = next((each for each in mine if self.calls[each].call_id == answered), None)
        if number is not None:
            self.calls[number] = replace(self.calls[number], result=lived.ids)
            self.results.append((number, lived))

    def _place(self, runs: Runs, ids: "array[int]", start: int, stop: int) -> None:
        """Say where the results between two turns stand."""
        if self.node.record is not None:
            places = _recorded_places(runs.between(start, stop), [len(lived.ids) for _, lived in self.results])
        else:
            places = self._found_places(runs, ids, start, stop)
        for (number, lived), place in zip(self.results, places, strict=False):
            runs.link(place, len(lived.ids), number)

    def _found_places(self, runs: Runs, ids: "array[int]", start: int, stop: int) -> Sequence[int]:
        if stop - start > _SEARCHED:
            return ()
        found = only_places(ids[start:stop], [lived.ids for _, lived in self.results])
        if found is None:
            return ()
        # Between a turn and the next the template writes all that is no result.
        runs.tell(start, stop - start, "template")
        places = [start + place for place in found]
        for (number, lived), place in zip(self.results, places, strict=True):
            at = place
            for span in lived.spans:
                runs.tell(at, span.count, span.source, span.tool)
                at += span.count
            if not lived.spans:
                runs.tell(place, len(lived.ids), "unknown", self.calls[number].name)
        return places


def _recorded_places(runs: Sequence[Run], sizes: Sequence[int]) -> list[int]:
    """Where results of these sizes stand among runs: in what is not the template's, one after the other."""
    contents = list(chain.from_iterable(range(run.start, run.stop) for run in runs if run.source != "template"))
    begins = accumulate(sizes, initial=0)
    return [contents[at] for at in islice(begins, len(sizes)) if at < len(contents)]
