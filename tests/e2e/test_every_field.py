"""Each field of chats and completions on the real model: OpenAI's types read all that comes, whole and streamed alike.

A field of the table (docs/api-fields.md) without a row here fails.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from gateway.serve.generation.request_fields import RequestModel
from gateway.serve.openai.chat import ChatRequest
from gateway.serve.openai.completions import CompletionRequest

Json = dict[str, Any]
ASK: list[Json] = [{"role": "user", "content": "Count: one two three"}]
BEGUN: list[Json] = [*ASK, {"role": "assistant", "content": "One, two,"}]
SCHEMA: Json = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 9, "minimum": 0}}}
LOOK: Json = {"type": "function", "function": {"name": "look", "parameters": SCHEMA}}
CALLS: Json = {"tools": [LOOK], "tool_choice": "required", "max_tokens": 80}
NAMED: Json = {"type": "function", "function": {"name": "look"}}
ALLOWED: Json = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}}
OLD: Json = {"functions": [LOOK["function"]], "function_call": {"name": "look"}, "max_tokens": 80}
FORM: Json = {"type": "json_schema", "json_schema": {"name": "n", "schema": {**SCHEMA, "required": ["n"]}}}

COLOUR: Json = {"type": "object", "properties": {"c": {"enum": ["red", "blue"]}}, "required": ["c"]}

BOTH: dict[str, list[Json]] = {
    "frequency_penalty": [{"frequency_penalty": 1}],
    "logit_bias": [{"logit_bias": {"30": -100}}],
    "max_tokens": [{"max_tokens": 2}],
    "min_p": [{"min_p": 0.1}],
    "model": [{"model": "another"}],
    "n": [{"n": 1}],
    "presence_penalty": [{"presence_penalty": 1}],
    "return_token_ids": [{"return_token_ids": True}],
    "seed": [{"seed": 2, "temperature": 1, "top_k": 3}],
    "stop": [{"stop": "e"}, {"stop": ["e", "o"]}],
    "stream": [{}],
    "stream_flush": [{"stream_flush": "batch"}],
    "stream_format": [{"stream_format": "json"}],
    "stream_options": [{"stream_options": {"include_usage": True}}],
    "temperature": [{"temperature": 0.5}],
    "tool_watcher": [{"tool_watcher": True}],
    "tool_watcher_end": [{"tool_watcher_end": "</x>"}],
    "tool_watcher_start": [{"tool_watcher_start": "<x>"}],
    "top_k": [{"top_k": 5}, {"top_k": -1}],
    "top_p": [{"top_p": 0.5}, {"top_p": 0}],
    "response_format": [{"response_format": {"type": kind}} for kind in ("text", "json_object")]
    + [{"response_format": FORM, "max_tokens": 60}],
    "json_schema": [{"json_schema": COLOUR}],
    "guided_json": [{"guided_json": COLOUR}, {"guided_json": json.dumps(COLOUR)}],
    "guided_choice": [{"guided_choice": ["red", "blue"]}],
    "guided_regex": [{"guided_regex": "[ab]{4}"}],
    "structured_outputs": [{"structured_outputs": {"choice": ["red", "blue"]}}],
}
CHAT: dict[str, list[Json]] = BOTH | {
    "add_generation_prompt": [{"add_generation_prompt": True}],
    "chat_template_kwargs": [{"chat_template_kwargs": {"enable_thinking": False}}],
    "continue_final_message": [{"continue_final_message": True, "add_generation_prompt": False, "messages": BEGUN}],
    "function_call": [{**OLD, "function_call": choice} for choice in ("auto", "none", {"name": "look"})],
    "functions": [OLD],
    "gateway_tools": [{"gateway_tools": "all"}],
    "logprobs": [{"logprobs": True}],
    "max_completion_tokens": [{"max_completion_tokens": 2}],
    "messages": [{"messages": [{"role": "developer", "content": [{"type": "text", "text": "Be brief."}]}, *ASK]}],
    "modalities": [{"modalities": ["text"]}],
    "n": [{"n": 2}],
    "parallel_tool_calls": [{**CALLS, "parallel_tool_calls": False}],
    "reasoning_effort": [{"reasoning_effort": "none"}],
    "show_calls": [{"show_calls": True}],
    "tool_choice": [{**CALLS, "tool_choice": choice} for choice in ("auto", "none", NAMED, ALLOWED)],
    "tools": [CALLS],
    "top_logprobs": [{"logprobs": True, "top_logprobs": 2}],
}
COMPLETIONS: dict[str, list[Json]] = BOTH | {"best_of": [{"best_of": 1}], "prompt": [{"prompt": [1, 2, 3]}]}
COMMON: Json = {"model": "any", "temperature": 0, "seed": 1, "max_tokens": 6}
CHATS: Json = {**COMMON, "messages": ASK, "gateway_tools": "none"}
PROMPTS: Json = {**COMMON, "prompt": "One, two,"}
ASKED: dict[str, Any] = {"audio": {"voice": "a"}, "echo": True, "logprobs": 1}
"""What is asked by a field that is refused, where it is not just any text."""


@pytest.fixture(scope="module")
def http(site: Any, chat: Any) -> Iterator[httpx2.Client]:
    headers = {"authorization": f"Bearer {chat.api_key}"}
    with httpx2.Client(base_url=site.url, headers=headers, timeout=240) as client:
        yield client


def rows(table: dict[str, list[Json]]) -> list[Any]:
    return [
        pytest.param(body, id=f"{name}{n or ''}") for name, bodies in table.items() for n, body in enumerate(bodies)
    ]


@pytest.mark.parametrize(("model", "table"), [(ChatRequest, CHAT), (CompletionRequest, COMPLETIONS)])
def test_each_field_that_is_served_has_a_row(model: type[RequestModel], table: Json) -> None:
    assert table.keys() == model.model_fields.keys() - {"ignored"}


@pytest.mark.parametrize("body", rows(CHAT))
def test_chat_is_read_by_openais_types_and_streamed_as_it_is_whole(http: httpx2.Client, body: Json) -> None:
    whole = posted(http, "/v1/chat/completions", {**CHATS, **body})
    ChatCompletion.model_validate(whole, strict=True)
    events = streamed(http, "/v1/chat/completions", {**CHATS, **body})
    state = ChatCompletionStreamState()
    for event in events:
        ChatCompletionChunk.model_validate(event, strict=True)
        state.handle_chunk(ChatCompletionChunk.construct(**event))
    joined = state.current_completion_snapshot.model_dump()

    assert [told(choice) for choice in joined["choices"]] == [told(choice) for choice in whole["choices"]]
    assert joined["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    assert joined["model"] == whole["model"]


HELD: list[tuple[Json, str]] = [
    ({"json_schema": COLOUR}, r'\{"c": "(red|blue)"\}'),
    ({"guided_json": COLOUR}, r'\{"c": "(red|blue)"\}'),
    ({"structured_outputs": {"json": COLOUR}}, r'\{"c": "(red|blue)"\}'),
    ({"guided_choice": ["red", "dark blue"]}, "red|dark blue"),
    ({"guided_regex": "[0-9]{3}-[ab]{1,9}!"}, "[0-9]{3}-[ab]{1,9}!"),
]


@pytest.mark.parametrize(("body", "pattern"), HELD)
def test_form_in_another_servers_field_holds_the_answer(http: httpx2.Client, body: Json, pattern: str) -> None:
    chat = posted(http, "/v1/chat/completions", {**CHATS, "max_tokens": 40, **body})
    completion = posted(http, "/v1/completions", {**PROMPTS, "max_tokens": 40, **body})

    assert re.fullmatch(pattern, chat["choices"][0]["message"]["content"])
    assert re.fullmatch(pattern, completion["choices"][0]["text"])


def told(choice: Json) -> Json:
    """What a choice says, without what is each answer's own, or was not said."""
    message = choice["message"]
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    said = {name: message.get(name) or "" for name in ("role", "content", "reasoning_content")}
    weighed = [token["token"] for token in (choice.get("logprobs") or {}).get("content") or ()]
    calls += [message["function_call"]] if message.get("function_call") else []
    named = [(call["name"], call["arguments"]) for call in calls]
    return {**said, "calls": named, "logprobs": weighed, "why": choice["finish_reason"], "at": choice["index"]}


@pytest.mark.parametrize("body", rows(COMPLETIONS))
def test_completion_is_read_by_openais_types_and_streamed_as_it_is_whole(http: httpx2.Client, body: Json) -> None:
    whole = posted(http, "/v1/completions", {**PROMPTS, **body})
    Completion.model_validate(whole, strict=True)
    events = streamed(http, "/v1/completions", {**PROMPTS, **body})
    for event in events:
        # A choice of a chunk says why it ends only at its end, which the type, made for whole answers, does not know.
        shown = [{**choice, "finish_reason": choice["finish_reason"] or "stop"} for choice in event["choices"]]
        Completion.model_validate({**event, "choices": shown}, strict=True)
    choices = [choice for event in events for choice in event["choices"]]

    assert "".join(choice["text"] for choice in choices) == whole["choices"][0]["text"]
    assert choices[-1]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert events[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]


REFUSALS = [
    pytest.param(path, body, name, id=f"{path} {name}")
    for path, body, model in (
        ("/v1/chat/completions", CHATS, ChatRequest),
        ("/v1/completions", PROMPTS, CompletionRequest),
    )
    for name in model.refused
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body", "name"), REFUSALS)
def test_each_field_that_is_refused_is_named(
    http: httpx2.Client, path: str, body: Json, name: str, stream: bool
) -> None:
    answer = http.post(path, json={**body, name: ASKED.get(name, "x"), "stream": stream})
    error = answer.json()["error"]

    assert (answer.status_code, error["param"], error["type"]) == (400, name, "invalid_request_error")


def test_fields_without_effect_are_taken_and_named(http: httpx2.Client) -> None:
    body = {**CHATS, **dict.fromkeys(ChatRequest.hints, "x"), "nobody_knows_it": 1}
    whole = posted(http, "/v1/chat/completions", body)
    last = streamed(http, "/v1/chat/completions", body)[-1]

    assert whole["codec"]["ignored"] == sorted({*ChatRequest.hints, "nobody_knows_it"})
    assert last["codec"]["ignored"] == whole["codec"]["ignored"]


def posted(http: httpx2.Client, path: str, body: Json) -> Json:
    answer = http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def streamed(http: httpx2.Client, path: str, body: Json) -> list[Json]:
    answer = http.post(path, json={**body, "stream": True})
    assert answer.status_code == 200, answer.text
    *events, done = answer.text.split("\n\n")[:-1]
    assert done == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events]
