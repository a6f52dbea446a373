"""Events of the agent in OpenAI's shape: what streams, joined, is what comes whole."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agent.events import Finished, GenerationFinished, ToolFinished
from gateway.engine.interface import Timings
from gateway.serve.generation.codec_field import turn_numbers
from gateway.serve.openai.chat_reply import ChatReply, ChoicesReply
from gateway.toolcalls.stream.output_events import (
    CallArguments,
    CallClosed,
    CallStarted,
    Content,
    Diagnostic,
    Reasoning,
)

TIMINGS = Timings(prompt_n=30, cache_n=70, generated_n=5, prompt_seconds=0.1, generate_seconds=0.2)
TOOL = ToolFinished("c0", "up__say", "{}", "It is 42.", "leaf", 4, 0, is_error=False, seconds=0.0123456789)
DONE = Finished("stop", prompt_ids=200, cached_ids=70, completion_ids=9)


def generation(**fields: Any) -> GenerationFinished:
    numbers = {"prompt": 100, "generated": 5, "reinjected_leaf": 4, "reinjected_shim": 0, "scaffold": 11, "held": 70}
    return GenerationFinished(**{**numbers, "timings": TIMINGS, "ttft": 0.25, "guessed": False, **fields})


def reply(*, usage_chunk: bool = False) -> ChatReply:
    return ChatReply("model", 1_700_000_000, usage_chunk=usage_chunk)


def call_events(index: int, fragments: list[str]) -> list[Any]:
    arguments = [CallArguments(index, fragment) for fragment in fragments]
    closed = CallClosed(index, f"c{index}", "paint", "".join(fragments), ())
    return [CallStarted(index, f"c{index}", "paint"), *arguments, closed]


def joined(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """The message of a stream, as a client joins it."""
    message: dict[str, Any] = {"role": None, "content": "", "reasoning_content": "", "tool_calls": []}
    for delta in (choice["delta"] for chunk in chunks for choice in chunk["choices"]):
        message["role"] = delta.get("role") or message["role"]
        message["content"] += delta.get("content") or ""
        message["reasoning_content"] += delta.get("reasoning_content") or ""
        for part in delta.get("tool_calls", []):
            if part["index"] == len(message["tool_calls"]):
                head = {"id": part["id"], "type": part["type"], "function": dict(part["function"])}
                message["tool_calls"].append(head)
            else:
                message["tool_calls"][part["index"]]["function"]["arguments"] += part["function"]["arguments"]
    return message


EVENTS = st.lists(
    st.builds(Content, st.text(min_size=1)) | st.builds(Reasoning, st.text(min_size=1)) | st.just(TOOL), max_size=8
)


@given(EVENTS, st.lists(st.lists(st.text("{}:ab", min_size=1), max_size=4), max_size=3), st.booleans())
def test_chunks_joined_are_the_completion(texts, calls, usage_chunk):
    events = [*texts, *[e for n, fragments in enumerate(calls) for e in call_events(n, fragments)], generation(), DONE]
    made = reply(usage_chunk=usage_chunk)
    chunks = json.loads(json.dumps([*made.begin(), *[chunk for event in events for chunk in made.feed(event)]]))
    whole = made.completion()

    message = whole["choices"][0]["message"]
    seen = joined(chunks)
    assert seen["role"] == message["role"] == "assistant"
    assert (seen["content"] or None) == message["content"]
    assert seen["reasoning_content"] == message.get("reasoning_content", "")
    assert seen["tool_calls"] == message.get("tool_calls", [])
    assert {chunk["id"] for chunk in chunks} == {whole["id"]}
    assert [c["finish_reason"] for chunk in chunks for c in chunk["choices"] if c["finish_reason"]] == ["stop"]
    assert chunks[-1]["usage"] == whole["usage"]
    assert [chunk["codec"] for chunk in chunks if "turns" in chunk.get("codec", {})] == [whole["codec"]]


@pytest.mark.parametrize("count", [1, 2])
def test_whole_answer_is_the_same_where_no_chunks_are_made(count: int) -> None:
    events = [Content("I paint."), *call_events(0, ["{", "}"]), generation(), DONE]
    answers: list[dict[str, Any]] = []
    for streams in (True, False):
        replies = [ChatReply("model", 1_700_000_000, usage_chunk=False, streams=streams) for _ in range(count)]
        made = ChoicesReply(replies, 100, usage_chunk=False)
        chunks = [chunk for event in events * count for chunk in made.feed(event)]
        assert bool(chunks) is streams
        answers.append(made.completion())

    assert answers[0] == answers[1]


def test_usage_of_several_answers_comes_in_a_chunk_without_what_describes_the_last_one():
    several = ChoicesReply([reply(usage_chunk=True), reply(usage_chunk=True)], 1, usage_chunk=True)
    chunks = [chunk for _ in range(2) for chunk in several.feed(DONE)]

    assert [("codec" in chunk, "usage" in chunk) for chunk in chunks] == [(True, False), (True, False), (False, True)]
    assert chunks[-1]["choices"] == []


def test_usage_stands_in_the_last_chunk_or_in_one_of_its_own():
    (last,) = reply().feed(DONE)
    end, usage = reply(usage_chunk=True).feed(DONE)

    assert last["usage"] == usage["usage"]
    assert "usage" not in end
    assert usage["choices"] == []
    assert usage["usage"] == {
        "prompt_tokens": 200,
        "completion_tokens": 9,
        "total_tokens": 209,
        "prompt_tokens_details": {"cached_tokens": 70},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def test_result_of_a_tool_comes_in_a_chunk_that_other_clients_see_as_empty():
    (chunk,) = reply().feed(TOOL)

    assert chunk["choices"] == [{"index": 0, "delta": {}, "finish_reason": None}]
    assert chunk["codec"]["tool_result"] == {
        "call_id": "c0",
        "name": "up__say",
        "arguments": "{}",
        "text": "It is 42.",
        "source": "leaf",
        "ids": 4,
        "is_error": False,
        "seconds": 0.012346,
    }


def test_call_that_broke_off_is_told_as_a_diagnostic():
    made = reply()
    assert made.feed(Diagnostic("truncated", "the stream ended inside a call", 0)) == []
    made.feed(DONE)

    assert made.completion()["codec"]["diagnostics"] == [
        {"kind": "truncated", "message": "the stream ended inside a call", "index": 0}
    ]


@pytest.mark.parametrize(
    ("kind", "reason", "shown"), [("truncated", "length", 2), ("truncated", "stop", 1), ("malformed", "length", 1)]
)
def test_whole_answer_shows_the_call_that_a_limit_cut_and_none_that_is_wrong(kind, reason, shown):
    made = reply()
    events = [*call_events(0, ["{}"]), *call_events(1, ['{"a'])[:-1], Diagnostic(kind, "the call broke off", 1)]
    for event in (*events, generation(), Finished(reason, 200, 70, 9)):
        made.feed(event)

    calls = made.completion()["choices"][0]["message"]["tool_calls"]
    assert [each["function"]["arguments"] for each in calls] == ["{}", '{"a'][:shown]


def test_numbers_of_a_turn_are_ids_and_milliseconds():
    assert turn_numbers(generation()) == {
        "generated": 5,
        "reinjected": {"leaf": 4, "shim": 0},
        "scaffold": 11,
        "held": 70,
        "cache_n": 70,
        "prompt_n": 30,
        "prefilled": 0,
        "reuse": 1.0,
        "ttft_ms": 250.0,
        "guessed": False,
    }


@pytest.mark.parametrize(("fields", "reuse"), [({"held": 0}, None), ({"timings": None}, None), ({"held": 140}, 0.5)])
def test_reuse_is_told_where_it_is_known(fields, reuse):
    assert turn_numbers(generation(**fields))["reuse"] == reuse


def test_completion_before_the_end_is_a_fault_of_the_program():
    with pytest.raises(RuntimeError, match="before the answer was finished"):
        reply().completion()
