"""What readers of streams share, for every kind of engine: which ids are accepted, and when an answer is whole.

What an engine sends is not trusted: an id that the map does not have is refused, and a fault after the whole answer
costs none of it. Sans-IO: lines in, events out. How a kind of engine writes its lines, its package knows.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, cast

from gateway.engine.interface import GenerateRequest, GenerationEnd, GenerationEvent
from gateway.engine.wire.http.answers import IDS, logprob_of
from gateway.errors import EngineError, EngineRefused
from leaf_sdk.vocab import TokenMap

_SLACK: Final = 16
"""Messages that may arrive beyond the requested ids, so that a stream of messages without ids ends too."""


class EventReader(ABC):
    """Reads the lines of one stream of ids; each kind of engine has its own."""

    def __init__(
        self, url: str, token_map: TokenMap | None, request: GenerateRequest, vocabulary: int | None = None
    ) -> None:
        """Read nothing yet.

        Args:
            url: the engine's, for errors.
            token_map: the map whose ids are accepted; None: any id, as long as no map is proven.
            request: what was asked for.
            vocabulary: how many ids the engine says its model has, or how many it may have at most, which may be more
                than the map's: a vocabulary that is padded. Such an id is accepted and has no text.
        """
        self._url = url
        self._padding = range(vocabulary or 0)
        self.padded = 0
        """Ids so far that the engine has and the map has not."""
        self._has_id = token_map.has_id if token_map is not None else range(IDS).__contains__
        self._prompt = len(request.prompt)
        self._max_tokens = request.max_tokens
        self._gather = request.gather
        self._logprobs = request.logprobs
        self._most_tops = request.top_logprobs if request.logprobs else 0
        self._last: int | None = None
        """The last id."""
        self._given: int = 0
        self._messages = 0
        self._max_messages = request.max_tokens + _SLACK

    @property
    def is_full(self) -> bool:
        """Whether the whole answer has arrived, so that only the engine's account of it is missing."""
        return self._given >= self._max_tokens

    def cut(self) -> GenerationEnd:
        """The end to report for a stream that is abandoned at this point. Raises like `feed`."""
        return GenerationEnd.unreported(self._given)

    def feed(self, lines: Sequence[bytes]) -> Iterator[GenerationEvent]:
        """Yield the events of these lines, those before a fault first.

        Raises:
            EngineRefused: the engine reports an error, or its answer has an unexpected form.
            EngineUnavailable: it has aborted the request.
        """
        try:
            yield from self._read(lines)
        except EngineError:
            if not self.is_full:
                raise
            # The answer is whole: the fault concerns only the engine's account of it.
            yield self.cut()

    @abstractmethod
    def _read(self, lines: Sequence[bytes]) -> Iterator[GenerationEvent]:
        """See `feed`."""

    def _ids(self, told: object) -> list[int]:
        """The ids of a message. Raises `EngineRefused` for anything that is not an id of the map."""
        if told is None:
            return []
        if not isinstance(told, list):
            raise EngineRefused(f"the engine at {self._url!r} sent {told!r:.40} where token ids were expected", 502)
        ids = cast("list[int]", told)
        for token_id in ids:
            if type(token_id) is int and self._has_id(token_id):
                continue
            self.padded += 1
            if type(token_id) is not int or token_id not in self._padding:
                words = f"sent {token_id!r:.40}, which is not an id of the token map"
                raise EngineRefused(f"the engine at {self._url!r} {words}", 502)
        return ids

    def _tops(self, places: Iterable[Iterable[tuple[object, object]]]) -> list[tuple[tuple[int, float], ...]]:
        """The most probable ids at each place with their log-probabilities, without those that can't be."""
        return [self._likeliest(place) for place in places]

    def _likeliest(self, told: Iterable[tuple[object, object]]) -> tuple[tuple[int, float], ...]:
        found: list[tuple[int, float]] = []
        for token_id, value in told:
            if type(token_id) is int and self._has_id(token_id) and (logprob := logprob_of(value)) is not None:
                found.append((token_id, logprob))
        # A server may add the sampled id, even if less probable.
        return tuple(sorted(found, key=lambda top: -top[1])[: self._most_tops])
