"""The JSON of a llama.cpp server, read and written: requests, facts, and streams of ids.

Turns our requests into bodies, and answers into facts, figures and events; `engine_answers.py` reads errors. It sends
nothing.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from gateway.engine.interface import (
    Activity,
    EngineFacts,
    Generated,
    GenerateRequest,
    GenerationEnd,
    GenerationEvent,
    Sampling,
    Timings,
)
from gateway.engine.wire.engine_answers import (
    MISREAD,
    EventReader,
    bounded,
    count_of,
    list_of,
    logprob_of,
    messages_of,
    misread,
    model_name,
    seconds_of,
    table_of,
    text_of,
)
from gateway.engine.wire.id_repair import IdRepair
from gateway.errors import EngineRefused
from leaf_sdk.vocab import TokenMap

_SLOTS: Final = 4096
"""Most slots of one engine: a larger number is not believed."""
_CONTEXT: Final = 2**31
KIND: Final = "llama.cpp"
_TOKEN_TRIGGER = 0
"""llama.cpp's number for a trigger that is a token (`common_grammar_trigger_type`); an unknown number crashes its
server."""


def read_facts(props: dict[str, Any], models: dict[str, Any], bos: dict[str, Any]) -> EngineFacts:
    """The facts in the answers of `/props`, `/v1/models`, and `/tokenize` with an empty text."""
    listed: list[dict[str, Any]] = models.get("data") or [{}]
    model = listed[0]
    meta: dict[str, Any] = model.get("meta") or {}
    settings: dict[str, Any] = props.get("default_generation_settings") or {}
    caps: dict[str, Any] = props.get("chat_template_caps") or {}
    return EngineFacts(
        model=model_name(str(model.get("id") or props.get("model_alias") or "model")),
        model_path=text_of(props.get("model_path")),
        chat_template=str(props.get("chat_template") or ""),
        supports_tools=bool(caps.get("supports_tools")),
        supports_calls=bool(caps.get("supports_tool_calls")),
        vocabulary=None if (size := meta.get("n_vocab")) is None else count_of(size, 0, _CONTEXT),
        context=count_of(settings.get("n_ctx") or meta.get("n_ctx") or 0, 0, _CONTEXT),
        slots=count_of(props.get("total_slots") or 1, 1, _SLOTS),
        bos=tuple(count_of(token, 0, _CONTEXT) for token in bos["tokens"]),
        # The placeholder for images. Used here only because it is drawn at random at each start.
        start_marker=props.get("media_marker"),
    )


def activity_of(slots: Sequence[dict[str, Any]]) -> Activity | None:
    """What the busy slots in the answer of `/slots` have done; None if none is, or a server reports less than that."""
    figures: list[object] = []
    prefills = False
    for slot in slots:
        if not slot["is_processing"]:
            continue
        # One object in older servers.
        step: object = slot.get("next_token")
        generated = table_of(next(iter(list_of(step)), step)).get("n_decoded")
        processed = slot.get("n_prompt_tokens_processed")
        if type(generated) is not int or type(processed) is not int:
            return None
        figures.append((slot["id"], slot.get("id_task"), processed, generated))
        prefills |= generated == 0
    return Activity(tuple(figures), prefills) if figures else None


def completion_body(request: GenerateRequest) -> dict[str, Any]:
    """The body of `POST /completion`: ids in, ids out, streamed, with the slot's cache."""
    body: dict[str, Any] = {
        "prompt": list(request.prompt),
        "n_predict": request.max_tokens,
        "stream": True,
        "return_tokens": True,
        "cache_prompt": request.reuse,
        **_sampling(request.sampling),
    }
    if request.slot is not None:
        body["id_slot"] = request.slot
    if request.logprobs:
        # The sampled id is reported only together with the most probable ones.
        body["n_probs"] = max(1, request.top_logprobs)
    if request.grammar is not None:
        body["grammar"] = request.grammar
    if request.triggers:
        body["grammar_lazy"] = True
        body["grammar_triggers"] = [
            {"type": _TOKEN_TRIGGER, "value": trigger.text, "token": trigger.token_id} for trigger in request.triggers
        ]
        # Otherwise the stream's text would lack that of these tokens, and the ids could not be checked against it.
        body["preserved_tokens"] = [trigger.text for trigger in request.triggers]
    return body


def _sampling(sampling: Sampling) -> dict[str, Any]:
    named: dict[str, Any] = {
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "logit_bias": [list(each) for each in sampling.logit_bias] or None,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": sampling.seed,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
    }
    return {name: value for name, value in named.items() if value is not None}


def probabilities_of(message: dict[str, Any], ids: Sequence[int]) -> list[dict[str, Any]]:
    """What one stream message says about the probability of each of its ids; empty for ids that the message lost."""
    found: list[dict[str, Any]] = [{} for _ in ids]
    told = list_of(message.get("completion_probabilities"))
    for place, each in zip(range(len(ids) - 1, -1, -1), reversed(told), strict=False):
        entry = table_of(each)
        if entry.get("id") != ids[place]:
            break
        found[place] = entry
    return found


def tops_of(entry: dict[str, Any]) -> Iterator[tuple[object, object]]:
    """The ids and log-probabilities of the alternatives at one place, as the engine reports them."""
    for each in map(table_of, list_of(entry.get("top_logprobs"))):
        yield each.get("id"), each.get("logprob")


def slot_of(message: dict[str, Any]) -> int | None:
    """The slot in which a generation ran; None if that is not reported."""
    slot = message.get("id_slot")
    return slot if type(slot) is int and 0 <= slot < _SLOTS else None


def timings_of(message: dict[str, Any], prompt: int, generated: int, most: int) -> Timings:
    """The timings in the final message.

    Args:
        message: the message.
        prompt, generated: ids that were sent, and that arrived.
        most: ids that were asked for: more than arrived were generated if the stream lost some.
    """
    told = table_of(message.get("timings"))
    return Timings(
        prompt_n=bounded(told.get("prompt_n"), prompt),
        cache_n=bounded(told.get("cache_n"), prompt),
        generated_n=max(bounded(message.get("tokens_predicted"), most), generated),
        prompt_seconds=seconds_of(told.get("prompt_ms")),
        generate_seconds=seconds_of(told.get("predicted_ms")),
    ).within(prompt)


# The lines of one llama.cpp event stream into the events of one generation.
#
# Recovers ids that the stream loses (`id_repair.py`), counts them, and recognises the last message. Sans-IO: lines in,
# events out, all those of one read at once.


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
