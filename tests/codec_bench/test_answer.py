"""Answers of servers, whole and in pieces of any size: what is read of them, and what they are refused for."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codec_bench.answer import AnswerContent, AnswerFault, AnswerReader, fault_of_status
from codec_bench.exchange import Asking, Exchange
from codec_bench.frames import FramesReader
from codec_bench.lengths import read_lengths
from codec_bench.workload import Conversation, Drawn, Turn
from leaf_sdk.wire import MEDIA_TYPES, Extras, Format, Frame, FrameWriter, Usage
from tests.cases import each_of

STREAM, WHOLE = "text/event-stream; charset=utf-8", "application/json"


def event(**fields: object) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def delta(finish: str | None = None, **fields: object) -> bytes:
    return event(choices=[{"index": 0, "delta": fields, "finish_reason": finish}])


USAGE = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 5}}
END = event(choices=[], usage=USAGE) + b"data: [DONE]\n\n"
ANSWER = (
    b": a comment\n\n"
    + delta(role="assistant", content="")
    + delta(reasoning_content="hm")
    + delta(content="Hi")
    + event(choices=[{"delta": {"content": " there"}, "token_ids": [5, 6]}])
    + delta("stop")
    + END
)


def read(data: bytes, kind: str = STREAM, size: int = 1 << 20) -> tuple[int, AnswerContent]:
    reader = AnswerReader(kind)
    came = sum(reader.feed(data[at : at + size]) for at in range(0, len(data), size))
    return came + reader.close(), reader.content


@given(st.integers(1, 200))
def test_stream_is_the_same_however_it_is_cut(size: int) -> None:
    came, told = read(ANSWER, size=size)

    assert came == 3
    assert (told.text, told.ids, told.finish) == ("hmHi there", [5, 6], "stop")
    assert (told.prompt_tokens, told.cached_tokens, told.completion_tokens) == (9, 5, 4)


def test_first_piece_is_the_first_that_says_something() -> None:
    reader = AnswerReader(STREAM)

    assert reader.feed(delta(role="assistant", content="")) == 0
    assert reader.feed(delta(content="H")[:-1]) == 1
    assert reader.feed(b"\n" + event(choices=[{"delta": {}, "token_ids": [7]}])) == 1


def test_call_is_put_together() -> None:
    parts: list[dict[str, Any]] = [
        {"index": 0, "id": "c1", "function": {"name": "look_up", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"word":'}},
        {"index": 0, "function": {"arguments": '"sea"}'}},
    ]

    came, told = read(b"".join(delta(tool_calls=[part]) for part in parts) + delta("tool_calls"))

    assert came == 3
    assert told.calls == [{"id": "c1", "name": "look_up", "arguments": '{"word":"sea"}'}]


def test_whole_answers_of_both_apis_are_read() -> None:
    message = {"role": "assistant", "content": "Hi", "tool_calls": [{"id": "c", "function": {"name": "f"}}]}
    chat = {"choices": [{"message": message, "finish_reason": "stop"}], "timings": {"cache_n": 3, "predicted_n": 2}}

    _, told = read(json.dumps(chat).encode(), WHOLE)
    assert (told.text, told.cached_tokens, told.completion_tokens, told.prompt_tokens) == ("Hi", 3, 2, None)
    assert told.calls[0]["name"] == "f"
    _, told = read(json.dumps({"choices": [{"text": "ho", "finish_reason": "stop"}], "usage": USAGE}).encode(), WHOLE)
    assert (told.text, told.cached_tokens) == ("ho", 5)


@each_of(
    ("data", "kind"),
    [
        (delta(content="Hi"), "broke off"),
        (b"", "broke off"),
        (event(error={"message": "no room"}), "told an error"),
        (b'error: {"message": "x"}\n\n', "not an answer"),
        (b"data: <html>\n\n", "not an answer"),
        (b"data: [1]\n\n", "not an answer"),
        (b"data: " + b"[" * 5000 + b"\n\n", "not an answer"),
        (event(nothing=1), "not an answer"),
        (event(choices=["x"]), "not an answer"),
        (event(choices=[{"token_ids": ["5"]}]), "not an answer"),
        (event(choices=[{"token_ids": [True]}]), "not an answer"),
        (event(choices=[{"token_ids": [-1]}]), "not an answer"),
        (b'data: {"choices": [{"token_ids": [' + b"9" * 4000 + b"]}]}\n\n", "not an answer"),
        (b'data: {"choices": [{"token_ids": [' + b"9" * 50_000 + b"]}]}\n\n", "not an answer"),
        (event(choices=[{"token_ids": 5}]), "not an answer"),
        (delta(tool_calls=[{"index": 5}]), "not an answer"),
        (delta(tool_calls=[{"index": -1}]), "not an answer"),
        (delta(tool_calls=5), "not an answer"),
        (delta(tool_calls=["x"]), "not an answer"),
        (event(choices=[{"token_ids": [1] * 200_000}]), "too large"),
        (b"data: " + b"x" * (1 << 21), "too large"),
    ],
)
def test_what_is_no_answer_is_a_fault_of_its_kind(data: bytes, kind: str) -> None:
    with pytest.raises(AnswerFault) as raised:
        read(data, size=60_000)

    assert raised.value.label == kind


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["choices", "delta", "message", "content", "token_ids", "tool_calls", "function", "index", "usage", "error", "timings", "prompt_tokens_details", "cached_tokens"]), inner, max_size=4), max_leaves=12))  # fmt: skip # noqa: E501
def test_messages_of_any_shape_are_read_or_refused(message: object) -> None:
    for data, kind in ((b"data: %s\n\n", STREAM), (b"%s", WHOLE)):
        with suppress(AnswerFault):
            read(data % json.dumps(message).encode(), kind)


@given(st.binary(max_size=300))
def test_bytes_of_any_kind_are_read_or_refused(data: bytes) -> None:
    for kind in (STREAM, WHOLE):
        with suppress(AnswerFault):
            read(data, kind, size=7)


FRAMES = (
    Frame((1, 2)),
    Frame((3,), extras=Extras(region_ids=(4,))),
    Frame(done=True, finish_reason="length", extras=Extras(usage=Usage(9, 4, 5))),
)


def framed(form: Format, *frames: Frame) -> bytes:
    writer = FrameWriter(form)
    return b"".join(writer.write(frame) for frame in frames)


@pytest.mark.parametrize("form", ["msgpack", "protobuf"])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_frames_are_read_however_they_are_cut(form: Format, size: int) -> None:
    reader, data = FramesReader(form, MEDIA_TYPES[form]), framed(form, *FRAMES)

    came = sum(reader.feed(data[at : at + size]) for at in range(0, len(data), size))

    assert came + reader.close() == 4
    told = reader.content
    assert (told.ids, told.text, told.finish) == ([1, 2, 3, 4], "", "length")
    assert (told.prompt_tokens, told.cached_tokens, told.completion_tokens) == (9, 5, 4)


@pytest.mark.parametrize(
    ("data", "label"),
    [
        (framed("msgpack", *FRAMES[:2]), "broke off"),
        (framed("msgpack", *FRAMES)[:-3], "broke off"),
        (b"", "broke off"),
        (b"\xc1\xc1\xc1", "not an answer"),
        (framed("msgpack", Frame(done=True, finish_reason="error", extras=Extras(error="no room"))), "told an error"),
        (framed("msgpack", Frame((1,) * 70_000), Frame((1,) * 70_000)), "too large"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_frames_that_are_no_answer_are_a_fault_of_their_kind(data: bytes, label: str) -> None:
    reader = FramesReader("msgpack", MEDIA_TYPES["msgpack"])

    with pytest.raises(AnswerFault) as raised:
        _ = reader.feed(data) + reader.close()

    assert raised.value.label == label


@given(st.binary(max_size=200), st.sampled_from(["msgpack", "protobuf"]))
def test_bytes_of_any_kind_are_frames_or_refused(data: bytes, form: Format) -> None:
    reader = FramesReader(form, MEDIA_TYPES[form])
    with suppress(AnswerFault):
        _ = reader.feed(data) + reader.close()


def test_server_that_knows_no_frames_is_not_measured_as_if_it_did() -> None:
    with pytest.raises(AnswerFault, match="answered with the content type 'text/event-stream'"):
        FramesReader("protobuf", STREAM)


@pytest.mark.parametrize("kind", ["text/html", "", "application/octet-stream"])
def test_other_types_are_no_answers(kind: str) -> None:
    with pytest.raises(AnswerFault, match="it answered"):
        AnswerReader(kind)


@pytest.mark.parametrize(
    ("status", "body", "label", "words"),
    [
        (302, b"", "redirect 302", "not followed"),
        (429, b'{"error": {"message": "slow down"}}', "http 429", "it answered 429: slow down"),
        (500, b"<html>", "http 500", "it answered 500: a web page"),
        (500, b"oh no", "http 500", "it answered 500: oh no"),
        (500, b"[" * 100_000, "http 500", r"\[\["),
        (400, b'{"detail": "bad"}', "http 400", "detail"),
    ],
)
def test_status_is_a_fault_with_the_words_of_the_server(status: int, body: bytes, label: str, words: str) -> None:
    fault = fault_of_status(status, body)

    assert fault.label == label
    with pytest.raises(AnswerFault, match=words):
        raise fault


def told(text: str, *calls: dict[str, str]) -> AnswerContent:
    return AnswerContent([text], calls=list(calls))


WORKLOAD = Drawn(0, read_lengths("30", 100), read_lengths("5", 100), 2)


def test_each_request_carries_what_was_said_before() -> None:
    exchange = Exchange(WORKLOAD.conversation(0), Asking(), "m")
    first = exchange.next_body()
    exchange.take(told("Hi"))
    second = exchange.next_body()

    assert exchange.steps == 2
    assert second["messages"][:2] == [*first["messages"], {"role": "assistant", "content": "Hi"}]
    assert [message["role"] for message in second["messages"]] == ["user", "assistant", "user"]
    assert (first["max_tokens"], first["stream"], first["stream_options"]) == (5, True, {"include_usage": True})
    assert "return_token_ids" not in first


def test_turn_with_a_tool_is_a_forced_call_and_the_answer_to_its_result() -> None:
    exchange = Exchange(WORKLOAD.conversation(0), Asking(tools=True, ids=True), "m")
    first = exchange.next_body()
    exchange.take(told("", {"id": "c1", "name": "look_up", "arguments": "{}"}))
    second = exchange.next_body()
    exchange.take(told("It is."))
    third = exchange.next_body()

    assert exchange.steps == 4
    assert first["tool_choice"] == "required"
    assert len(first["tools"]) == 1
    assert first["return_token_ids"] is True
    assert second["tool_choice"] == "none"
    assert [message["role"] for message in second["messages"]] == ["user", "assistant", "tool"]
    assert second["messages"][2]["tool_call_id"] == "c1"
    assert third["messages"][:3] == second["messages"]
    assert third["messages"][3] == {"role": "assistant", "content": "It is."}


@pytest.mark.parametrize("calls", [[], [{"id": "", "name": "look_up", "arguments": '{"a'}]])
def test_call_that_was_required_and_did_not_come_is_a_fault(calls: list[dict[str, str]]) -> None:
    exchange = Exchange(WORKLOAD.conversation(0), Asking(tools=True), "m")
    exchange.next_body()

    with pytest.raises(AnswerFault) as raised:
        exchange.take(told("", *calls))

    assert raised.value.label == "no call"


def test_prompts_of_servers_that_are_kept_apart_begin_otherwise() -> None:
    bodies = [Exchange(WORKLOAD.conversation(0), Asking(apart=True), "m", server).next_body() for server in range(8)]
    texts = [body["messages"][0]["content"] for body in bodies]

    assert len({text.split()[0] for text in texts}) == 8
    assert len({text.partition(" ")[2] for text in texts}) == 1


def test_completions_are_asked_with_one_text() -> None:
    conversation = Conversation(
        0, (Turn(({"role": "user", "content": "a"},), 3), Turn(({"role": "user", "content": "c"},), 3))
    )
    exchange = Exchange(conversation, Asking(api="completions", stream=False), "m")

    assert exchange.next_body()["prompt"] == "a"
    exchange.take(told("b"))
    body = exchange.next_body()
    assert body["prompt"] == "a\nb\nc"
    assert "messages" not in body
    assert "stream_options" not in body
