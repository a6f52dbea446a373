"""The JSON of a vLLM server, read and written: requests, facts, grammars, and streams of ids.

Turns our requests into bodies for the two endpoints that take ids, and answers into facts and events. It sends nothing.

Reference: vLLM 0.32, vllm/entrypoints/scale_out/token_in_token_out/protocol.py (`/inference/v1/generate`) and
vllm/entrypoints/openai/completion/protocol.py (`/v1/completions`).
"""

import json
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from gateway.engine.interface import (
    Activity,
    Capabilities,
    EngineFacts,
    Generated,
    GenerateRequest,
    GenerationEnd,
    GenerationEvent,
    Retention,
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
    table_of,
    text_of,
    unserved,
)
from gateway.errors import EngineRefused, EngineUnavailable, GrammarRefused
from gateway.toolcalls.formats.format import CallTrigger
from leaf_sdk.vocab import TokenMap

# A grammar in the form that vLLM takes: xgrammar's notation, or a structural tag if it waits for a token.
#
# Turns GBNF's tokens (`<[id]>`) into xgrammar's (`Token(id)`), and a grammar with triggers into a JSON text that says:
# any tokens except the triggers, then the grammar or nothing. The grammar includes its trigger. So text before a call
# is free, and the turn ends after the calls, as with llama.cpp's lazy grammars. It sends nothing.
#
# Reference: xgrammar 0.2.8, docs/structural_tag/structural_tag.md, docs/defining_structures/ebnf_grammar.md. All that
# is used has existed since 0.1.33.

_PIECES: Final = re.compile(r'"(?:[^"\\]|\\.)*"|<\[(\d+)\]>|\[(?:[^\]\\]|\\.)*\]', re.DOTALL)
"""A literal, a token, or a character class: what looks like a token inside the other two is text."""


def structured_outputs(grammar: str, triggers: Sequence[CallTrigger]) -> dict[str, str]:
    """The field `structured_outputs`: the output must match `grammar`, from one of `triggers` on if there are any."""
    if not triggers:
        return {"grammar": in_ebnf(grammar)}
    ids = [trigger.token_id for trigger in triggers]
    held: dict[str, Any] = {"type": "grammar", "grammar": in_ebnf(grammar)}
    elements = [{"type": "any_tokens", "exclude_tokens": ids}, {"type": "optional", "content": held}]
    tag = {"type": "structural_tag", "format": {"type": "sequence", "elements": elements}}
    return {"structural_tag": json.dumps(tag, ensure_ascii=False)}


def in_ebnf(grammar: str) -> str:
    """The same grammar, with its tokens in xgrammar's notation."""
    return _PIECES.sub(_piece, grammar) if "<[" in grammar else grammar


def _piece(found: re.Match[str]) -> str:
    return f"Token({found[1]})" if found[1] is not None else found[0]


KIND: Final = "vLLM"
IDS_PATH: Final = "/inference/v1/generate"
COMPLETIONS_PATH: Final = "/v1/completions"
RENDER_PATH: Final = "/v1/chat/completions/render"
SESSION_HEADER: Final = "x-session-id"
"""The header by which routers keep a conversation on one server: vllm-router's `consistent_hash`, llm-d's session
affinity."""
PROGRAMS_PATH: Final = "/scheduling/diagnostics"
"""Where vllm-router says whether it schedules programs: conversations, with the pauses between their requests. See its
docs/program_scheduling/program-scheduling.md."""
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
class ShownTemplate:
    """What a server shows of its chat template, as text."""

    text: str
    """The template, or its rendering of a conversation with all kinds of messages."""
    is_source: bool
    supports_tools: bool


def read_facts(
    models: dict[str, Any],
    served: str,
    metrics: str,
    bos: dict[str, Any],
    shown: ShownTemplate,
    at_once: int,
    *,
    retention: bool,
) -> EngineFacts:
    """The facts in the answers of `/v1/models`, `/metrics` and `/tokenize`.

    Args:
        models, metrics, bos: the answers.
        served: the name by which the model is requested.
        shown: what the server shows of its template.
        at_once: generations that may run at a time, which the server does not report.
        retention: whether it takes what is known of how long a conversation's cache will be needed.
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
            retention=retention,
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


def schedules_programs(status: int, body: bytes) -> bool:
    """Whether a router that schedules programs has answered at `PROGRAMS_PATH`. Other servers lack the path."""
    try:
        return status == 200 and table_of(json.loads(body)).get("enabled") is True
    except (ValueError, RecursionError):
        return False


def served_name(models: dict[str, Any], wanted: str | None) -> str:
    """The name by which the model is requested. Raises `EngineUnavailable` if the server lacks the wanted one."""
    names = [str(entry["id"]) for entry in models["data"]]
    if wanted is not None and wanted not in names:
        raise unserved(wanted, names)
    return wanted or names[0]


def ids_body(request: GenerateRequest, model: str) -> dict[str, Any]:
    """The body of `POST /inference/v1/generate`."""
    asked: dict[str, Any] = {"max_tokens": request.max_tokens, **_sampling(request.sampling)}
    if request.grammar is not None:
        asked["structured_outputs"] = structured_outputs(request.grammar, request.triggers)
    if request.logprobs:
        asked["logprobs"] = request.top_logprobs
    body = {**_common(request, model), "token_ids": list(request.prompt), "sampling_params": asked}
    if request.retention is not None:
        # The router reads it; vLLM ignores the field here, and would refuse an object in it at `/v1/completions`.
        body["vllm_xargs"] = {"agentic_context": _agentic_context(request.retention)}
    return body


def _agentic_context(retention: Retention) -> dict[str, Any]:
    """What vllm-router is told of a program."""
    seconds = retention.seconds
    return {
        "program_id": retention.conversation,
        "expected_resume": retention.continues,
        **({} if seconds is None else {"kv_retention_ttl_seconds": seconds}),
    }


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


# The lines of one vLLM event stream into the events of one generation, for both of its endpoints.
#
# Every id is in the stream, so nothing is repaired. Ids that are neither the map's nor its padding's, or more than were
# asked for, are an error. The usage follows the last id in a separate message, and `[DONE]` ends the stream. Once the
# end of the answer was told, nothing that follows can take it away. Sans-IO.

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
        told = table_of(self._usage.get("prompt_tokens_details")).get("cached_tokens")
        cached = bounded(told, self._prompt)
        # The server does not report times.
        timings = Timings(self._prompt - cached, cached, self._given, 0.0, 0.0)
        by = self._last if by_id else None
        return GenerationEnd(known, by, timings, tells_cache=told is not None, padded=self.padded)


def _joined(events: Sequence[Generated]) -> Generated:
    return Generated(
        tuple(token_id for each in events for token_id in each.ids),
        False,
        tuple(logprob for each in events for logprob in each.logprobs),
        tuple(top for each in events for top in each.tops),
    )
