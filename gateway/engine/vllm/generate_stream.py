"""The lines of one vLLM event stream into the events of one generation, for both of its endpoints.

Every id is in the stream, so nothing is repaired. Ids that the map does not have, or more than were asked for, are an
error. The usage follows the last id in a separate message, and `[DONE]` ends the stream. Sans-IO.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from gateway.engine.http.answers import MISREAD, EventReader, messages_of, misread
from gateway.engine.interface import Generated, GenerationEnd, GenerationEvent, Timings
from gateway.engine.vllm.json import KIND, logprobs_of, tops_of
from gateway.errors import EngineRefused, EngineUnavailable, GrammarRefused
from leaf_sdk.vocab import TokenMap

_DONE: Final[dict[str, Any]] = {}


class GenerateStream(EventReader):
    """Reads one stream."""

    def __init__(
        self,
        url: str,
        token_map: TokenMap | None,
        *,
        prompt: int,
        max_tokens: int,
        gather: bool,
        logprobs: bool = False,
        tops: int = 0,
    ) -> None:
        """Read nothing yet.

        Args:
            url: the engine's, for errors.
            token_map: the map whose ids are accepted.
            prompt: ids that were sent.
            max_tokens: ids that were asked for.
            gather: whether the ids of one read may be reported as one event.
            logprobs: whether to report how probable the ids were.
            tops: how many of the most probable ids to report at each place.
        """
        super().__init__(max_tokens)
        self._url = url
        self._map = token_map
        self._prompt = prompt
        self._gather = gather
        self._logprobs = logprobs
        self._tops = tops
        self._last: int | None = None
        self._choice: dict[str, Any] | None = None
        """The part of the message that said why the answer ended."""
        self._usage: dict[str, Any] = {}

    def feed(self, lines: Sequence[bytes]) -> Iterator[GenerationEvent]:
        """Yield the events of these lines, those before a fault first.

        Raises:
            EngineRefused: the engine reports an error, or its answer has an unexpected form.
            EngineUnavailable: it has aborted the request.
        """
        held: list[Generated] = []
        fault: EngineRefused | EngineUnavailable | None = None
        end: GenerationEnd | None = None
        try:
            for message in messages_of(lines, _DONE):
                if message is _DONE:
                    end = self._end()
                    break
                if (generated := self._take(message)) is not None:
                    held.append(generated)
        except EngineUnavailable as error:
            fault = error
        except EngineRefused as error:
            # A grammar was refused only if nothing has been generated under it.
            begun = isinstance(error, GrammarRefused) and self._given > 0
            fault = EngineRefused(error.message, 502) if begun else error
        except MISREAD as error:
            fault = misread(self._url, KIND, error)
        yield from [_joined(held)] if self._gather and len(held) > 1 else held
        if fault is not None:
            raise fault
        if end is not None:
            yield end

    def _take(self, message: dict[str, Any]) -> Generated | None:
        self._messages += 1
        if self._messages > self._max_messages:
            raise EngineRefused(f"the engine sent over {self._max_messages} messages for {self._max_tokens} ids", 502)
        self._usage = message.get("usage") or self._usage
        choices: list[dict[str, Any]] = message["choices"]
        if not choices:
            return None
        (choice,) = choices
        generated = self._ids(choice)
        if choice["finish_reason"] is not None:
            self._choice = choice
        return generated

    def _ids(self, choice: dict[str, Any]) -> Generated | None:
        ids: list[int] = choice["token_ids"] or []
        if self._choice is not None and ids:
            raise EngineRefused("the engine sent more ids after the end of its answer", 502)
        for token_id in ids:
            if type(token_id) is not int or token_id < 0:
                raise TypeError(f"{token_id!r:.40} is not a token id")
            if self._map is not None and not self._map.has_id(token_id):
                raise EngineRefused(f"the engine sent the id {token_id}, which the map does not have", 502)
        if self._given + len(ids) > self._max_tokens:
            raise EngineRefused(f"the engine sent more than the {self._max_tokens} ids that it was asked for", 502)
        if not ids:
            return None
        logprobs = logprobs_of(choice, ids) if self._logprobs else []
        tops = tops_of(choice, ids, self._tops) if self._tops else []
        self._given += len(ids)
        self._last = ids[-1]
        return Generated(tuple(ids), False, tuple(logprobs), tuple(tops))

    def _end(self) -> GenerationEnd:
        choice = self._choice
        if choice is None:
            raise EngineRefused("the engine ended its answer without giving a reason", 502)
        reason = choice["finish_reason"]
        if reason == "abort":
            raise EngineUnavailable(f"the engine at {self._url!r} aborted the request; try again")
        if reason not in ("stop", "length"):
            raise EngineRefused(f"the engine ended its answer for an unknown reason: {reason!r:.40}", 502)
        # If an id ended the answer, it is the last one. The server names it unless it is the model's own end token.
        by_id = reason == "stop" and choice.get("stop_reason") in (None, self._last)
        return GenerationEnd(reason, self._last if by_id else None, self._timings())

    def _timings(self) -> Timings:
        details: dict[str, Any] = self._usage.get("prompt_tokens_details") or {}
        cached = min(max(int(details.get("cached_tokens") or 0), 0), self._prompt)
        # The server does not report times.
        return Timings(self._prompt - cached, cached, self._given, 0.0, 0.0)


def _joined(events: Sequence[Generated]) -> Generated:
    return Generated(
        tuple(token_id for each in events for token_id in each.ids),
        False,
        tuple(logprob for each in events for logprob in each.logprobs),
        tuple(top for each in events for top in each.tops),
    )
