"""What engines answer, read without trust: numbers that can be, texts, and errors that say what to do."""

import json
from typing import Any

import pytest

from gateway.engine.wire.engine_answers import (
    bounded,
    count_of,
    error_of_answer,
    logprob_of,
    messages_of,
    model_name,
    object_of,
    said,
    seconds_of,
    text_of,
)
from gateway.errors import EngineRefused, EngineStarting, EngineUnavailable, GrammarRefused
from tests.cases import each_of


def error(message: str, **more: Any) -> bytes:
    return json.dumps({"error": {"message": message, **more}}).encode()


@each_of(
    ("status", "body", "kind", "words"),
    [
        (503, error("Loading model"), EngineStarting, "the engine is not ready: Loading model"),
        (503, error("busy"), EngineUnavailable, "the engine is not ready: busy"),
        (401, error("no"), EngineRefused, r"asks for one \(401: no\): set engine\.api_key"),
        (403, error("no"), EngineRefused, r"asks for one \(403: no\): set engine\.api_key"),
        (400, error("failed to parse grammar"), GrammarRefused, "the engine answered 400: failed to parse grammar"),
        (400, error("Structural tag"), GrammarRefused, "the engine answered 400: Structural tag"),
        (500, error("failed to parse grammar"), EngineRefused, "the engine answered 500: failed to parse grammar"),
        (400, error("too long"), EngineRefused, "the engine answered 400: too long"),
        (404, b" <html>all of a page", EngineRefused, "the engine answered 404: a web page$"),
        (404, b"gone", EngineRefused, "the engine answered 404: gone"),
        (404, b"[]", EngineRefused, r"the engine answered 404: \[\]"),
        (404, b'{"error": "gone"}', EngineRefused, "the engine answered 404: gone"),
    ],
)
def test_error_of_an_engine_is_told_in_its_words_with_what_to_do(
    status: int, body: bytes, kind: type[Exception], words: str
) -> None:
    found = error_of_answer(status, body)

    assert type(found) is kind
    with pytest.raises(kind, match=words):
        raise found
    assert isinstance(found, EngineUnavailable) or found.status == status


def test_words_of_an_error_have_a_length() -> None:
    assert said({"message": "x" * 2000}) == "x" * 1000
    assert said({"message": ""}) == "{'message': ''}"
    assert said("gone") == "gone"


@pytest.mark.parametrize("body", [b"[]", b"7", b"x", b"[" * 100_000])
def test_answer_that_is_no_object_names_the_server_that_was_expected(body: bytes) -> None:
    with pytest.raises(EngineRefused, match=r"'http://a' answered '/props' with .* is a vLLM server listening there\?"):
        object_of("http://a", "vLLM", "/props", 200, body)


def test_answer_that_is_an_object_is_read_unless_its_status_says_otherwise() -> None:
    assert object_of("http://a", "vLLM", "/props", 200, b'{"a": 1}') == {"a": 1}
    with pytest.raises(EngineRefused, match="answered 404"):
        object_of("http://a", "vLLM", "/props", 404, b'{"a": 1}')


def test_messages_are_the_objects_of_event_lines() -> None:
    lines = [b": keep-alive", b"", b'data: {"a": 1}', b'data:{"b": 2}', b"event: x", b"data: [DONE]", b"data:"]

    assert list(messages_of(lines)) == [{"a": 1}, {"b": 2}]
    assert list(messages_of(lines, {"done": True})) == [{"a": 1}, {"b": 2}, {"done": True}]


@each_of(
    ("line", "kind", "words", "status"),
    [
        (b"data: {", EngineRefused, "a stream message that is not JSON: b'{'", 502),
        (b"data: []", EngineRefused, "a stream message that is not a JSON object", 502),
        (b"data: " + error("out of memory"), EngineRefused, "stopped with an error: out of memory", 502),
        (b"error: " + b'{"message": "gone"}', EngineRefused, "stopped with an error: gone", 502),
        (
            b"data: " + error("bad grammar", code=400),
            GrammarRefused,
            "the engine refused the grammar: bad grammar",
            400,
        ),
        (b"data: " + error("bad grammar", code=500), EngineRefused, "stopped with an error: bad grammar", 502),
        (b"data: " + error("too long", code=400), EngineRefused, "stopped with an error: too long", 502),
        (b'data: {"error": "bad grammar"}', EngineRefused, "stopped with an error: bad grammar", 502),
    ],
)
def test_message_that_is_an_error_ends_the_stream(line: bytes, kind: type[Exception], words: str, status: int) -> None:
    with pytest.raises(EngineRefused, match=words) as raised:
        list(messages_of([line]))
    assert (type(raised.value), raised.value.status) == (kind, status)


def test_figures_are_those_that_can_be() -> None:
    assert [bounded(each, 5) for each in (-1, 0, 3, 5, 6, 2.0, 2.5, True, "3", None)] == [0, 0, 3, 5, 5, 2, 0, 0, 0, 0]
    assert [count_of(each, 1, 3) for each in (1, 3)] == [1, 3]
    for bad in (0, 4, True, 1.0, "1", None):
        with pytest.raises(ValueError, match="is not an integer from 1 to 3"):
            count_of(bad, 1, 3)
    assert [seconds_of(each) for each in (1500, 1e-3, 1e10, 9e-4, 2e10, -1, True, "1", None)] == [
        *(1.5, 1e-6, 1e7),
        *[0.0] * 6,
    ]
    assert [logprob_of(each) for each in (-1, -1.5, 0, 0.5, -1e10, -2e10, 2e10, True, "1", None)] == [
        *(-1.0, -1.5, 0.0, 0.0, -1e10),
        *[None] * 5,
    ]


def test_text_is_one_or_none() -> None:
    assert (text_of("a"), text_of(None)) == ("a", None)
    with pytest.raises(TypeError, match="7 is not a string"):
        text_of(7)


@pytest.mark.parametrize(
    ("path", "name"), [("/models/a.gguf", "a"), ("C:\\models\\b.gguf", "b"), ("org/c", "c"), ("d.gguf.x", "d.gguf.x")]
)
def test_model_is_named_without_its_path(path: str, name: str) -> None:
    assert model_name(path) == name
