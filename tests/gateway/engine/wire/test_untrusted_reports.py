"""What an engine reports is not trusted: impossible numbers are bounded, and an answer that has come is never lost.

Each case goes through the readers of both kinds of engine. The oddities under `_REPORTED` are from public bug reports.
"""

import json
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final

import pytest

from gateway.engine.interface import Generated, GenerateRequest, GenerationEnd, GenerationEvent
from gateway.engine.wire.engine_answers import EventReader, JsonQuestions
from gateway.engine.wire.llama_cpp_client import LlamaCppQuestions
from gateway.engine.wire.llama_cpp_json import CompletionStream
from gateway.engine.wire.vllm_json import GenerateStream
from gateway.errors import EngineRefused
from leaf_sdk.testing import tiny_map
from tests.cases import each_of

TINY = tiny_map()
A, B, C = TINY.encode("abc")
URL: Final = "http://engine.test:8000"
PROMPT: Final = 10
MOST: Final = 8

MISSING: Final = object()
NO_COUNTS: Final = [
    *(-1, -(10**30), 10**30, 2**63, float(10**300), math.nan, math.inf, -math.inf),
    *("7", "x", "", True, False, None, [], [7], {}, {"a": 7}, MISSING),
]
NO_IDS: Final = [
    -1,
    len(TINY) + 4096,
    2**32,
    5279552648203111001,
    10**30,
    1.0,
    1.5,
    math.nan,
    True,
    False,
    None,
    "7",
    [1],
]


def _shown(value: object) -> str:
    return "missing" if value is MISSING else repr(value)


def put(message: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """The message with another value at a path of keys; without it if the value is `MISSING`."""
    key, _, rest = path.partition(".")
    if rest:
        return {**message, key: put(message[key], rest, value)}
    return {name: old for name, old in message.items() if name != key} | ({} if value is MISSING else {key: value})


def line(message: object) -> bytes:
    return b"data: " + json.dumps(message).encode()


@dataclass(frozen=True)
class Wire:
    """How one kind of engine writes its stream."""

    kind: str
    reader: Callable[..., EventReader]
    ids: Callable[..., dict[str, Any]]
    """A message with ids; `before`: how many came before them."""
    last: Callable[[int], Sequence[dict[str, Any]]]
    """The messages after the ids, of which there were so many."""
    logprobs: Callable[[object], dict[str, Any]]
    """Fields of a message with one id that report this log-probability, also for id 0 as an alternative."""
    alternative: Callable[[object], dict[str, Any]]
    """The same for another id as an alternative."""

    def whole(self, *ids: int) -> list[bytes]:
        """A whole stream."""
        given = [line(self.ids(each, before=number)) for number, each in enumerate(ids)]
        return [*given, *map(line, self.last(len(ids))), b"data: [DONE]"]

    def read(self, *lines: bytes, logprobs: bool = False) -> list[GenerationEvent]:
        return list(self.reader(logprobs=logprobs, tops=2 if logprobs else 0).feed(lines))


def _llama_ids(*ids: object, before: int = 0, **fields: Any) -> dict[str, Any]:
    known = [each for each in ids if type(each) is int and TINY.has_id(each)]
    text = TINY.decode(each for each in known if each not in TINY.special_ids)
    return {"content": text, "tokens": list(ids), "stop": False, "tokens_predicted": before + len(ids), **fields}


def _llama_last(count: int) -> list[dict[str, Any]]:
    timings = {"prompt_n": 3, "cache_n": 7, "prompt_ms": 5.0, "predicted_ms": 9.0}
    end = {"content": "", "tokens": [], "stop": True, "stop_type": "eos", "tokens_predicted": count, "id_slot": 0}
    return [{**end, "timings": timings}]


def _llama_logprobs(value: object, other: object = 0) -> dict[str, Any]:
    top = {"id": other, "logprob": value}
    return {"completion_probabilities": [{"id": A, "logprob": value, "top_logprobs": [top]}]}


def _vllm_ids(*ids: object, before: int = 0, **fields: Any) -> dict[str, Any]:
    del before
    choice = {"index": 0, "token_ids": list(ids), "finish_reason": None, "stop_reason": None}
    return {"request_id": "r", "usage": None, "choices": [choice | fields]}


def _vllm_last(count: int) -> list[dict[str, Any]]:
    usage = {"prompt_tokens": PROMPT, "completion_tokens": count, "prompt_tokens_details": {"cached_tokens": 7}}
    return [_vllm_ids(finish_reason="stop"), {"choices": [], "usage": usage}]


def _generate_logprobs(value: object, other: object = 0) -> dict[str, Any]:
    top = {"token_id": other, "logprob": value}
    return {"logprobs": {"content": [{"token_id": A, "logprob": value, "top_logprobs": [top]}]}}


def _completions_logprobs(value: object, other: object = 0) -> dict[str, Any]:
    return {"logprobs": {"token_logprobs": [value], "top_logprobs": [{f"token_id:{other}": value}]}}


def asked(*, logprobs: bool = False, tops: int = 0) -> GenerateRequest:
    return GenerateRequest(range(PROMPT), None, MOST, logprobs=logprobs, top_logprobs=tops)


def _llama_reader(**told: Any) -> EventReader:
    return CompletionStream(URL, TINY, asked(**told))


def _vllm_reader(**told: Any) -> EventReader:
    return GenerateStream(URL, TINY, asked(**told))


LLAMA: Final = Wire(
    "llama.cpp", _llama_reader, _llama_ids, _llama_last, _llama_logprobs, lambda other: _llama_logprobs(-1.0, other)
)
GENERATE: Final = Wire(
    "vLLM", _vllm_reader, _vllm_ids, _vllm_last, _generate_logprobs, lambda other: _generate_logprobs(-1.0, other)
)
COMPLETIONS: Final = Wire(
    "vLLM /v1/completions",
    *(_vllm_reader, _vllm_ids, _vllm_last, _completions_logprobs),
    lambda other: _completions_logprobs(-1.0, other),
)
WIRES: Final = [pytest.param(wire, id=wire.kind) for wire in (LLAMA, GENERATE, COMPLETIONS)]


def checked(events: Sequence[GenerationEvent], *ids: int) -> GenerationEnd:
    """The end of a stream, after all its ids, with numbers that are possible."""
    *given, end = events
    assert [each for event in given if isinstance(event, Generated) for each in event.ids] == list(ids)
    assert isinstance(end, GenerationEnd)
    told = end.timings
    counts = (told.prompt_n, told.cache_n, told.generated_n, end.missed, end.repaired)
    assert all(type(each) is int for each in counts)
    assert 0 <= told.cache_n <= PROMPT
    assert 0 <= told.prompt_n <= PROMPT - told.cache_n
    assert len(ids) <= told.generated_n <= MOST
    assert 0 <= end.missed <= MOST - len(ids)
    assert all(type(each) is float and 0 <= each < math.inf for each in (told.prompt_seconds, told.generate_seconds))
    assert end.slot is None or (type(end.slot) is int and 0 <= end.slot < 2**16)
    return end


FIELDS: Final = [
    *((LLAMA, 0, "timings" + field) for field in ("", ".prompt_n", ".cache_n", ".prompt_ms", ".predicted_ms")),
    *((LLAMA, 0, field) for field in ("tokens_predicted", "id_slot", "stop_type", "tokens_evaluated", "truncated")),
    *((LLAMA, 0, field) for field in ("completion_probabilities", "content")),
    *((GENERATE, 1, field) for field in ("choices", "usage", "usage.prompt_tokens", "usage.completion_tokens")),
    *((GENERATE, 1, "usage.prompt_tokens_details" + field) for field in ("", ".cached_tokens")),
]


@each_of("value", NO_COUNTS)
@each_of(("wire", "number", "path"), FIELDS)
def test_no_value_in_the_final_message_costs_the_answer(wire: Wire, number: int, path: str, value: object) -> None:
    last = [*wire.last(3)]
    last[number] = put(last[number], path, value)
    lines = [line(wire.ids(each, before=before)) for before, each in enumerate((A, B, C))]

    end = checked(wire.read(*lines, *map(line, last), b"data: [DONE]", logprobs=True), A, B, C)

    assert end.reported
    if path not in ("stop_type", "finish_reason"):
        assert (end.reason, end.ended_by) == ("stop", C)


@each_of("value", [True, 7, -1, 1.5, [], ["stop"], {}, "repetition", "content_filter", "tool_calls"])
def test_unknown_reason_for_the_end_costs_no_answer(value: object) -> None:
    reason = line(_vllm_ids(C, finish_reason=value))
    end = checked(GENERATE.read(line(_vllm_ids(A)), reason, b"data: [DONE]"), A, C)
    assert (end.reason, end.ended_by) == ("stop", None)


@each_of("value", [*NO_COUNTS, 0, 7, 100])
@each_of("place", [0, 1, 2])
def test_wrong_count_within_the_stream_costs_no_id(value: object, place: int) -> None:
    messages = [_llama_ids(each, before=before) for before, each in enumerate((A, B, C))]
    messages[place] = put(messages[place], "tokens_predicted", value)

    checked(LLAMA.read(*map(line, messages), *map(line, _llama_last(3))), A, B, C)


@pytest.mark.parametrize("wire", WIRES)
@each_of("alone", [True, False])
@each_of("token", NO_IDS)
def test_id_that_the_map_does_not_have_ends_the_answer_with_the_engine_and_the_id_named(
    wire: Wire, token: object, alone: bool
) -> None:
    given: list[GenerationEvent] = []
    bad = wire.ids(*((token,) if alone else (B, token, C)), before=1)

    with pytest.raises(EngineRefused) as refused:
        given.extend(wire.reader().feed([line(wire.ids(A)), line(bad), *map(line, wire.last(4))]))

    assert given == [Generated((A,))]
    assert refused.value.status == 502
    assert repr(URL) in refused.value.message
    assert repr(token) in refused.value.message


@pytest.mark.parametrize("wire", WIRES)
@each_of("tokens", ["abc", {"1": 2}, 7, True, 1.5])
def test_ids_that_are_no_list_are_refused(wire: Wire, tokens: object) -> None:
    message = (
        _llama_ids(A) | {"tokens": tokens}
        if wire is LLAMA
        else _vllm_ids(A) | {"choices": [{"index": 0, "token_ids": tokens, "finish_reason": None}]}
    )
    with pytest.raises(EngineRefused, match="engine"):
        wire.read(line(message))


@each_of("wire", (LLAMA, GENERATE, COMPLETIONS))
@each_of("value", [math.nan, math.inf, -math.inf, "x", "7", True, None, [], {}, 10**400])
def test_log_probability_that_is_no_number_counts_as_not_reported(wire: Wire, value: object) -> None:
    events = wire.read(
        line(wire.ids(A, **wire.logprobs(value))), *map(line, wire.last(1)), b"data: [DONE]", logprobs=True
    )
    checked(events, A)
    assert events[0] == Generated((A,), logprobs=(None,), tops=((),))


@pytest.mark.parametrize("wire", WIRES)
def test_log_probability_is_at_most_zero(wire: Wire) -> None:
    events = wire.read(line(wire.ids(A, **wire.logprobs(0.966))), logprobs=True)
    assert events == [Generated((A,), logprobs=(0.0,), tops=(((0, 0.0),),))]


@pytest.mark.parametrize("wire", WIRES)
@each_of("other", [token for token in NO_IDS if not isinstance(token, str)])
def test_alternative_that_is_no_id_of_the_map_is_left_out(wire: Wire, other: object) -> None:
    events = wire.read(line(wire.ids(A, **wire.alternative(other))), logprobs=True)
    assert events == [Generated((A,), logprobs=(-1.0,), tops=((),))]


@each_of("wire", (LLAMA, GENERATE, COMPLETIONS))
@each_of(
    "value",
    [
        7,
        "x",
        True,
        [7],
        ["x"],
        [[]],
        [None],
        {"content": 7},
        {"content": [7]},
        {"token_logprobs": 7},
        {"top_logprobs": [7], "token_logprobs": [7]},
        {"content": [{"token_id": A}]},
        [{"id": A}],
        [{"id": A, "logprob": -1.0, "top_logprobs": 7}],
    ],
)
def test_log_probabilities_of_another_form_cost_no_id(wire: Wire, value: object) -> None:
    name = "completion_probabilities" if wire is LLAMA else "logprobs"
    events = wire.read(line(wire.ids(A, **{name: value})), *map(line, wire.last(1)), b"data: [DONE]", logprobs=True)
    checked(events, A)
    assert isinstance(events[0], Generated)
    assert events[0].tops == ((),)


_REPORTED: Final[list[tuple[str, list[bytes], tuple[int, ...]]]] = [
    # ggml-org/llama.cpp#7106: control tokens come as empty texts.
    (
        "llama.cpp empty text",
        LLAMA.whole(A, TINY.special_tokens["<|im_start|>"], B),
        (A, TINY.special_tokens["<|im_start|>"], B),
    ),
    # ggml-org/llama.cpp#15827: messages about the progress of the prompt, without ids.
    (
        "llama.cpp progress",
        [
            line(
                {
                    "content": "",
                    "tokens": [],
                    "stop": False,
                    "tokens_predicted": 0,
                    "prompt_progress": {"total": 237, "cache": 0, "processed": 128, "time_ms": 181},
                }
            ),
            *LLAMA.whole(A),
        ],
        (A,),
    ),
    # nlohmann's JSON writes a division by zero as null.
    (
        "llama.cpp null times",
        [
            line(_llama_ids(A)),
            line(
                put(_llama_last(1)[0], "timings", dict.fromkeys(("prompt_n", "cache_n", "prompt_ms", "predicted_ms")))
            ),
        ],
        (A,),
    ),
    # ggml-org/llama.cpp#4088: no probabilities although they were asked for.
    ("llama.cpp no probabilities", [line(_llama_ids(A, completion_probabilities=[])), line(_llama_last(1)[0])], (A,)),
    # vllm-project/vllm#19650: `finish_reason` is missing in all messages but the last.
    (
        "vLLM no finish_reason",
        [
            line({"choices": [{"index": 0, "token_ids": [A]}]}),
            line(_vllm_ids(B, finish_reason="stop")),
            b"data: [DONE]",
        ],
        (A, B),
    ),
    # ollama/ollama#4357: it is an empty string in them.
    ("vLLM empty finish_reason", [line(_vllm_ids(A, finish_reason="")), *GENERATE.whole(B)], (A, B)),
    # vllm-project/vllm#12394: usage in the messages of ids, and none after them.
    (
        "vLLM usage with ids",
        [
            line({**_vllm_ids(A, finish_reason="stop"), "usage": {"prompt_tokens": 10, "completion_tokens": 0}}),
            b"data: [DONE]",
        ],
        (A,),
    ),
    # vllm-project/vllm-ascend#9891: no details if nothing was cached.
    (
        "vLLM no details",
        [
            line(_vllm_ids(A, finish_reason="stop")),
            line({"choices": [], "usage": {"prompt_tokens_details": None}}),
            b"data: [DONE]",
        ],
        (A,),
    ),
    # NousResearch/hermes-agent#91373: the reason comes with the last ids.
    ("vLLM reason with ids", [line(_vllm_ids(A, B, finish_reason="stop")), b"data: [DONE]"], (A, B)),
    # Routers write the account without `choices`.
    (
        "vLLM account without choices",
        [line(_vllm_ids(A, finish_reason="stop")), line({"usage": {}}), b"data: [DONE]"],
        (A,),
    ),
]


@pytest.mark.parametrize(("lines", "ids"), [case[1:] for case in _REPORTED], ids=[case[0] for case in _REPORTED])
def test_oddity_from_a_public_report_costs_no_id(
    lines: list[bytes], ids: tuple[int, ...], request: pytest.FixtureRequest
) -> None:
    wire = LLAMA if "llama" in request.node.name else GENERATE
    checked(wire.read(*lines, logprobs=True), *ids)


def test_error_after_the_end_costs_no_answer() -> None:
    error = line({"error": {"message": "usage could not be computed", "code": 500}})
    end = checked(GENERATE.read(line(_vllm_ids(A, B, finish_reason="stop")), error, b"data: [DONE]"), A, B)
    assert (end.reason, end.ended_by) == ("stop", B)


def test_text_of_another_type_is_no_text() -> None:
    """A text is only read where ids were lost."""
    odd = line(_llama_ids(A, content=["x" * 100], tokens_predicted=3))
    end = checked(LLAMA.read(odd, *map(line, _llama_last(3))), A)
    assert end.missed == 2


@pytest.mark.anyio
@each_of("usage", [MISSING, None, 7, {"prompt_tokens": -3, "total_tokens": "many"}])
@each_of("kind", ["llama.cpp", "vLLM"])
async def test_usage_of_embeddings_counts_the_ids_that_were_sent(kind: str, usage: object) -> None:
    async def ask(method: str, path: str, body: bytes) -> tuple[int, bytes]:
        assert (method, path) == ("POST", "/v1/embeddings")
        return 200, json.dumps(put({"data": []}, "usage", usage)).encode()

    answer = await JsonQuestions(URL, kind, ask).embed([[A, B], [C]], None, None)
    assert answer == {"data": [], "usage": {"prompt_tokens": 3, "total_tokens": 3}}


@pytest.mark.anyio
@each_of("value", NO_COUNTS)
@each_of("path", ["timings", "timings.prompt_n", "timings.prompt_ms"])
async def test_report_of_a_filled_slot_is_bounded(path: str, value: object) -> None:
    told = put({"timings": {"prompt_n": 2, "prompt_ms": 5.0}}, path, value)

    async def ask(method: str, path: str, body: bytes) -> tuple[int, bytes]:
        return 200, json.dumps(told).encode()

    filled = await LlamaCppQuestions(URL, ask).fill_slot(0, [A, B, C])
    assert 0 <= filled.ids <= 3
    assert 0 <= filled.seconds < math.inf


@pytest.mark.anyio
@each_of("value", NO_COUNTS)
@each_of("path", ["n_saved", "n_written", "timings.save_ms"])
async def test_report_of_a_saved_slot_is_bounded_or_refused(path: str, value: object) -> None:
    """A file of which it is not known what it holds is no use."""
    told = put({"n_saved": 3, "n_written": 300, "timings": {"save_ms": 5.0}}, path, value)

    async def ask(method: str, path: str, body: bytes) -> tuple[int, bytes]:
        return 200, json.dumps(told).encode()

    refused = path != "timings.save_ms" or value is MISSING
    with pytest.raises(EngineRefused, match=URL) if refused else nullcontext():
        moved = await LlamaCppQuestions(URL, ask).save_slot(0, "file")
        assert (moved.ids, moved.size) == (3, 300)
        assert 0 <= moved.seconds < math.inf
