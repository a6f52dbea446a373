"""The lines of one llama.cpp event stream into the events of one generation.

Recovers ids that the stream loses (`repair.py`), counts them, and recognises the last message. Sans-IO: lines in,
events out, all those of one read at once.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from gateway.engine.interface import Generated, GenerateRequest, GenerationEnd, GenerationEvent
from gateway.engine.wire.http.answers import MISREAD, bounded, logprob_of, messages_of, misread
from gateway.engine.wire.http.event_reader import EventReader
from gateway.engine.wire.llama_cpp.json import KIND, probabilities_of, slot_of, timings_of, tops_of
from gateway.engine.wire.llama_cpp.repair import IdRepair
from gateway.errors import EngineRefused
from leaf_sdk.vocab import TokenMap


class CompletionStream(EventReader):
    """Reads one stream."""

    def __init__(
        self, url: str, token_map: TokenMap | None, request: GenerateRequest, vocabulary: int | None = None
    ) -> None:
        """See `EventReader`. `token_map`: lost ids are recovered by it; without one they are only counted."""
        super().__init__(url, token_map, request, vocabulary)
        self._repair = IdRepair(token_map) if token_map is not None else None
        self._counts = [0, 0, 0]

    def _read(self, lines: Sequence[bytes]) -> Iterator[GenerationEvent]:
        ids: list[int] = []
        logprobs: list[float | None] = []
        tops: list[tuple[tuple[int, float], ...]] = []
        guessed = False
        fault: EngineRefused | None = None
        try:
            for message in messages_of(lines):
                new, doubtful = self._take(message)
                self._given += len(new)
                self._messages += 1
                end = self._end(message) if message.get("stop") else None
                ids += new
                if self._logprobs:
                    told = probabilities_of(message, new)
                    logprobs += [logprob_of(each.get("logprob")) for each in told]
                    tops += self._tops(map(tops_of, told)) if self._most_tops else ()
                guessed |= doubtful
                if self._given > self._max_tokens or self._messages > self._max_messages:
                    del ids[len(ids) - max(self._given - self._max_tokens, 0) :]
                    self._given = min(self._given, self._max_tokens)
                    end = self.cut()
                if ids and (end is not None or not self._gather):
                    yield Generated(tuple(ids), guessed, tuple(logprobs[: len(ids)]), tuple(tops[: len(ids)]))
                    ids, guessed, logprobs, tops = [], False, [], []
                if end is not None:
                    yield end
                    return
        except EngineRefused as error:
            fault = error
        except MISREAD as error:
            fault = misread(self._url, KIND, error)
        if ids:
            yield Generated(tuple(ids), guessed, tuple(logprobs[: len(ids)]), tuple(tops[: len(ids)]))
        if fault is not None:
            raise fault

    def _take(self, message: dict[str, Any]) -> tuple[Sequence[int], bool]:
        """The ids of a message, and whether any is a guess."""
        ids, predicted = self._ids(message.get("tokens")), message.get("tokens_predicted")
        # The usual case. Calling `feed` would cost as much as reading the JSON.
        if ids and (self._repair is None or self._repair.follows(len(ids), predicted)):
            self._last = ids[-1]
            return ids, False
        if self._repair is None or (message.get("stop") and not ids):
            return ids, False
        text = message.get("content")
        fixed = self._repair.feed(ids, text if isinstance(text, str) else "", bounded(predicted, self._max_tokens))
        counts = self._counts
        self._counts = [counts[0] + fixed.found, counts[1] + fixed.guessed, counts[2] + fixed.missed]
        if fixed.ids:
            self._last = fixed.ids[-1]
        return fixed.ids, fixed.guessed or fixed.missed > 0

    def _end(self, message: dict[str, Any]) -> GenerationEnd:
        found, guessed, missed = self._counts
        if self._repair is not None:
            missed += self._repair.missing(bounded(message.get("tokens_predicted"), self._max_tokens))
        ended = message.get("stop_type") == "eos"
        return GenerationEnd(
            reason="stop" if ended else "length",
            ended_by=self._last if ended else None,
            timings=timings_of(message, self._prompt, self._given, self._max_tokens),
            slot=slot_of(message),
            repaired=found,
            ambiguous=guessed,
            missed=min(missed, max(self._max_tokens - self._given, 0)),
            padded=self.padded,
        )
