"""The lines of one vLLM event stream into the events of one generation, for both of its endpoints.

Every id is in the stream, so nothing is repaired. Ids that are neither the map's nor its padding's, or more than were
asked for, are an error. The usage follows the last id in a separate message, and `[DONE]` ends the stream. Once the end
of the answer was told, nothing that follows can take it away. Sans-IO.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from gateway.engine.interface import Generated, GenerateRequest, GenerationEnd, GenerationEvent, Timings
from gateway.engine.wire.http.answers import MISREAD, bounded, messages_of, misread, table_of
from gateway.engine.wire.http.event_reader import EventReader
from gateway.engine.wire.vllm.json import KIND, logprobs_of, tops_of
from gateway.errors import EngineRefused, EngineUnavailable, GrammarRefused
from leaf_sdk.vocab import TokenMap

_DONE: Final[dict[str, Any]] = {}
_PADDING: Final = 4096
"""Ids beyond the map's that the model may have: vLLM does not report how many its output layer has. The largest padding
of a known model is 1,069 (gpt-oss: 201,088 ids for 200,019 tokens)."""


class GenerateStream(EventReader):
    """Reads one stream."""

    def __init__(self, url: str, token_map: TokenMap | None, request: GenerateRequest) -> None:
        """See `EventReader`."""
        super().__init__(url, token_map, request, None if token_map is None else len(token_map) + _PADDING)
        self._choice: dict[str, Any] | None = None
        """The part of the message that said why the answer ended."""
        self._usage: dict[str, Any] = {}

    @property
    def is_full(self) -> bool:
        """See `EventReader`."""
        return self._choice is not None or super().is_full

    def cut(self) -> GenerationEnd:
        """See `EventReader`. The engine may have said why the answer ended."""
        return super().cut() if self._choice is None else replace(self._end(), reported=False)

    def _read(self, lines: Sequence[bytes]) -> Iterator[GenerationEvent]:
        held: list[Generated] = []
        fault: EngineRefused | None = None
        ended = False
        try:
            for message in messages_of(lines, _DONE):
                if ended := message is _DONE:
                    break
                if (generated := self._take(message)) is not None:
                    held.append(generated)
        except EngineRefused as error:
            # A grammar was refused only if nothing has been generated under it.
            begun = isinstance(error, GrammarRefused) and self._given > 0
            fault = EngineRefused(error.message, 502) if begun else error
        except MISREAD as error:
            fault = misread(self._url, KIND, error)
        yield from [_joined(held)] if self._gather and len(held) > 1 else held
        if fault is not None:
            raise fault
        if ended:
            yield self._end()

    def _take(self, message: dict[str, Any]) -> Generated | None:
        self._messages += 1
        if self._messages > self._max_messages:
            raise EngineRefused(f"the engine sent over {self._max_messages} messages for {self._max_tokens} ids", 502)
        self._usage = table_of(message.get("usage")) or self._usage
        if self._choice is not None:
            return None
        choices: list[dict[str, Any]] = message["choices"]
        if not choices:
            return None
        (choice,) = choices
        # Some servers write an empty text where the answer goes on.
        ended = choice.get("finish_reason") not in (None, "")
        # A server that sends no ids at all is not one that we know.
        generated = self._generated(choice, choice.get("token_ids") if ended and self._given else choice["token_ids"])
        self._choice = choice if ended else None
        return generated

    def _generated(self, choice: dict[str, Any], told: object) -> Generated | None:
        ids = self._ids(told)
        if self._given + len(ids) > self._max_tokens:
            raise EngineRefused(f"the engine sent more than the {self._max_tokens} ids that it was asked for", 502)
        if not ids:
            return None
        logprobs = logprobs_of(choice, ids) if self._logprobs else []
        tops = self._tops(tops_of(choice, ids)) if self._most_tops else []
        self._given += len(ids)
        self._last = ids[-1]
        return Generated(tuple(ids), False, tuple(logprobs), tuple(tops))

    def _end(self) -> GenerationEnd:
        choice = self._choice
        if choice is None:
            raise EngineRefused("the engine ended its answer without giving a reason", 502)
        reason = choice["finish_reason"]
        if reason in ("abort", "error"):
            words = "aborted the request" if reason == "abort" else "failed in the middle of its answer"
            raise EngineUnavailable(f"the engine at {self._url!r} {words}; try again")
        # If an id ended the answer, it is the last one. The server names it unless it is the model's own end token.
        by_id = reason == "stop" and choice.get("stop_reason") in (None, self._last)
        # The answer is whole, whatever the reason: one that we don't know doesn't take it away.
        known: Literal["stop", "length"] = "length" if reason == "length" else "stop"
        return GenerationEnd(known, self._last if by_id else None, self._timings(), padded=self.padded)

    def _timings(self) -> Timings:
        cached = bounded(table_of(self._usage.get("prompt_tokens_details")).get("cached_tokens"), self._prompt)
        # The server does not report times.
        return Timings(self._prompt - cached, cached, self._given, 0.0, 0.0)


def _joined(events: Sequence[Generated]) -> Generated:
    return Generated(
        tuple(token_id for each in events for token_id in each.ids),
        False,
        tuple(logprob for each in events for logprob in each.logprobs),
        tuple(top for each in events for top in each.tops),
    )
