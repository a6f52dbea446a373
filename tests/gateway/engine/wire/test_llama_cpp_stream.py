"""Lines of a llama.cpp event stream as events of a generation: in order, whole, what came before a fault first."""

import json

import pytest

from gateway.engine.interface import Generated, GenerateRequest, GenerationEnd
from gateway.engine.wire.llama_cpp_json import CompletionStream
from gateway.errors import EngineRefused
from leaf_sdk.testing import tiny_map
from leaf_sdk.vocab import TokenMap
from tests.cases import each_of

TINY = tiny_map()
LAST = {"content": "", "tokens": [], "stop": True, "tokens_predicted": 3, "stop_type": "limit", "timings": {}}


def event(token: int, number: int, **more) -> bytes:
    text = TINY.decode([token])
    return line({"content": text, "tokens": [token], "stop": False, "tokens_predicted": number, **more})


def line(message: object) -> bytes:
    return b"data: " + json.dumps(message).encode()


def ids_of(text: str) -> list[int]:
    ids = TINY.encode(text)
    assert len(ids) >= 3
    return ids[:3]


def fed(lines: list[bytes], *, gather: bool) -> list[object]:
    return list(stream_of(64, gather=gather).feed(lines))


def test_ids_of_one_read_are_one_event_where_they_may_be_gathered_and_one_each_where_not():
    a, b, c = ids_of("one two three")
    lines = [event(a, 1), b"", event(b, 2), b"", event(c, 3), b"", line(LAST)]

    *gathered, end = fed(lines, gather=True)
    *single, same = fed(lines, gather=False)
    assert gathered == [Generated((a, b, c))]
    assert single == [Generated((a,)), Generated((b,)), Generated((c,))]
    assert isinstance(end, GenerationEnd)
    assert end == same
    assert (end.reason, end.timings.generated_n, end.missed) == ("length", 3, 0)


def test_ids_come_over_several_reads_and_the_end_knows_the_last_of_them():
    a, b, c = ids_of("one two three")
    stream = stream_of(64, gather=True)
    assert list(stream.feed([event(a, 1)])) == [Generated((a,))]
    assert list(stream.feed([b"", b": keep-alive"])) == []
    *ids, end = stream.feed([event(b, 2), event(c, 3), line({**LAST, "stop_type": "eos"})])
    assert ids == [Generated((b, c))]
    assert isinstance(end, GenerationEnd)
    assert (end.reason, end.ended_by) == ("stop", c)


def test_end_knows_its_id_without_a_map_and_where_the_last_message_brings_it():
    a, b, c = ids_of("one two three")
    last = line({**LAST, "content": TINY.decode([c]), "tokens": [c], "stop_type": "eos"})
    for token_map in (TINY, None):
        stream = CompletionStream("http://engine", token_map, GenerateRequest(range(10), None, 64, gather=True))
        ids, end = stream.feed([event(a, 1), event(b, 2), last])
        assert ids == Generated((a, b, c))
        assert isinstance(end, GenerationEnd)
        assert (end.ended_by, end.missed, end.repaired) == (c, 0, 0)


def test_ids_that_the_stream_lost_are_found_in_its_last_message_too():
    ids = TINY.encode("é")
    last = line({**LAST, "content": "é", "tokens": [ids[-1]], "tokens_predicted": 2})
    generated, end = fed([last], gather=True)

    assert generated == Generated(tuple(ids))
    assert isinstance(end, GenerationEnd)
    assert (end.repaired, end.missed) == (1, 0)


@each_of("gather", [True, False])
@each_of(
    ("fault", "words"),
    [
        (b"data: {no", "not JSON"),
        (b"data: 7", "not a JSON object"),
        (line({"error": {"message": "out of memory"}}), "out of memory"),
        (b'error: {"message": "old servers say it so"}', "old servers"),
        (line({"content": "x", "tokens": 7, "stop": False}), "sent 7 where token ids were expected"),
    ],
)
def test_ids_before_a_fault_are_given_before_it_is_raised(gather, fault, words):
    a, b, _ = ids_of("one two three")
    events = stream_of(64, gather=gather).feed([event(a, 1), event(b, 2), fault])
    given: list[int] = []
    while len(given) < 2:
        given += next(events).ids
    with pytest.raises(EngineRefused, match=words):
        next(events)
    assert given == [a, b]


def test_nothing_behind_the_last_message_is_read():
    a, *_ = ids_of("one two three")
    *_, end = fed([event(a, 1), line(LAST), b"data: {no"], gather=True)
    assert isinstance(end, GenerationEnd)
    assert end.missed == 2


def test_ids_that_the_stream_lost_are_found_and_counted_in_gathered_events_too():
    text = "é"
    ids = TINY.encode(text)
    assert len(ids) == 2
    held = line({"content": text, "tokens": [ids[-1]], "stop": False, "tokens_predicted": 2})
    generated, end = fed([held, line({**LAST, "tokens_predicted": 2})], gather=True)
    assert isinstance(generated, Generated)
    assert generated.ids == tuple(ids)
    assert isinstance(end, GenerationEnd)
    assert (end.repaired, end.missed) == (1, 0)


def test_ids_that_were_lost_and_are_not_found_make_a_guess_of_the_event():
    a, *_ = ids_of("one two three")
    generated, end = fed([event(a, 2), line({**LAST, "tokens_predicted": 2})], gather=True)

    assert generated == Generated((a,), guessed=True)
    assert isinstance(end, GenerationEnd)
    assert (end.repaired, end.missed) == (0, 1)


@each_of("strange", ["7", "x", 1.0, 1.5, None, True, [1], {}, -1, 2**32, 10**30])
@each_of("repaired", [True, False])
def test_engine_whose_ids_are_no_numbers_is_named(strange: object, repaired: bool):
    first = ids_of("one two three")[0]
    bad = line({"content": "", "tokens": [strange], "stop": False, "tokens_predicted": 2})
    stream = stream_of(64, TINY if repaired else None, gather=True)
    words = r"the engine at 'http://engine' sent .*, which is not an id of the token map"

    assert list(stream.feed([event(first, 1)])) == [Generated((first,))]
    with pytest.raises(EngineRefused, match=words):
        list(stream.feed([bad]))


PADDING = range(len(TINY), len(TINY) + 8)
"""Ids that the model has beyond its tokenizer's."""


@pytest.mark.parametrize("gather", [True, False])
def test_id_of_a_padded_vocabulary_costs_no_answer_and_is_counted(gather: bool):
    ids = [*ids_of("one two")[:1], PADDING[0], PADDING[-1], PADDING[0]]
    asked = GenerateRequest([1], None, 8, gather=gather)
    stream = CompletionStream("http://engine", TINY, asked, vocabulary=PADDING.stop)
    lines = [event(token_id, number) for number, token_id in enumerate(ids, 1)]
    last = {"content": "", "tokens": [], "stop": True, "stop_type": "limit", "tokens_predicted": len(ids)}

    *generated, end = stream.feed([*lines, line(last)])
    assert [token_id for each in generated for token_id in each.ids] == ids
    assert (end.padded, end.missed, end.repaired) == (3, 0, 0)


@pytest.mark.parametrize("vocabulary", [None, PADDING.stop])
def test_id_beyond_the_engines_own_vocabulary_is_refused(vocabulary: int | None):
    bad = PADDING.start if vocabulary is None else vocabulary
    stream = CompletionStream("http://engine", TINY, GenerateRequest([1], None, 8), vocabulary)
    with pytest.raises(EngineRefused, match=f"sent {bad}, which is not an id of the token map") as refused:
        list(stream.feed([event(bad, 1)]))
    assert refused.value.status == 502


def test_id_without_a_text_hides_none_of_the_lost_ones():
    # The engine held back the beginning of a character, and then sent its end and an id of its padding in one message.
    lost, last = TINY.encode("é")
    message = {"content": "é", "tokens": [last, PADDING[0]], "stop": False, "tokens_predicted": 3}
    stream = CompletionStream("http://engine", TINY, GenerateRequest([1], None, 8), PADDING.stop)
    (generated,) = stream.feed([line(message)])
    assert isinstance(generated, Generated)
    assert generated.ids == (lost, last, PADDING[0])


def stream_of(most: int, token_map: TokenMap | None = TINY, *, gather: bool = False) -> CompletionStream:
    return CompletionStream("http://engine", token_map, GenerateRequest([1], None, most, gather=gather))


@pytest.mark.parametrize("gather", [True, False])
@pytest.mark.parametrize("at_once", [True, False])
def test_engine_that_goes_on_past_what_was_asked_for_is_ended_there(gather, at_once):
    a, b, c = ids_of("one two three")
    stream = stream_of(2, gather=gather)
    lines = [event(token, number) for number, token in enumerate((a, b, c, a, b), 1)]
    events = list(stream.feed(lines)) if at_once else []
    for each in () if at_once else lines:
        events += stream.feed([each])
        if isinstance(events[-1], GenerationEnd):
            break

    *ids, end = events
    assert [token for each in ids for token in each.ids] == [a, b]
    assert isinstance(end, GenerationEnd)
    assert (end.reason, end.ended_by, end.reported, end.timings.generated_n) == ("length", None, False, 2)


def test_stream_of_messages_without_ids_has_an_end():
    stream = stream_of(4)
    empty = line({"content": "", "tokens": [], "stop": False, "tokens_predicted": 0})

    assert list(stream.feed([empty] * (4 + 16))) == []
    assert list(stream.feed([empty])) == [GenerationEnd.unreported(0)]


def test_engine_that_ends_where_it_was_asked_to_is_told_by_itself():
    a, b, c = ids_of("one two three")
    stream = stream_of(3)
    *_, end = stream.feed([event(a, 1), event(b, 2), event(c, 3), line(LAST)])

    assert isinstance(end, GenerationEnd)
    assert end.reported
    assert stream.is_full
