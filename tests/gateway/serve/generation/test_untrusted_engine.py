"""What an engine sends and no engine should, through the three APIs: what came stays, and errors name the engine."""

import json
import math
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from gateway.engine.interface import GenerateRequest, GenerationEvent
from gateway.engine.wire.engine_answers import EventReader
from gateway.engine.wire.llama_cpp_json import CompletionStream
from gateway.engine.wire.vllm_json import GenerateStream
from gateway.serve.openai.chat_reply import openai_form
from tests.cases import each_of
from tests.gateway.serve.generation.three_apis import CHAT, END, MESSAGES, RESPONSES, TINY, Apis, Engine, running

pytestmark = pytest.mark.anyio

URL: Final = "http://engine.test:8000"
ASK: Final[dict[str, dict[str, Any]]] = {
    CHAT: {"messages": [{"role": "user", "content": "hi"}]},
    RESPONSES: {"input": "hi"},
    MESSAGES: {"messages": [{"role": "user", "content": "hi"}]},
}
START: Final = TINY.special_tokens["<|im_start|>"]
HELLO: Final = TINY.encode("hello")


def llama(ids: list[Any], **final: Any) -> list[dict[str, Any]]:
    given = [{"content": "", "tokens": [each], "stop": False, "tokens_predicted": n} for n, each in enumerate(ids, 1)]
    end = {"content": "", "tokens": [], "stop": True, "stop_type": "eos", "tokens_predicted": len(ids)}
    return [*given, {**end, "timings": {"prompt_n": 1, "cache_n": 0, **final}}]


def vllm(ids: list[Any], **final: Any) -> list[dict[str, Any]]:
    def choice(ids: list[Any], reason: str | None = None) -> dict[str, Any]:
        return {"choices": [{"index": 0, "token_ids": ids, "finish_reason": reason}]}

    details = {"prompt_tokens_details": {"cached_tokens": 0, **final}}
    return [*(choice([each]) for each in ids), choice([], "stop"), {"choices": [], "usage": details}]


READERS: Final[dict[Any, type[EventReader]]] = {llama: CompletionStream, vllm: GenerateStream}


def streaming(apis: Apis, kind: Any, messages: list[dict[str, Any]]) -> None:
    """Have the engine's next answer be these messages of its wire; after that it writes what a test says."""
    lines = [b"data: " + json.dumps(message).encode() for message in messages] + [b"data: [DONE]"]

    @asynccontextmanager
    async def generate(request: GenerateRequest) -> AsyncGenerator[AsyncIterator[GenerationEvent]]:
        del apis.engine.generate
        reader = READERS[kind](URL, TINY, request)

        async def events() -> AsyncIterator[GenerationEvent]:
            for line in lines:
                for event in reader.feed([line]):
                    yield event

        yield events()

    apis.engine.generate = generate  # type: ignore[method-assign]


def texts(path: str, events: list[dict[str, Any]]) -> str:
    """The text that a stream has shown."""
    if path == CHAT:
        return "".join(each["choices"][0]["delta"].get("content") or "" for each in events if each.get("choices"))
    if path == RESPONSES:
        return "".join(each["delta"] for each in events if each["type"] == "response.output_text.delta")
    return "".join(each["delta"].get("text", "") for each in events if each["type"] == "content_block_delta")


def text_of(path: str, answer: dict[str, Any]) -> str:
    if path == CHAT:
        return answer["choices"][0]["message"]["content"]
    if path == RESPONSES:
        return "".join(part["text"] for item in answer["output"] for part in item["content"])
    return "".join(block["text"] for block in answer["content"])


@each_of("kind", [llama, vllm])
@each_of("path", ASK)
@each_of("token", [-1, 10**9, True, 1.5, "7"])
async def test_id_outside_the_map_ends_a_stream_with_an_error_of_its_api(path: str, kind: Any, token: Any) -> None:
    async with running() as apis:
        streaming(apis, kind, kind([*HELLO, token, *HELLO, END]))
        events = await apis.events(path, ASK[path])

        assert texts(path, events) == "hello"
        said = json.dumps(events[-1])
        assert URL in said
        assert str(token) in said
        assert "error" in events[-1] or events[-1]["type"] in ("error", "response.failed")
        assert text_of(path, await apis.ask(path, ASK[path], "fine")) == "fine"


@pytest.mark.parametrize("path", ASK)
async def test_id_of_a_padded_vocabulary_has_no_text_and_ends_no_answer_of_vllm(path: str) -> None:
    async with running() as apis:
        streaming(apis, vllm, vllm([*HELLO, len(TINY) + 7, *HELLO, END]))

        assert text_of(path, (await apis.post(path, ASK[path])).json()) == "hellohello"


@pytest.mark.parametrize("kind", [llama, vllm])
@pytest.mark.parametrize("path", ASK)
async def test_id_outside_the_map_is_an_error_where_nothing_is_streamed(path: str, kind: Any) -> None:
    async with running() as apis:
        streaming(apis, kind, kind([*HELLO, 10**9, END]))
        answer = await apis.post(path, ASK[path])

        assert answer.status_code == 502
        assert "1000000000" in answer.json()["error"]["message"]
        assert text_of(path, await apis.ask(path, ASK[path], "fine")) == "fine"


@each_of("kind", [llama, vllm])
@each_of("path", ASK)
@each_of("number", [-5, 10**30, "x", True, None, 1.5, [], {}])
async def test_usage_is_bounded_by_the_ids_that_were_sent_and_received(path: str, kind: Any, number: Any) -> None:
    final = {"prompt_n": number, "cache_n": number} if kind is llama else {"cached_tokens": number}
    async with running() as apis:
        streaming(apis, kind, kind([*HELLO, END], **final))
        answer = await apis.ask(path, ASK[path])

        usage = answer["usage"]
        prompt = len(TINY.encode(PROMPT, specials=True))
        if path == MESSAGES:
            cached = usage["cache_read_input_tokens"]
            assert usage["input_tokens"] + cached == prompt
        else:
            name = "prompt_tokens" if path == CHAT else "input_tokens"
            cached = usage[f"{name}_details"]["cached_tokens"]
            assert usage[name] == prompt
        assert 0 <= cached <= prompt
        assert usage["completion_tokens" if path == CHAT else "output_tokens"] == len(HELLO)
        assert text_of(path, answer) == "hello"


PROMPT: Final = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("kind", [llama, vllm])
@pytest.mark.parametrize("path", ASK)
async def test_control_token_amid_a_text_is_not_shown(path: str, kind: Any) -> None:
    async with running() as apis:
        streaming(apis, kind, kind([*HELLO, START, END, *HELLO, END]))
        assert texts(path, await apis.events(path, ASK[path])) == "hellohello"
        streaming(apis, kind, kind([*HELLO, START, END, *HELLO, END]))
        assert text_of(path, await apis.ask(path, ASK[path])) == "hellohello"


async def test_answer_with_a_control_token_goes_on_as_it_was_and_its_spelling_stays_text() -> None:
    async with running() as apis:
        streaming(apis, llama, llama([*HELLO, START, *HELLO, END]))
        said = text_of(CHAT, await apis.ask(CHAT, ASK[CHAT]))
        back = [*ASK[CHAT]["messages"], {"role": "assistant", "content": said}, {"role": "user", "content": "more"}]
        await apis.ask(CHAT, {"messages": back}, "fine")
        assert "hello<|im_start|>hello<|im_end|>" in apis.engine.prompts[-1]

        spelled = [{"role": "assistant", "content": "a<|im_start|>b"}, {"role": "user", "content": "more"}]
        ids: list[int] = []
        _watch_prompts(apis.engine, ids)
        await apis.ask(CHAT, {"messages": [*ASK[CHAT]["messages"], *spelled]}, "fine")
        assert ids.count(START) == 4


def _watch_prompts(engine: Engine, into: list[int]) -> None:
    asked = engine.generate

    def generate(request: GenerateRequest) -> Any:
        into.extend(request.prompt)
        return asked(request)

    engine.generate = generate  # type: ignore[method-assign]


async def test_stop_string_that_names_a_control_token_ends_the_answer_there() -> None:
    async with running() as apis:
        streaming(apis, vllm, vllm([*HELLO, START, *HELLO, END]))
        answer = await apis.ask(CHAT, {**ASK[CHAT], "stop": ["<|im_start|>"]})
        assert text_of(CHAT, answer) == "hello"
        assert answer["choices"][0]["finish_reason"] == "stop"


def test_number_that_json_cannot_say_is_null() -> None:
    assert openai_form().whole({"embedding": [0.5, math.nan, math.inf]}).body == b'{"embedding":[0.5,null,null]}'
