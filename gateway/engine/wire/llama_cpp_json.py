"""The JSON of a llama.cpp server, read and written: requests, facts, and streams of ids.

Turns our requests into bodies, and answers into facts, figures and events; `engine_answers.py` reads errors. It sends
nothing.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    listed,
    logprob_of,
    messages_of,
    misread,
    model_name,
    seconds_of,
    table_of,
    text_of,
    unserved,
)
from gateway.errors import EngineRefused, EngineUnavailable
from leaf_sdk.vocab import TokenMap
from leaf_sdk.vocab.utf8 import cuts_a_character

# Recovers the ids that a llama.cpp stream loses.
#
# The server holds back tokens that end in the middle of a UTF-8 character. When the character is complete, it sends
# one message with all of the text and only the *last* id. `tokens_predicted` shows the gap. The text is the bytes of
# the lost tokens followed by the bytes of the last one, so the lost ids are a split of known bytes into a known
# number of tokens, in which every cut lies inside a character (otherwise the server would have sent the text
# earlier). Nearly always only one split fits. If several do, the tokenizer's own choice wins, or else the one with
# the longest first token, and the cache reuse of the next turn shows whether that was right.
#
# Pure: it sees messages and a map, and knows nothing of HTTP.

_LONGEST_PIECE = 64
"""Most bytes of a lost token: longer ones that end inside a character are not searched for."""
_MOST_SPLITS = 64
"""Splits after which the search stops, since the answer is a guess in any case."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """The ids of one stream message, including the lost ones."""

    ids: tuple[int, ...]
    found: int = 0
    """Lost ids that were recovered."""
    guessed: bool = False
    missed: int = 0
    """Lost ids that were not recovered; if no split fits, `ids` are those of the text by the map's own tokenizer."""


class IdRepair:
    """Follows one stream. Feed it every message in order."""

    def __init__(self, token_map: TokenMap) -> None:
        self._map = token_map
        self._received = 0
        self._by_bytes: dict[bytes, int] | None = None

    def feed(self, ids: Sequence[int], text: str, predicted: int) -> Repaired:
        """Complete one message.

        `ids`: those in the message; `text`: its `content`; `predicted`: the engine's count of all ids so far, which
        is not believed if it is less than have arrived.
        """
        arrived = self._received + len(ids)
        lost = max(predicted - arrived, 0)
        self._received = arrived + lost
        if not lost or not ids:
            return Repaired(tuple(ids), missed=lost)
        return self._complete(ids, text, lost)

    def follows(self, count: int, predicted: object) -> bool:
        """Whether a message of `count` ids lost none. If so, it is counted, and need not be fed."""
        if predicted != self._received + count:
            return False
        self._received += count
        return True

    def missing(self, predicted: int) -> int:
        """Ids still outstanding when the stream ends at `predicted`: the tail of a character that was cut off."""
        return max(predicted - self._received, 0)

    def _complete(self, ids: Sequence[int], text: str, lost: int) -> Repaired:
        tail = b"".join(self._visible(i) for i in ids)
        whole = text.encode()
        if not 0 < len(whole) - len(tail) <= lost * _LONGEST_PIECE:
            # The engine has counted wrong: nothing in the text is from a lost id, or more than such ids can have.
            return Repaired(tuple(ids), missed=lost)
        if not whole.endswith(tail):
            return Repaired(tuple(self._map.encode(text)), missed=lost)
        splits: list[tuple[int, ...]] = []
        for split in self._splits(whole[: len(whole) - len(tail)], lost):
            splits.append(split)
            if len(splits) == _MOST_SPLITS:
                break
        if not splits:
            return Repaired(tuple(self._map.encode(text)), missed=lost)
        own = tuple(self._map.encode(text))
        chosen = next((s for s in splits if (*s, *ids) == own), splits[0])
        return Repaired((*chosen, *ids), found=lost, guessed=len(splits) > 1)

    def _visible(self, token_id: int) -> bytes:
        """The bytes of an id as the server's text shows them: it leaves out control tokens, and padding."""
        is_text = token_id not in self._map.special_ids and self._map.has_id(token_id)
        return self._map.token_bytes(token_id) if is_text else b""

    def _splits(self, data: bytes, count: int, start: int = 0) -> Iterator[tuple[int, ...]]:
        """Every split of `data[start:]` into `count` tokens whose cuts lie inside characters, longest first."""
        if count == 0:
            if start == len(data):
                yield ()
            return
        for end in range(min(len(data), start + _LONGEST_PIECE), start, -1):
            token_id = self._ids_by_bytes().get(data[start:end])
            if token_id is None or not cuts_a_character(data[:end]):
                continue
            for rest in self._splits(data, count - 1, end):
                yield (token_id, *rest)

    def _ids_by_bytes(self) -> dict[bytes, int]:
        if self._by_bytes is None:
            self._by_bytes = {self._visible(i): i for i in self._map.vocab.values()}
        return self._by_bytes


_SLOTS: Final = 4096
"""Most slots of one engine: a larger number is not believed."""
_CONTEXT: Final = 2**31
KIND: Final = "llama.cpp"
_IN_USE: Final = ("loaded", "loading", "sleeping")
_RANDOM: Final = re.compile(r"<__media_[0-9A-Za-z]{32}__>")
"""A placeholder that no `LLAMA_MEDIA_MARKER` has fixed for all starts (llama.cpp, tools/server/server-common.cpp)."""
_TOKEN_TRIGGER = 0
"""llama.cpp's number for a trigger that is a token (`common_grammar_trigger_type`); an unknown number crashes its
server."""


def read_facts(
    props: dict[str, Any], models: dict[str, Any], bos: dict[str, Any], served: str | None = None
) -> EngineFacts:
    """The facts in the answers of `/props`, `/v1/models`, and `/tokenize` with an empty text. `served`: the name of the
    model, if the server is a router."""
    has: list[dict[str, Any]] = models.get("data") or [{}]
    model = has[0] if served is None else next((each for each in has if served in names_of(each)), dict[str, Any]())
    name = model_name(str(model.get("id") or props.get("model_alias") or "model"))
    meta: dict[str, Any] = model.get("meta") or {}
    settings: dict[str, Any] = props.get("default_generation_settings") or {}
    caps: dict[str, Any] = props.get("chat_template_caps") or {}
    return EngineFacts(
        # A router's names are those that its clients know.
        model=name if served is None else str(model.get("id") or served),
        model_path=text_of(props.get("model_path")),
        chat_template=str(props.get("chat_template") or ""),
        supports_tools=bool(caps.get("supports_tools")),
        supports_calls=bool(caps.get("supports_tool_calls")),
        vocabulary=None if (size := meta.get("n_vocab")) is None else count_of(size, 0, _CONTEXT),
        context=count_of(settings.get("n_ctx") or meta.get("n_ctx") or 0, 0, _CONTEXT),
        slots=count_of(props.get("total_slots") or 1, 1, _SLOTS),
        bos=tuple(count_of(token, 0, _CONTEXT) for token in bos["tokens"]),
        start_marker=start_marker_of(props),
    )


def names_of(model: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of a model in the answer of `/v1/models`, its own first."""
    return tuple(each for each in (model.get("id"), *list_of(model.get("aliases"))) if isinstance(each, str))


def is_router(props: Mapping[str, Any]) -> bool:
    """Whether `/props` is of a server in router mode (llama.cpp, tools/server/server-models.cpp)."""
    return props.get("role") == "router"


def routed_model(url: str, props: Mapping[str, Any], models: Mapping[str, Any], wanted: str | None) -> str | None:
    """The model to name in every request to a server in router mode, which starts a process for each of its models;
    None: the server has a single one.

    Args:
        url: where it is, for errors.
        props, models: its answers to `/props` and `/v1/models`, without the name of a model.
        wanted: `served_model` of `EngineConfig`. Without it, the only model is taken, or the only one that is loaded: a
            router has room for few at a time.

    Raises:
        EngineUnavailable: the server lacks the wanted model, or none is named and several could be meant.
    """
    has = [model for model in map(table_of, list_of(models.get("data"))) if names_of(model)]
    names = [names_of(model)[0] for model in has]
    if wanted is not None:
        if not any(wanted in names_of(model) for model in has):
            raise unserved(wanted, names)
        return wanted if is_router(props) else None
    if not is_router(props):
        return None
    used = [names_of(model)[0] for model in has if table_of(model.get("status")).get("value") in _IN_USE]
    if len(names) != 1 and len(used) != 1:
        raise EngineUnavailable(
            f"the llama-server at {url!r} is in router mode, and its models are {listed(names)}: name one of them "
            "(engine.served_model), or give each an engine of its own ([engines.NAME])"
        )
    return names[0] if len(names) == 1 else used[0]


def start_marker_of(props: dict[str, Any]) -> str | None:
    """The placeholder for images, if it was drawn at random at the start, which is all that it is used for here."""
    marker: object = props.get("media_marker")
    return marker if isinstance(marker, str) and _RANDOM.fullmatch(marker) else None


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
# Recovers ids that the stream loses, counts them, and recognises the last message. Sans-IO: lines in,
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
