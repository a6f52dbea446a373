"""Chat completions of a running endpoint: one answer or several, whole or as a stream."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from gateway.agent.events import Finished
from gateway.errors import EngineUnavailable
from gateway.serve.openai.chat_reply import ChatReply, ChoicesReply
from gateway.toolcalls.stream.output_events import Content
from tests.gateway.serve.generation.three_apis import CHAT, COMPLETIONS, TINY, Apis, Route, running

pytestmark = pytest.mark.anyio
ASKS = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
async def apis() -> AsyncGenerator[Apis]:
    async with running(context=400) as found:
        yield found


async def test_answer_has_the_shape_of_openai(apis: Apis) -> None:
    answer = await apis.ask(CHAT, ASKS, "hello")

    (choice,) = answer["choices"]
    assert (answer["object"], answer["model"]) == ("chat.completion", "scripted")
    assert answer["created"] > 1_600_000_000
    assert (choice["index"], choice["finish_reason"], choice["message"]["content"]) == (0, "stop", "hello")
    assert "prompt_token_ids" not in answer
    assert not {"tool_calls", "function_call"} & choice["message"].keys()


async def test_ids_are_in_the_answer_where_they_were_asked_for(apis: Apis) -> None:
    whole = await apis.ask(CHAT, {**ASKS, "return_token_ids": True}, "hello")
    first, *rest = await apis.events(CHAT, {**ASKS, "return_token_ids": True}, "hello")
    plain = await apis.events(CHAT, ASKS, "hello")

    assert TINY.decode(whole["prompt_token_ids"]) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert first["prompt_token_ids"] == whole["prompt_token_ids"]
    assert not any("prompt_token_ids" in chunk for chunk in rest)
    assert [each for chunk in rest for each in chunk["choices"][0]["token_ids"]] == whole["choices"][0]["token_ids"]
    assert not any("token_ids" in chunk["choices"][0] for chunk in plain)


async def test_several_answers_are_numbered_and_their_prompt_is_counted_once(apis: Apis) -> None:
    one = await apis.ask(CHAT, ASKS, "one")
    both = await apis.ask(CHAT, {**ASKS, "n": 2}, "one", "two")
    chunks = await apis.events(CHAT, {**ASKS, "n": 2}, "one", "two")
    asked = await apis.events(CHAT, {**ASKS, "n": 2, "stream_options": {"include_usage": True}}, "one", "two")

    assert [(each["index"], each["message"]["content"]) for each in both["choices"]] == [(0, "one"), (1, "two")]
    assert both["usage"]["prompt_tokens"] == one["usage"]["prompt_tokens"]
    assert both["usage"]["completion_tokens"] == 2 * one["usage"]["completion_tokens"]
    assert len(both["codec"]["choices"]) == 1
    texts = {0: "", 1: ""}
    for choice in (choice for chunk in chunks for choice in chunk["choices"]):
        texts[choice["index"]] += choice["delta"].get("content") or ""
    assert texts == {0: "one", 1: "two"}
    assert ["usage" in chunk for chunk in chunks] == [*[False] * (len(chunks) - 1), True]
    assert chunks[-1]["usage"] == both["usage"] == asked[-1]["usage"]
    assert (asked[-1]["choices"], "codec" in asked[-1]) == ([], False)
    assert not any("usage" in chunk for chunk in asked[:-1])


@pytest.mark.parametrize(
    ("fields", "seeds"),
    [
        ({"seed": 5, "n": 3}, [5, 6, 7]),
        ({"seed": 2**32 - 1, "n": 2}, [2**32 - 1, 0]),
        ({"n": 2}, [None, None]),
        ({"seed": 5}, [5]),
    ],
)
async def test_answers_of_one_seed_differ(
    apis: Apis, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], seeds: list[int | None]
) -> None:
    drawn: list[int | None] = []
    generate = apis.engine.generate

    def note(request: Any) -> Any:
        drawn.append(request.sampling.seed)
        return generate(request)

    monkeypatch.setattr(apis.engine, "generate", note)
    await apis.ask(CHAT, {**ASKS, **fields}, *["x"] * len(seeds))

    assert drawn == seeds


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [(b"{}", "application/json", 400), (b"{}", "text/plain", 415), (b"[", "application/json", 400)],
)
async def test_what_is_no_request_is_refused(apis: Apis, body: bytes, kind: str, status: int) -> None:
    answer = await apis.http.post(CHAT, content=body, headers={"content-type": kind})

    assert answer.status_code == status
    assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_stream_that_breaks_off_ends_with_the_error(apis: Apis, path: str) -> None:
    async def lost() -> None:
        raise EngineUnavailable("the engine went away")

    apis.engine.instead_of_end = lost
    fields = ASKS if path == CHAT else {"prompt": "hi"}
    *_, last = await apis.events(path, fields, "hello")

    assert last["error"]["message"].startswith("the engine went away")


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_requests_are_counted_by_how_they_ended(apis: Apis, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    def away(_: Route) -> Any:
        raise EngineUnavailable("the engine went away")

    def count(outcome: str) -> float | None:
        return apis.metrics.registry.get_sample_value("codec_chat_requests_total", {"outcome": outcome})

    fields = ASKS if path == CHAT else {"prompt": "hi"}
    await apis.ask(path, fields, "hello")
    await apis.post(path, {**fields, "temperature": "hot"})
    monkeypatch.setattr(Route, "ready", away)
    assert (await apis.post(path, fields)).status_code == 503

    assert [count(outcome) for outcome in ("ok", "client_error", "engine_error")] == [1, 1, 1]


@pytest.mark.parametrize("form", ["msgpack", "protobuf"])
async def test_frames_are_sent_where_they_were_asked_for(apis: Apis, form: str) -> None:
    answer = await apis.post(CHAT, {**ASKS, "stream_format": form, "stream": True}, "hello")

    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith(f"application/x-{form}")


@pytest.mark.parametrize(("cached", "told"), [((90, 95), 85), ((0, 40), 0)])
def test_cached_prompt_of_several_answers_is_counted_once(cached: tuple[int, int], told: int) -> None:
    replies = [ChatReply("m", 7, usage_chunk=False) for _ in cached]
    reply = ChoicesReply(replies, 100, usage_chunk=False)
    reply.begin()
    for each in cached:
        reply.feed(Content("x"))
        reply.feed(Finished("stop", prompt_ids=100, cached_ids=each, completion_ids=3, reasoning_ids=1))

    usage = reply.completion()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (100, 6, 106)
    assert usage["prompt_tokens_details"]["cached_tokens"] == told
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 2
