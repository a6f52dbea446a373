"""One conversation as the console shows it: all its ids as runs of one source each, and its turns, calls and reuse.

Turns what is remembered of a conversation (`gateway/context/memory`) into that, without guessing: a source that is not
known is `unknown`. Where an answer was recorded while it was made, all its sources are known; elsewhere, those of the
model's turns, and of results between them that fit in one place only. Pure.
"""

from array import array
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, islice
from typing import Any, Final, cast

from codec_console.runs import Run, Runs, only_places
from gateway.context.memory import CallRecord, GenerationRecord, Lived, Miss, Remembered, RequestFigures

_SEARCHED: Final = 20_000
"""Maximum number of ids between two turns that are searched for results, where the answer was not recorded."""


@dataclass(frozen=True, slots=True)
class TranscriptCall:
    """A call of the model."""

    call_id: str
    name: str
    arguments: str
    turn: int
    """Number, in the conversation, of the turn that wrote the call."""
    record: CallRecord | None
    """None where the client made the call, or the answer was not recorded."""
    result: "array[int] | None"
    """The ids of its result, where the gateway made the call; None elsewhere."""


@dataclass(frozen=True, slots=True)
class TranscriptTurn:
    """A generation of the model."""

    answer: int
    """Number, in the conversation, of the answer that it is part of."""
    count: int
    start: int | None
    """Position of its first id; None where that is not known, or where a later request has moved it."""
    record: GenerationRecord | None
    """None where the answer was not recorded."""
    calls: Sequence[int]
    """Numbers of its calls in the conversation."""


@dataclass(frozen=True, slots=True)
class TranscriptAnswer:
    """The answer to one request."""

    answer_id: str
    made: float | None
    """When it was made, by the monotonic clock; None where another replica made it."""
    kept: int
    """How many ids it takes over from the answer before it, as its beginning."""
    ended: str | None
    figures: RequestFigures | None
    recall_miss: Miss | None
    recorded: bool


@dataclass(frozen=True, slots=True)
class CacheEnd:
    """How much of a generation's prompt was in the cache. Counts are ids."""

    turn: int
    cached: int
    held: int
    """How many ids of the prompt could have been cached; at most all of them."""
    prompt: int


@dataclass(frozen=True, slots=True)
class Transcript:
    """A conversation up to one of its answers."""

    number: int
    answer_id: str
    principal: str
    model: str | None
    map_id: str | None
    ids: "array[int]"
    runs: Sequence[Run]
    answers: Sequence[TranscriptAnswer]
    turns: Sequence[TranscriptTurn]
    calls: Sequence[TranscriptCall]

    def cache_ends(self) -> Iterator[CacheEnd]:
        """Where the cache ended, for each generation that has not been moved and for which that is known."""
        for number, turn in enumerate(self.turns):
            if turn.record is not None and turn.record.cached is not None and turn.start is not None:
                yield CacheEnd(number, turn.record.cached, min(turn.record.held, turn.start), turn.start)


def transcript_of(last: Remembered) -> Transcript:
    """Return the conversation that ended with this answer."""
    # Copies, since their records may be forgotten meanwhile.
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
    turns: list[TranscriptTurn] = []
    calls: list[TranscriptCall] = []
    for number, node in enumerate(nodes):
        stay = min((each.kept for each in nodes[number + 1 :]), default=len(ids))
        _Reader(node, number, stay, turns, calls).read(runs, ids)
    known = next((node for node in reversed(nodes) if node.model is not None), last)
    return Transcript(
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


def _answer(node: Remembered) -> TranscriptAnswer:
    ended, miss = (None, None) if node.record is None else (node.record.ended, node.record.recall_miss)
    figures = (node.figures, miss)
    return TranscriptAnswer(node.answer_id, node.made, node.kept, ended, *figures, recorded=node.record is not None)


@dataclass(slots=True)
class _Reader:
    """Reads the turns and results of one answer."""

    node: Remembered
    number: int
    stay: int
    """How many of the conversation's first ids no later answer has replaced."""
    turns: list[TranscriptTurn]
    calls: list[TranscriptCall]
    results: list[tuple[int, Lived]] = field(default_factory=list[tuple[int, Lived]])
    """Results of the last turn's calls, each with the number of its call."""

    def read(self, runs: Runs, ids: "array[int]") -> None:
        """Add its turns and calls, and set the sources of ids that they tell."""
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
            self.calls.append(TranscriptCall(call_id, name, arguments, turn, made.get(call_id), None))
        size = len(lived.ids)
        left = 0 if start is None else min(max(self.stay - start, 0), size)
        place = start if start is not None and start + size <= self.stay else None
        self.turns.append(TranscriptTurn(self.number, size, place, record, numbers))
        if start is None:
            return
        own = min(lived.own, left)
        if self.node.record is None:
            runs.tell(start, own, "model")
            runs.tell(start + own, left - own, "assistant")
        elif record is not None:
            runs.tell(start, min(record.reasoning, own), "reasoning")

    def _add_result(self, lived: Lived) -> None:
        """Keep the result of a call of the last turn."""
        answered = str(lived.message.get("tool_call_id"))
        mine = self.turns[-1].calls if self.turns else ()
        number = next((each for each in mine if self.calls[each].call_id == answered), None)
        if number is not None:
            self.calls[number] = replace(self.calls[number], result=lived.ids)
            self.results.append((number, lived))

    def _place(self, runs: Runs, ids: "array[int]", start: int, stop: int) -> None:
        """Mark the places of the results between two turns."""
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
        # Between two turns, everything that is not a result is written by the template.
        runs.tell(start, stop - start, "template")
        places = [start + place for place in found]
        for (number, lived), place in zip(self.results, places, strict=True):
            at = place
            for span in lived.spans:
                runs.tell(at, span.count, span.source, span.tool, span.server)
                at += span.count
            if not lived.spans:
                runs.tell(place, len(lived.ids), "unknown", self.calls[number].name)
        return places


def _recorded_places(runs: Sequence[Run], sizes: Sequence[int]) -> list[int]:
    """Where results of these sizes begin among the runs: in the ids that are not the template's, one after another."""
    contents = list(chain.from_iterable(range(run.start, run.stop) for run in runs if run.source != "template"))
    begins = accumulate(sizes, initial=0)
    return [contents[at] for at in islice(begins, len(sizes)) if at < len(contents)]
