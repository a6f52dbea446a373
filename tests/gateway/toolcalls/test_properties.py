"""Laws of the parser, over messages, spellings and ways to cut them."""

import itertools
import json
import re

from hypothesis import given
from hypothesis import strategies as st

from gateway.toolcalls.parser import ToolCall, parse, stream
from gateway.toolcalls.stream.output_events import CallArguments, CallClosed, CallStarted, Content, Event, Reasoning
from tests.gateway.toolcalls.fakes import (
    GUARDED,
    MARKERS,
    PLAIN,
    WORDS,
    Numbered,
    closed,
    diagnostics,
    joined,
    run,
    started,
    texts,
)
from tests.gateway.toolcalls.strategies import Told, messages, tricky_text

cuts = st.lists(st.integers(0, 10_000), max_size=12)
any_ids = st.lists(
    st.integers(0, 255 + len(WORDS)) | st.integers(1000, 999 + len(MARKERS)) | st.integers(), max_size=80
)
broken_calls = st.lists(
    st.sampled_from(
        [
            "<tool_call>",
            "</tool_call>",
            "<think>",
            "</think>",
            '{"name": "f"',
            ', "arguments": ',
            '{"a": [1, "x\\n',
            "}",
            "]",
            "\n",
        ]
    )
    | tricky_text,
    max_size=10,
).map("".join)


@given(messages())
def test_a_message_is_told_as_it_was_meant(told: Told) -> None:
    message = parse("hermes", told.text, (), new_id=Numbered())
    assert (message.content or "") == told.content
    assert [(call.name, call.arguments) for call in message.tool_calls] == list(told.calls)
    assert message.diagnostics == ()


@given(messages(), cuts)
def test_ids_in_any_batches_tell_the_same(told: Told, cuts: list[int]) -> None:
    ids = PLAIN.spell(told.text)
    assert joined(run(ids, cuts)) == joined(run(ids))


@given(broken_calls, cuts)
def test_broken_calls_in_any_batches_tell_the_same(text: str, cuts: list[int]) -> None:
    for vocabulary in (PLAIN, GUARDED):
        ids = vocabulary.spell(text, specials=True)
        assert joined(run(ids, cuts, vocabulary=vocabulary)) == joined(run(ids, vocabulary=vocabulary))


@given(broken_calls, cuts)
def test_text_and_bytes_in_any_pieces_tell_the_same(text: str, cuts: list[int]) -> None:
    data = text.encode()
    whole = parse("hermes", text, (), new_id=Numbered())
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    pieces = [data[a:b] for a, b in itertools.pairwise(places)]
    assert stream("hermes", pieces, (), new_id=Numbered()) == whole
    assert stream("hermes", text, (), new_id=Numbered()) == whole


@given(messages())
def test_the_spelling_in_tokens_does_not_matter_where_no_marker_is_one(told: Told) -> None:
    def without_ids(events: list[Event]) -> list[Event]:
        return [
            CallClosed(e.index, e.id, e.name, e.arguments, ()) if isinstance(e, CallClosed) else e
            for e in joined(events)
        ]

    assert without_ids(run(PLAIN.spell(told.text))) == without_ids(run(list(told.text.encode())))


@given(broken_calls)
def test_all_text_is_content_arguments_or_markup_in_its_order(text: str) -> None:
    events = run(PLAIN.spell(text))
    told = "".join(
        event.fragment if isinstance(event, CallArguments) else event.text
        for event in events
        if isinstance(event, (CallArguments, Content, Reasoning))
    )
    rest = iter(text)
    if not any(started(events)):
        assert all(char in rest for char in told)
    if not started(events) and not text.lstrip().startswith(("<think>", "</think>")):
        # Two markers with nothing between them are markup, and no call.
        left = re.sub(r"<tool_call>[ \t\r\n]*</tool_call>", "", text)
        assert told == text if left == text else "".join(told.split()) == "".join(left.split())


@given(any_ids)
def test_any_ids_at_all_give_events_of_whole_characters(ids: list[int]) -> None:
    for event in run(ids, vocabulary=GUARDED):
        match event:
            case Content(text) | Reasoning(text) | CallArguments(_, text):
                assert text
                assert text.encode().decode() == text
            case CallClosed(_, _, name, arguments):
                assert name.encode()
                json.loads(arguments)
            case _:
                pass


@given(st.lists(st.binary(max_size=8) | st.text(max_size=4), max_size=12))
def test_any_bytes_at_all_give_a_message(pieces: list[bytes | str]) -> None:
    message = stream("generic", pieces, ())
    (message.content or "").encode()


@given(st.binary(max_size=60), cuts)
def test_invalid_utf8_is_replaced_as_python_replaces_it(data: bytes, cuts: list[int]) -> None:
    events = run(list(data), cuts)
    if b"<" not in data:
        assert texts(events) == data.decode("utf-8", "replace")


@given(messages(), cuts)
def test_calls_are_told_in_order_name_first_and_never_taken_back(told: Told, cuts: list[int]) -> None:
    fragments: dict[int, str] = {}
    closed_calls: list[int] = []
    for event in run(PLAIN.spell(told.text), cuts):
        match event:
            case CallStarted(index, call_id, name):
                assert index == len(fragments) == len(closed_calls)
                assert call_id == f"call_{index}"
                assert name == told.calls[index][0]
                fragments[index] = ""
            case CallArguments(index, fragment):
                assert index == len(fragments) - 1
                fragments[index] += fragment
                assert told.calls[index][1].startswith(fragments[index])
            case CallClosed(index, call_id, name, arguments):
                assert (name, arguments) == told.calls[index]
                assert call_id == f"call_{index}"
                assert fragments[index] == arguments
                closed_calls.append(index)
            case _:
                pass
    assert len(closed_calls) == len(told.calls)


@given(messages())
def test_the_ids_of_a_call_spell_its_region(told: Told) -> None:
    ids = PLAIN.spell(told.text)
    for call in closed(run(ids)):
        text = b"".join(map(PLAIN.token_bytes, call.ids)).decode("utf-8", "replace")
        begin, end = text.index("<tool_call>"), text.rindex("</tool_call>") + len("</tool_call>")
        # A token may reach over the edge, never more than one on each side.
        assert begin < len(PLAIN.token_bytes(call.ids[0]))
        assert len(text) - end < len(PLAIN.token_bytes(call.ids[-1]))


@given(messages(), st.sampled_from(["<", "<tool", "\n<tool_call", "<tool_cal"]))
def test_a_tail_that_may_begin_a_marker_is_flushed(told: Told, tail: str) -> None:
    content = texts(run(PLAIN.spell(told.text + "x" + tail)))
    assert content.endswith("x" + tail)


@given(messages(), st.integers(0, 10_000))
def test_a_message_cut_anywhere_tells_a_beginning_of_the_whole(told: Told, cut: int) -> None:
    ids = list(told.text.encode())
    ids = ids[: cut % (len(ids) + 1)]
    events = run(ids)
    calls = closed(events)
    assert [(call.name, call.arguments) for call in calls] == list(told.calls[: len(calls)])
    assert len(started(events)) - len(calls) in (0, 1)
    assert len(diagnostics(events)) <= 1
    for problem in diagnostics(events):
        assert problem.kind == "truncated"
        assert problem.index in (None, len(calls))


@given(messages())
def test_guarded_markers_tell_the_same_where_the_model_writes_them_as_tokens(told: Told) -> None:
    plain = parse("hermes", told.text, (), new_id=Numbered())
    events = run(GUARDED.spell(told.text, specials=True), vocabulary=GUARDED)
    assert texts(events) == (plain.content or "")
    assert tuple(ToolCall(c.id, c.name, c.arguments) for c in closed(events)) == plain.tool_calls


@given(messages())
def test_guarded_markers_spelled_out_of_ordinary_tokens_are_content(told: Told) -> None:
    events = run(GUARDED.spell(told.text), vocabulary=GUARDED)
    assert [type(event) for event in joined(events)] == [Content] * bool(told.text)
    assert texts(events) == told.text
