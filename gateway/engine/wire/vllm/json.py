"""The JSON of a vLLM server, read and written.

Turns our requests into bodies for the two endpoints that take ids, and answers into facts; `generate_stream.py` reads
the streams. It sends nothing.

Reference: vLLM 0.32, vllm/entrypoints/scale_out/token_in_token_out/protocol.py (`/inference/v1/generate`) and
vllm/entrypoints/openai/completion/protocol.py (`/v1/completions`).
"""

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.engine.interface import Activity, Capabilities, EngineFacts, GenerateRequest, Sampling
from gateway.engine.wire.http.answers import count_of, list_of, logprob_of, model_name, table_of, text_of
from gateway.engine.wire.vllm.structural_tag import structured_outputs
from gateway.errors import EngineUnavailable

KIND: Final = "vLLM"
IDS_PATH: Final = "/inference/v1/generate"
COMPLETIONS_PATH: Final = "/v1/completions"
SESSION_HEADER: Final = "x-session-id"
"""The header by which routers keep a conversation on one server: vllm-router's `consistent_hash`, llm-d's session
affinity."""
_NAME: Final = 100
_NAMES: Final = 20
"""Most characters of a name, and most names, in an error."""
_CONTEXT: Final = 2**31
_DIGITS: Final = 10
"""Most digits of an id."""
_BLOCK: Final = 128
"""Ids of a block if the server does not report it: the largest usual size."""
_GENERATED: Final = b"vllm:generation_tokens_total"
_PROGRESS: Final = re.compile(rb"^vllm:\w*(?:tokens_total|cache_usage_perc)(?:\{[^}\n]*\})? [^\n]*", re.MULTILINE)
"""What changes with every step: tokens of prompts and of answers, and the part of the cache in use."""
_BLOCK_SIZE: Final = re.compile(r'^vllm:cache_config_info\{[^}\n]*\bblock_size="(\d{1,6})"', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Shown:
    """What a server shows of its chat template, as text."""

    text: str
    """The template, or its rendering of a conversation with all kinds of messages."""
    is_source: bool
    supports_tools: bool


def read_facts(
    models: dict[str, Any], served: str, metrics: str, bos: dict[str, Any], shown: Shown, at_once: int
) -> EngineFacts:
    """The facts in the answers of `/v1/models`, `/metrics` and `/tokenize`.

    Args:
        models, metrics, bos: the answers.
        served: the name by which the model is requested.
        shown: what the server shows of its template.
        at_once: generations that may run at a time, which the server does not report.
    """
    # An adapter has the context of its base model, which is listed first.
    model: dict[str, Any] = models["data"][0]
    block = _BLOCK_SIZE.search(metrics)
    return EngineFacts(
        model=model_name(served),
        model_path=text_of(model.get("root")),
        chat_template=shown.text,
        supports_tools=shown.supports_tools,
        vocabulary=None,
        context=count_of(model.get("max_model_len"), 1, _CONTEXT),
        slots=at_once,
        bos=tuple(count_of(token, 0, _CONTEXT) for token in bos["tokens"]),
        # It reports when it was started, but behind a router each request may reach another server of its kind.
        start_marker=None,
        can=Capabilities(
            salts=True,
            sessions=True,
            reuse_block=max(int(block[1]), 1) if block else _BLOCK,
            plain_tokenize=False,
            shows_template=shown.is_source,
        ),
        api="vllm",
    )


def activity_of(metrics: bytes) -> Activity | None:
    """How far a server has come, by its metrics; None if they don't tell: those of a router, or none are kept.

    Whether it is busy can't be read there: after requests were aborted, it reports them as running until its next step
    (vLLM issue 22545).
    """
    if _GENERATED not in metrics:
        return None
    return Activity(tuple(_PROGRESS.findall(metrics)))


def served_name(models: dict[str, Any], wanted: str | None) -> str:
    """The name by which the model is requested. Raises `EngineUnavailable` if the server lacks the wanted one."""
    names = [str(entry["id"]) for entry in models["data"]]
    if wanted is not None and wanted not in names:
        listed = ", ".join(repr(name[:_NAME]) for name in names[:_NAMES])
        raise EngineUnavailable(f"engine.served_model is {wanted!r}, but the server has {listed}: name one of these")
    return wanted or names[0]


def ids_body(request: GenerateRequest, model: str) -> dict[str, Any]:
    """The body of `POST /inference/v1/generate`."""
    asked: dict[str, Any] = {"max_tokens": request.max_tokens, **_sampling(request.sampling)}
    if request.grammar is not None:
        asked["structured_outputs"] = structured_outputs(request.grammar, request.triggers)
    if request.logprobs:
        asked["logprobs"] = request.top_logprobs
    return {**_common(request, model), "token_ids": list(request.prompt), "sampling_params": asked}


def completion_body(request: GenerateRequest, model: str) -> dict[str, Any]:
    """The body of `POST /v1/completions`, for servers without `/inference/v1/generate`."""
    body: dict[str, Any] = {
        **_common(request, model),
        "prompt": list(request.prompt),
        "return_token_ids": True,
        "max_tokens": request.max_tokens,
        **_sampling(request.sampling),
    }
    if request.grammar is not None:
        body["structured_outputs"] = structured_outputs(request.grammar, request.triggers)
    if request.logprobs:
        body |= {"logprobs": request.top_logprobs, "return_tokens_as_token_ids": True}
    return body


def _common(request: GenerateRequest, model: str) -> dict[str, Any]:
    salt = request.salt if request.reuse else secrets.token_urlsafe(32)
    return {
        "model": model,
        "stream": True,
        "stream_options": {"include_usage": True},
        **({"cache_salt": salt} if salt is not None else {}),
    }


def _sampling(sampling: Sampling) -> dict[str, Any]:
    named: dict[str, Any] = {
        "temperature": sampling.temperature,
        # vLLM refuses a `top_p` of 0, which leaves only the likeliest token; so does a `top_k` of 1.
        "top_p": sampling.top_p or None,
        "top_k": 1 if sampling.top_p == 0 else sampling.top_k,
        "min_p": sampling.min_p,
        "seed": sampling.seed,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "logit_bias": {str(token_id): bias for token_id, bias in sampling.logit_bias} or None,
    }
    return {name: value for name, value in named.items() if value is not None}


def logprobs_of(choice: dict[str, Any], ids: Sequence[int]) -> list[float | None]:
    """The log-probabilities of the ids of one message, from either endpoint."""
    told = table_of(choice.get("logprobs"))
    if "token_logprobs" in told:
        values: list[object] = list_of(told["token_logprobs"])
    else:
        entries = [*map(table_of, list_of(told.get("content")))]
        values = [
            each.get("logprob") if each.get("token_id") == token_id else None
            for each, token_id in zip(entries, ids, strict=False)
        ]
    found = [logprob_of(value) for value in values[: len(ids)]]
    return found + [None] * (len(ids) - len(found))


def tops_of(choice: dict[str, Any], ids: Sequence[int]) -> list[list[tuple[object, object]]]:
    """The ids and log-probabilities of the alternatives at each place of a message's ids, as they are reported."""
    told = table_of(choice.get("logprobs"))
    places: list[list[tuple[object, object]]] = []
    if "top_logprobs" in told:
        by_name = map(table_of, list_of(told["top_logprobs"]))
        places = [[(_named_id(name), logprob) for name, logprob in each.items()] for each in by_name]
    else:
        entries = map(table_of, list_of(told.get("content")))
        tops = ([*map(table_of, list_of(each.get("top_logprobs")))] for each in entries)
        places = [[(top.get("token_id"), top.get("logprob")) for top in each] for each in tops]
    places += [[] for _ in range(len(ids) - len(places))]
    return places[: len(ids)]


def _named_id(name: str) -> int | None:
    """The id in a name such as `token_id:7`."""
    digits = name.removeprefix("token_id:")
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS else None
