"""The lines of vLLM's stream, as they are and as no server should write them: ids, ends, and faults that are named."""

import json
import re
from typing import Any

import pytest

from gateway.engine.interface import Generated, GenerateRequest, GenerationEnd, GenerationEvent
from gateway.engine.wire.engine_answers import error_of_answer
from gateway.engine.wire.vllm_json import GenerateStream
from gateway.errors import EngineRefused, EngineUnavailable, GrammarRefused
from leaf_sdk.testing import tiny_map
from tests.cases import each_of

TINY = tiny_map()
DONE = b"data: [DONE]"


def stream(most: int = 4, *, gather: bool = False) -> GenerateStream:
    return GenerateStream("http://engine", TINY, GenerateRequest(range(10), None, most, gather=gather))


def line(message: object) -> bytes:
    return b"data: " + json.dumps(message).encode()


def ids(*token_ids: Any, reason: str | None = None, stop: object = None) -> bytes:
    choice = {"index": 0, "token_ids": list(token_ids), "finish_reason": reason, "stop_reason": stop}
    return line({"request_id": "r", "usage": None, "choices": [choice]})


def usage(cached: object = 8) -> bytes:
    return line({"choices": [], "usage": {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": cached}}})


def read(*lines: bytes, most: int = 4, gather: bool = False) -> list[GenerationEvent]:
    return list(stream(most, gather=gather).feed(lines))


def refused(*lines: bytes, most: int = 4) -> tuple[list[GenerationEvent], EngineRefused | EngineUnavailable]:
    """What was given before a fault, and the fault."""
    given: list[GenerationEvent] = []
    with pytest.raises((EngineRefused, EngineUnavailable)) as error:
        given.extend(stream(most).feed(lines))
    return given, error.value


def test_ids_come_as_they_are_and_the_end_behind_its_account() -> None:
    *generated, end = read(ids(1), b"", b": ping", ids(2, 3, reason="stop"), usage(), DONE)

    assert generated == [Generated((1,)), Generated((2, 3))]
    assert isinstance(end, GenerationEnd)
    assert (end.reason, end.ended_by, end.reported) == ("stop", 3, True)
    assert (end.timings.prompt_n, end.timings.cache_n, end.timings.generated_n) == (2, 8, 3)


@pytest.mark.parametrize("told", [{}, {"prompt_tokens_details": None}, {"prompt_tokens_details": {}}])
def test_server_that_does_not_say_what_it_had_cached_has_not_said_that_it_was_nothing(told: dict[str, Any]) -> None:
    *_, nothing = read(ids(1, reason="stop"), usage(0), DONE)
    *_, end = read(ids(1, reason="stop"), line({"choices": [], "usage": {"prompt_tokens": 10, **told}}), DONE)

    assert isinstance(nothing, GenerationEnd)
    assert isinstance(end, GenerationEnd)
    assert nothing.known == nothing.timings
    assert (end.known, end.reported, end.timings.prompt_n) == (None, True, 10)


def test_ids_of_one_read_are_one_event_where_that_is_wanted() -> None:
    assert read(ids(1), ids(2), gather=True) == [Generated((1, 2))]


@pytest.mark.parametrize("gather", [False, True])
def test_id_of_a_padded_vocabulary_costs_no_answer_and_is_counted(gather: bool) -> None:
    padding = len(TINY)
    *generated, end = read(ids(1), ids(padding, padding + 1000), ids(2, reason="stop"), DONE, gather=gather)

    assert [token_id for each in generated if isinstance(each, Generated) for token_id in each.ids] == [
        *(1, padding, padding + 1000, 2)
    ]
    assert isinstance(end, GenerationEnd)
    assert (end.padded, end.ended_by) == (2, 2)


def test_stop_id_that_was_asked_for_is_what_ended_it() -> None:
    end = read(ids(5, reason="stop", stop=5), DONE)[-1]
    assert isinstance(end, GenerationEnd)
    assert end.ended_by == 5


def test_end_that_is_no_id_takes_none_away() -> None:
    end = read(ids(5, reason="stop", stop="repetition"), DONE)[-1]
    assert isinstance(end, GenerationEnd)
    assert end.ended_by is None


def test_server_that_tells_no_cache_is_taken_to_have_none() -> None:
    end = read(ids(1, reason="length"), line({"choices": [], "usage": {"prompt_tokens": 10}}), DONE)[-1]
    assert isinstance(end, GenerationEnd)
    assert (end.reason, end.ended_by, end.timings.cache_n, end.timings.prompt_n) == ("length", None, 0, 10)


def test_more_cached_ids_than_the_prompt_has_are_not_believed() -> None:
    end = read(ids(1, reason="length"), usage(10**9), DONE)[-1]
    assert isinstance(end, GenerationEnd)
    assert (end.timings.cache_n, end.timings.prompt_n) == (10, 0)


@each_of(
    ("lines", "words"),
    [
        ((ids(1), ids(10**6)), "'http://engine' sent 1000000, which is not an id of the token map"),
        ((ids(1), ids(2, 3, 4, 5)), "more than the 4 ids"),
        ((ids(1), DONE), "without giving a reason"),
        ((ids(1), ids(2, reason="error"), DONE), "failed in the middle of its answer"),
        ((ids(1), ids(2, reason="abort"), DONE), "aborted the request"),
        ((ids(1), ids("2")), "not an id of the token map"),
        ((ids(1), ids(-2)), "not an id of the token map"),
        ((ids(1), ids(True)), "not an id of the token map"),
        ((ids(1), ids(2.0)), "not an id of the token map"),
        ((ids(1), line({"choices": [{}, {}]})), "did not answer like vLLM"),
        ((ids(1), line({"choices": 7})), "did not answer like vLLM"),
        ((ids(1), line({})), "did not answer like vLLM"),
        ((ids(1), line([])), "not a JSON object"),
        ((ids(1), b"data: {"), "not JSON"),
        ((ids(1), line({"error": {"message": "out of memory", "code": 500}})), "out of memory"),
    ],
)
def test_fault_has_a_name_and_what_came_before_it_stands(lines: tuple[bytes, ...], words: str) -> None:
    given, error = refused(*lines)

    assert words in error.message
    assert given[0] == Generated((1,))
    assert not any(isinstance(event, GenerationEnd) for event in given)


def test_nothing_after_the_end_of_the_answer_counts_but_its_account() -> None:
    generated, end = read(ids(1, reason="stop"), ids(3), line({"choices": 7}), usage(), b"data: {", DONE)

    assert generated == Generated((1,))
    assert isinstance(end, GenerationEnd)
    assert (end.ended_by, end.timings.cache_n) == (1, 8)


def test_stream_that_breaks_off_after_the_end_of_the_answer_has_ended() -> None:
    reader = stream()
    list(reader.feed([ids(1, 2, reason="stop")]))

    assert reader.is_full
    assert (reader.cut().reason, reader.cut().ended_by) == ("stop", 2)


def test_messages_without_ids_have_a_bound() -> None:
    flood = [ids() for _ in range(100)]
    (most,) = re.findall(r"over (\d+) messages for 4 ids", refused(*flood)[1].message)

    assert read(*flood[: int(most)]) == []
    assert "messages for" in refused(*flood[: int(most) + 1])[1].message


@pytest.mark.parametrize(
    "lines",
    [
        [ids() for _ in range(100)],
        [ids(1, 2, 3, 4, 5)],
        [ids(1), DONE],
        [ids(len(TINY) + 4096)],
        [line({"choices": 7})],
    ],
)
def test_engine_that_breaks_its_word_is_a_bad_gateway_to_clients(lines: list[bytes]) -> None:
    error = refused(*lines)[1]

    assert isinstance(error, EngineRefused)
    assert error.status == 502


def test_last_id_of_the_largest_padding_is_taken() -> None:
    assert read(ids(len(TINY) + 4095)) == [Generated((len(TINY) + 4095,))]


@pytest.mark.parametrize(
    "words",
    [
        "Invalid grammar specification.",
        "Invalid structural tag specification.",
        "Invalid structured_outputs structural_tag specification.",
        "Invalid grammar specification: 'triggers'",
    ],
)
def test_bad_grammar_is_told_from_other_errors(words: str) -> None:
    error = {"error": {"message": words, "type": "BadRequestError", "code": 400}}
    other = line({"error": {"message": "no such thing", "type": "BadRequestError", "code": 400}})

    assert type(refused(line(error), DONE)[1]) is GrammarRefused
    assert type(error_of_answer(400, json.dumps(error).encode())) is GrammarRefused
    assert type(refused(other, DONE)[1]) is EngineRefused


def test_grammar_that_fails_behind_the_first_id_is_no_refusal_of_it() -> None:
    bad = line({"error": {"message": "grammar matcher failed", "code": 400}})
    given, error = refused(ids(1), bad)

    assert given == [Generated((1,))]
    assert type(error) is EngineRefused


def test_stream_knows_when_all_ids_are_here() -> None:
    reader = stream(2)
    list(reader.feed([ids(1)]))
    assert not reader.is_full
    list(reader.feed([ids(2, reason="length")]))
    assert reader.is_full
    assert not reader.cut().reported
