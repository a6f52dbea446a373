"""The turns of a conversation as a table: counts, what was reused, how long each part took, and the calls.

Turns a `Transcript` into rows and bars. The text of calls and results is included where it may be shown. While a
conversation grows, only the rows of new answers are made. Pure.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from types import MappingProxyType
from typing import Final

from codec_console.context_changes import words_of
from codec_console.kept_row import KeptRow
from codec_console.listing import date_of
from codec_console.render import PreparedText, lines
from codec_console.transcript import Transcript, TranscriptAnswer, TranscriptCall, TranscriptTurn
from codec_console.transcript_json import ViewOptions
from gateway.context.memory import GenerationRecord
from gateway.observe.prompt_losses import WORDS

SOURCES: Final = (
    *("template", "system", "tools", "user", "assistant", "model", "reasoning", "leaf", "shim", "error"),
    "unknown",
)
"""All sources, in the order in which they are shown."""
MOST: Final = 200
"""Maximum number of turns that are shown: the latest ones."""
_WORDS: Final = 4000
"""Maximum characters shown of arguments, and of a result."""
_WIDTH: Final = 1000


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a turn's time, as a piece of a bar."""

    name: str
    seconds: float
    x: int
    width: int
    within: bool = False
    """Whether it ran during the part before it, on top of which it is drawn."""


@dataclass(frozen=True, slots=True)
class CallRow:
    """A call of a turn. None: not known."""

    number: int
    name: str | None
    """None where it may not be shown."""
    server: str | None
    seconds: float | None
    leaf: int | None
    shim: int | None
    error: bool
    ids: int | None
    place: int | None
    """Position of its result in the conversation's ids."""
    arguments: PreparedText | None
    """None where text may not be shown."""
    result: PreparedText | None


@dataclass(frozen=True, slots=True)
class TurnRow:
    """A turn. None: not known."""

    number: int
    count: int
    start: int | None
    reasoning: int | None
    prompt: int | None
    cached: int | None
    prefilled: int
    """Ids that were processed while its tools ran."""
    guessed: bool
    parts: Sequence[Part]
    calls: Sequence[CallRow]


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """An answer with its turns."""

    number: int
    when: datetime | None
    told: TranscriptAnswer
    words: str | None
    """Why some of its prompt was recomputed; None where nothing was."""
    was: PreparedText | None
    now: PreparedText | None
    """The text before and after the client changed it; None where no change is known, or text may not be shown."""
    turns: Sequence[TurnRow]

    @property
    def context_changes(self) -> list[str]:
        """What was deferred, loaded, cleared and compacted."""
        return [] if self.told.figures is None else [*map(words_of, self.told.figures.changes)]


Kept = KeptRow[AnswerRow]
_Numbered = tuple[int, TranscriptTurn]
_NONE: Final[Mapping[Hashable, Kept]] = MappingProxyType({})


class TurnTable:
    """The table of one conversation."""

    def __init__(
        self, transcript: Transcript, view: ViewOptions, secrets: frozenset[str], known: Mapping[Hashable, Kept] = _NONE
    ) -> None:
        """`known`: rows of an earlier table, which are taken over where they are the same (`kept`)."""
        self._transcript = transcript
        self._view = view
        self._texts = view.texts
        self._map = view.token_map if view.texts else None
        self._secrets = secrets
        self._places = {run.call: run.start for run in reversed(transcript.runs) if run.call is not None}
        first = self.left_out = max(len(transcript.turns) - MOST, 0)
        self._turns = list(enumerate(transcript.turns))[first:]
        self._longest = max((sum(s for _, s in self._times(turn)) for _, turn in self._turns), default=0.0)
        self.kept = {key: known.get(key) or KeptRow(self._row(number, turns)) for key, number, turns in self._keys()}
        """The answers that have turns to show, by everything that their rows are made of."""

    @property
    def answers(self) -> Collection[Kept]:
        """The answers that have turns to show."""
        return self.kept.values()

    @property
    def sources(self) -> list[tuple[str, int]]:
        """How many ids each source has, without sources that have none."""
        counts: Counter[str] = Counter()
        for run in self._transcript.runs:
            counts[run.source] += run.count
        return [(source, counts[source]) for source in SOURCES if counts[source]]

    @property
    def unrecorded(self) -> int:
        """How many answers were not recorded, since nobody was signed in when they were made."""
        return sum(not answer.recorded for answer in self._transcript.answers)

    def _keys(self) -> Iterator[tuple[Hashable, int, Sequence[_Numbered]]]:
        """For each answer that has turns to show: what its row is made of, its number and its turns."""
        view, calls = self._view, self._transcript.calls
        shown = (view.token_map is None, view.texts, view.tools, self._secrets, self._longest)
        for number, turns in groupby(self._turns, lambda each: each[1].answer):
            mine = list(turns)
            places = [
                (turn.start, *((self._places.get(n), calls[n].result is None) for n in turn.calls)) for _, turn in mine
            ]
            answer = self._transcript.answers[number]
            yield (answer.answer_id, answer.recorded, shown, *places), number, mine

    def _row(self, number: int, turns: Sequence[_Numbered]) -> AnswerRow:
        answer = self._transcript.answers[number]
        miss = answer.recall_miss if self._texts else None
        was, now = (None, None) if miss is None else (self._words(miss.was), self._words(miss.now))
        loss = None if answer.figures is None else answer.figures.loss
        words = None if loss is None else WORDS[loss]
        return AnswerRow(number, date_of(answer.made), answer, words, was, now, [self._turn(*each) for each in turns])

    def _turn(self, number: int, turn: TranscriptTurn) -> TurnRow:
        record = turn.record
        behind = self._behind(number, turn)
        return TurnRow(
            number=number,
            count=turn.count,
            start=turn.start,
            reasoning=None if record is None else record.reasoning,
            prompt=None if record is None else record.start,
            cached=None if record is None else record.cached,
            prefilled=0 if behind is None else behind.prefilled,
            guessed=record is not None and record.guessed,
            parts=self._parts(turn, 0.0 if behind is None else behind.prefilled_seconds),
            calls=[self._call(each, self._transcript.calls[each]) for each in turn.calls],
        )

    def _behind(self, number: int, turn: TranscriptTurn) -> GenerationRecord | None:
        """The next generation of the same answer: its record says what was processed while this turn's tools ran."""
        later = self._transcript.turns[number + 1 : number + 2]
        return later[0].record if later and later[0].answer == turn.answer else None

    def _times(self, turn: TranscriptTurn) -> list[tuple[str, float]]:
        """How long each part took, as far as that is known. Tools run at the same time: the slowest one counts."""
        record = turn.record
        if record is None or record.prompt_seconds is None or record.generate_seconds is None:
            return []
        waited = max(record.first - record.prompt_seconds, 0.0)
        ran = [
            call.record.seconds
            for call in map(self._transcript.calls.__getitem__, turn.calls)
            if call.record is not None
        ]
        tools = [("tools", max(ran))] if ran else []
        return [("wait", waited), ("prefill", record.prompt_seconds), ("generate", record.generate_seconds), *tools]

    def _parts(self, turn: TranscriptTurn, hidden: float) -> list[Part]:
        """The bar of a turn. `hidden`: seconds of prefill while its tools ran, drawn at the beginning of their part.

        When exactly the prefill ran is not known.
        """
        parts: list[Part] = []
        at = 0
        for name, seconds in self._times(turn):
            width = round(_WIDTH * seconds / self._longest) if self._longest else 0
            parts.append(Part(name, seconds, at, width))
            at += width
        if parts and parts[-1].name == "tools" and hidden:
            tools = parts[-1]
            width = min(round(_WIDTH * hidden / self._longest), tools.width)
            parts.append(Part("hidden prefill", hidden, tools.x, width, within=True))
        return parts

    def _call(self, number: int, call: TranscriptCall) -> CallRow:
        record = call.record
        said = None if self._map is None or call.result is None else self._words(self._map.decode(call.result))
        return CallRow(
            number=number,
            name=self._view.tool(call.name),
            server=None if record is None else record.server,
            seconds=None if record is None else record.seconds,
            leaf=None if record is None else record.leaf,
            shim=None if record is None else record.shim,
            error=record is not None and record.is_error,
            ids=None if call.result is None else len(call.result),
            place=self._places.get(number),
            arguments=self._words(call.arguments) if self._texts else None,
            result=said,
        )

    def _words(self, text: str) -> PreparedText:
        return lines(text, self._secrets, _WORDS)
