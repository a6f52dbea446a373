"""The lines of one llama.cpp event stream into the events of one generation.

Recovers ids that the stream loses (`repair.py`), counts them, and recognises the last message. Sans-IO: lines in,
events out, all those of one read at once.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from gateway.engine.http.answers import IDS, MISREAD, EventReader, messages_of, misread
from gateway.engine.interface import Generated, GenerationEnd, GenerationEvent
from gateway.engine.llama_cpp.json import KIND, logprobs_of, read_end, repaired, tops_of
from gateway.engine.llama_cpp.repair import IdRepair
from gateway.errors import EngineRefused
from leaf_sdk.vocab import TokenMap


class CompletionStream(EventReader):
    """Reads one stream."""

    def __init__(
        self,
        url: str,
        token_map: TokenMap | None,
        *,
        max_tokens: int,
        gather: bool,
        logprobs: bool = False,
        tops: int = 0,
    ) -> None:
        """Read nothing yet.

        Args:
            url: the engine's, for errors.
            token_map: the map by which lost ids are recovered; without one they are only counted.
            max_tokens: ids that were asked for; reading stops there if the engine goes on.
            gather: whether the ids of one read may be reported as one event.
            logprobs: whether to report how probable the ids were.
            tops: how many of the most probable ids to report at each place.
        """
        super().__init__(max_tokens)
        self._url = url
        self._repair = IdRepair(token_map) if token_map is not None else None
        self._gather = gather
        self._logprobs = logprobs
        self._tops = tops
        self._counts = [0, 0, 0]
        self._last: int | None = None

    def feed(self, lines: Sequence[bytes]) -> Iterator[GenerationEvent]:
        """Yield the events of these lines, those before a fault first.

        Raises:
            EngineRefused: the engine reports an error, or its answer has an unexpected form.
        """
        ids: list[int] = []
        logprobs: list[float | None] = []
        tops: list[tuple[tuple[int, float], ...]] = []
        guessed = False
        fault: EngineRefused | None = None
        try:
            for message in messages_of(lines):
                new, doubtful = self._take(message)
                end = self._end(message) if message.get("stop") else None
                ids += new
                if self._logprobs:
                    logprobs += logprobs_of(message, new)
                    tops += tops_of(message, new, self._tops) if self._tops else ()
                guessed |= doubtful
                self._given += len(new)
                self._messages += 1
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
        ids: Sequence[int] | None = message.get("tokens")
        for token_id in ids or ():
            if type(token_id) is not int or not 0 <= token_id < IDS:
                raise TypeError(f"{token_id!r:.40} is not a token id")
        # The usual case. Calling `repaired` would cost as much as reading the JSON.
        if ids and (self._repair is None or self._repair.follows(len(ids), message["tokens_predicted"])):
            self._last = ids[-1]
            return ids, False
        fixed = repaired(message, self._repair)
        counts = self._counts
        self._counts = [counts[0] + fixed.found, counts[1] + fixed.guessed, counts[2] + fixed.missed]
        if fixed.ids:
            self._last = fixed.ids[-1]
        return fixed.ids, fixed.guessed or fixed.missed > 0

    def _end(self, message: dict[str, Any]) -> GenerationEnd:
        if self._repair is not None:
            self._counts[2] += self._repair.missing(int(message["tokens_predicted"]))
        return read_end(message, self._last, self._counts)
