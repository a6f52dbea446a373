"""What we send, what the stand-in answers and what we read, held against vLLM's own OpenAPI document."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import pytest

from gateway.engine.interface import GenerateRequest, Retention, Sampling
from gateway.engine.wire.vllm_client import VllmQuestions
from gateway.engine.wire.vllm_json import COMPLETIONS_PATH, IDS_PATH, PROGRAMS_PATH, completion_body, ids_body
from gateway.toolcalls.formats.format import CallTrigger
from tests.standins.vllm_wire_over_llama_cpp import MODEL

pytestmark = pytest.mark.anyio

DOCUMENT: dict[str, Any] = json.loads((Path(__file__).parents[3] / "third_party/vllm/openapi.json").read_text())
PLAIN = GenerateRequest([1, 520, 198], None, 3, Sampling(temperature=0))
FULL = GenerateRequest(
    [1, 520, 198],
    None,
    3,
    Sampling(0.5, 0.9, 7, 0.1, 0.2, 40, 0.05, ((5, -1.0),)),
    grammar='root ::= "a"+',
    logprobs=True,
    top_logprobs=3,
    salt="0" * 64,
)

LAZY = replace(FULL, triggers=(CallTrigger("<tool_call>", 5),))


def held(value: object, schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator({**schema, "components": DOCUMENT["components"]}).validate(value)


def schema_of(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def body_of(path: str) -> dict[str, Any]:
    return DOCUMENT["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]


def fields_of(name: str) -> set[str]:
    return set(DOCUMENT["components"]["schemas"][name]["properties"])


@pytest.mark.parametrize("request_", [PLAIN, FULL, LAZY], ids=["plain", "full", "lazy"])
def test_generations_are_asked_for_as_the_document_says(request_: GenerateRequest) -> None:
    by_ids, by_completions = ids_body(request_, "m"), completion_body(request_, "m")
    held(by_ids, body_of(IDS_PATH))
    held(by_completions, body_of(COMPLETIONS_PATH))

    # A field that it does not know it would drop without a word.
    assert by_ids.keys() <= fields_of("GenerateRequest")
    assert by_completions.keys() <= fields_of("CompletionRequest")
    outputs = by_completions.get("structured_outputs")
    assert outputs == by_ids["sampling_params"].get("structured_outputs")
    if outputs is not None:
        assert outputs.keys() <= fields_of("StructuredOutputsParams")
        held(outputs, schema_of("StructuredOutputsParams"))
    # Sampling has no schema of its own there: it has the same names at both endpoints.
    named = by_ids["sampling_params"].keys() - {"logprobs"}
    assert named <= fields_of("CompletionRequest")


def test_generation_without_wishes_asks_for_ids_their_count_and_nothing_else() -> None:
    request = GenerateRequest([1, 2], None, 3)
    common = {"model": "m", "stream": True, "stream_options": {"include_usage": True}}

    assert ids_body(request, "m") == {**common, "token_ids": [1, 2], "sampling_params": {"max_tokens": 3}}
    assert completion_body(request, "m") == {**common, "prompt": [1, 2], "return_token_ids": True, "max_tokens": 3}


@pytest.mark.parametrize("tops", [0, 2])
def test_probabilities_are_asked_for_with_as_many_alternatives_as_are_wanted(tops: int) -> None:
    request = GenerateRequest([1], None, 3, logprobs=True, top_logprobs=tops)

    assert ids_body(request, "m")["sampling_params"]["logprobs"] == tops
    by_completions = completion_body(request, "m")
    assert (by_completions["logprobs"], by_completions["return_tokens_as_token_ids"]) == (tops, True)


@pytest.mark.parametrize("seconds", [None, 0.25])
def test_router_is_told_what_follows_by_a_field_that_vllm_takes_at_one_endpoint_only(seconds: float | None) -> None:
    request = replace(PLAIN, retention=Retention("a1", continues=True, seconds=seconds))
    told = ids_body(request, "m")

    held(told, body_of(IDS_PATH))
    time = {} if seconds is None else {"kv_retention_ttl_seconds": seconds}
    context = {"program_id": "a1", "expected_resume": True, **time}
    assert told == {**ids_body(PLAIN, "m"), "vllm_xargs": {"agentic_context": context}}
    assert completion_body(request, "m") == completion_body(PLAIN, "m")
    with pytest.raises(jsonschema.ValidationError):
        held({**completion_body(PLAIN, "m"), "vllm_xargs": told["vllm_xargs"]}, body_of(COMPLETIONS_PATH))


def test_generation_that_is_to_find_nothing_has_a_salt_of_its_own() -> None:
    def salt(**more: Any) -> str | None:
        return ids_body(GenerateRequest([1], None, 3, **more), "m").get("cache_salt")

    assert (salt(), salt(salt="s")) == (None, "s")
    alone = [salt(salt="s", reuse=False) for _ in range(2)]
    assert len({*alone, "s", None}) == 4


def test_top_p_of_zero_asks_for_the_likeliest_token_in_a_way_that_vllm_takes() -> None:
    for body in (ids_body, completion_body):
        asked = body(replace(PLAIN, sampling=Sampling(top_p=0)), "m")
        sampling = asked.get("sampling_params", asked)

        assert (sampling.get("top_p"), sampling["top_k"]) == (None, 1)


async def test_questions_are_asked_as_the_document_says() -> None:
    asked: list[tuple[str, Any]] = []

    async def ask(method: str, path: str, body: bytes) -> tuple[int, bytes]:
        asked.append((path, json.loads(body) if body else None))
        answers = {
            "/v1/models": {"data": [{"id": "m", "root": "m", "max_model_len": 8}]},
            "/tokenize": {"tokens": [1]},
            "/detokenize": {"prompt": "a"},
        }
        return (200, json.dumps(answers[path]).encode()) if path in answers else (404, b"{}")

    questions = VllmQuestions("http://engine", ask, at_once=2, keep_reasoning=True)
    await questions.facts()
    await questions.tokenize("a", specials=True)

    for path, body in asked:
        # The last is a router's.
        if path in ("/metrics", "/tokenizer_info", PROGRAMS_PATH):
            continue
        assert path in DOCUMENT["paths"]
        if body is not None:
            held(body, body_of(path))
    chats = [body for path, body in asked if path == "/tokenize" and "messages" in body]
    assert chats
    assert all(body.keys() <= fields_of("TokenizeChatRequest") for body in chats)


@pytest.fixture
async def client(vllm_url: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=vllm_url, timeout=60) as client:
        yield client


@pytest.mark.engine
async def test_stand_in_answers_as_the_document_says(client: httpx2.AsyncClient) -> None:
    answer = await client.post(IDS_PATH, json=ids_body(PLAIN, MODEL))
    *events, done = [event.removeprefix("data: ") for event in answer.text.split("\n\n") if event]

    assert done == "[DONE]"
    for event in events:
        message = json.loads(event)
        held(message, schema_of("GenerateTokensStreamResponse"))
        assert message.keys() <= fields_of("GenerateTokensStreamResponse")
    assert json.loads(events[-1])["usage"]["prompt_tokens_details"].keys() <= fields_of("PromptTokenUsageInfo")


@pytest.mark.engine
async def test_stand_in_refuses_as_the_document_says(client: httpx2.AsyncClient) -> None:
    bad = {**ids_body(PLAIN, MODEL), "token_ids": [10**8]}
    for answer in (await client.post(IDS_PATH, json=bad), await client.post(IDS_PATH, json={})):
        assert answer.status_code == 400
        held(answer.json(), schema_of("ErrorResponse"))


@pytest.mark.engine
async def test_stand_in_weighs_ids_as_the_document_says(client: httpx2.AsyncClient) -> None:
    answer = await client.post(IDS_PATH, json=ids_body(FULL, MODEL))
    first = json.loads(answer.text.split("\n\n")[0].removeprefix("data: "))

    held(first["choices"][0]["logprobs"], schema_of("GenerateLogProbs"))
