"""The JSON of a llama.cpp server, read and written.

Turns our requests into bodies, and answers into facts and ends; `http/answers.py` reads errors. It sends nothing.
"""

from collections.abc import Sequence
from typing import Any, Final

from gateway.engine.http.answers import IDS, count_of, model_name, text_of
from gateway.engine.interface import EngineFacts, GenerateRequest, GenerationEnd, Sampling, Timings
from gateway.engine.llama_cpp.repair import IdRepair, Repaired

_SLOTS: Final = 4096
"""Most slots of one engine: a larger number is not believed."""
_CONTEXT: Final = 2**31
_SHORTEST: Final = 1e-3
_LONGEST: Final = 1e10
"""Milliseconds that a generation may take: a microsecond to four months."""
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
        vocabulary=None if (size := meta.get("n_vocab")) is None else count_of(size, 0, _CONTEXT),
        context=count_of(settings.get("n_ctx") or meta.get("n_ctx") or 0, 0, _CONTEXT),
        slots=count_of(props.get("total_slots") or 1, 1, _SLOTS),
        bos=tuple(count_of(token, 0, _CONTEXT) for token in bos["tokens"]),
        # The placeholder for images. Used here only because it is drawn at random at each start.
        start_marker=props.get("media_marker"),
    )


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


def repaired(message: dict[str, Any], repair: IdRepair | None) -> Repaired:
    """The ids of one stream message, including those that it lost, if there is a map by which to recover them."""
    if message.get("stop") and not message.get("tokens"):
        return Repaired(())
    ids: list[int] = message.get("tokens") or []
    if repair is None:
        return Repaired(tuple(ids))
    return repair.feed(ids, str(message.get("content") or ""), int(message["tokens_predicted"]))


def logprobs_of(message: dict[str, Any], ids: Sequence[int]) -> list[float | None]:
    """The log-probabilities of the ids of one stream message; None for ids that the message lost."""
    found: list[float | None] = [None] * len(ids)
    told: list[dict[str, Any]] = message.get("completion_probabilities") or []
    for place, each in zip(range(len(ids) - 1, -1, -1), reversed(told), strict=False):
        if each["id"] != ids[place]:
            break
        # The logarithm of a probability of 0 is null in JSON.
        found[place] = None if each["logprob"] is None else float(each["logprob"])
    return found


def tops_of(message: dict[str, Any], ids: Sequence[int], most: int) -> list[tuple[tuple[int, float], ...]]:
    """The most probable ids at the places of the ids of one stream message; empty for ids that the message lost."""
    found: list[tuple[tuple[int, float], ...]] = [()] * len(ids)
    told: list[dict[str, Any]] = message.get("completion_probabilities") or []
    for place, each in zip(range(len(ids) - 1, -1, -1), reversed(told), strict=False):
        if each["id"] != ids[place]:
            break
        tops = [(int(top["id"]), top["logprob"]) for top in each.get("top_logprobs") or ()]
        found[place] = tuple((token_id, float(logprob)) for token_id, logprob in tops if logprob is not None)[:most]
    return found


def _seconds(milliseconds: Any) -> float:
    """A time in seconds; 0, which counts as not reported, for what no clock shows."""
    told = float(milliseconds or 0)
    return told / 1000 if _SHORTEST <= told <= _LONGEST else 0.0


def read_end(message: dict[str, Any], last: int | None, counts: list[int]) -> GenerationEnd:
    """The end in the final message. `last`: the last id before it; `counts`: ids repaired, ambiguous and missed."""
    timings: dict[str, Any] = message.get("timings") or {}
    ended = message.get("stop_type") == "eos"
    return GenerationEnd(
        reason="stop" if ended else "length",
        ended_by=last if ended else None,
        timings=Timings(
            prompt_n=int(timings.get("prompt_n") or 0),
            cache_n=int(timings.get("cache_n") or 0),
            generated_n=min(max(int(message["tokens_predicted"]), 0), IDS),
            prompt_seconds=_seconds(timings.get("prompt_ms")),
            generate_seconds=_seconds(timings.get("predicted_ms")),
        ),
        slot=message.get("id_slot"),
        repaired=counts[0],
        ambiguous=counts[1],
        missed=counts[2],
    )
