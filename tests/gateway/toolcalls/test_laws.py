"""The laws of every format: whatever its models write, however it is cut into tokens and batches.

A format joins by its entry in `ALL`; a format without one fails here.
"""

import functools
import itertools
import json
import random
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.toolcalls.formats.format import call_grammar
from gateway.toolcalls.formats.registry import format_named, format_names
from gateway.toolcalls.parser import AssistantMessage, parse, parser_for, stream
from gateway.toolcalls.stream.output_events import CallArguments, CallStarted, Content, Event, Reasoning
from tests.cases import each_of
from tests.gateway.toolcalls.fakes import (
    PLAIN,
    TOOLS,
    Numbered,
    TinyVocabulary,
    closed,
    diagnostics,
    joined,
    started,
    texts,
)
from tests.gateway.toolcalls.families import Family, Told, prose_of, squeezed, told_by
from tests.gateway.toolcalls.families_json import JSON_FAMILIES
from tests.gateway.toolcalls.families_tagged import TAGGED_FAMILIES
from tests.gateway.toolcalls.gbnf_oracle import Gbnf

ALL = {family.format: family for family in (*JSON_FAMILIES, *TAGGED_FAMILIES)}
families = st.sampled_from(list(ALL.values()))
messages = families.flatmap(told_by)
cuts = st.lists(st.integers(0, 10_000), max_size=12)


def read(told: Told) -> AssistantMessage:
    return parse(told.family.format, told.text, (), new_id=Numbered())


def events_of(told: Told, cuts: list[int] | None = None, vocabulary: TinyVocabulary = PLAIN) -> list[Event]:
    ids = vocabulary.spell(told.text, specials=True)
    return run_format(told.family.format, ids, cuts, vocabulary)


def run_format(name: str, ids: list[int], cuts: list[int] | None, vocabulary: TinyVocabulary = PLAIN) -> list[Event]:
    parser = parser_for(format_named(name), vocabulary, (), new_id=Numbered())
    places = range(1, len(ids)) if cuts is None else sorted({cut % (len(ids) + 1) for cut in cuts})
    bounds = [0, *places, len(ids)]
    return [event for a, b in itertools.pairwise(bounds) for event in parser.feed(ids[a:b])] + parser.close()


def test_every_format_is_here() -> None:
    assert set(ALL) == set(format_names())


@given(messages)
def test_a_message_is_told_as_it_was_meant(told: Told) -> None:
    message = read(told)
    assert message.diagnostics == ()
    assert [call.name for call in message.tool_calls] == [call.name for call in told.calls]
    for call, meant in zip(message.tool_calls, told.calls, strict=True):
        assert json.loads(call.arguments) == json.loads(meant.given)
        if told.family.verbatim:
            assert call.arguments == meant.given
        if told.family.id_of:
            assert call.id == told.family.id_of(meant)
    assert squeezed(message.content) == squeezed(told.content)
    assert squeezed(message.reasoning_content) == squeezed(told.reasoning)


@given(messages, cuts)
def test_any_batches_of_ids_tell_the_same(told: Told, cuts: list[int]) -> None:
    assert joined(events_of(told, cuts)) == joined(events_of(told))


@given(messages, cuts)
def test_any_pieces_of_text_tell_the_same(told: Told, cuts: list[int]) -> None:
    data = told.text.encode()
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    pieces = [data[a:b] for a, b in itertools.pairwise(places)]
    assert stream(told.family.format, pieces, (), new_id=Numbered()) == read(told)


@given(messages, cuts)
def test_events_come_in_order_and_nothing_is_taken_back(told: Told, cuts: list[int]) -> None:
    fragments: dict[int, str] = {}
    for event in events_of(told, cuts):
        match event:
            case CallStarted(index, _, name):
                assert index == len(fragments)
                assert name == told.calls[index].name
                fragments[index] = ""
            case CallArguments(index, fragment):
                assert fragment
                fragments[index] += fragment
            case Content(text) | Reasoning(text):
                assert text
                assert text.encode().decode() == text
            case _:
                pass
    assert len({event.id for event in started(events_of(told, cuts))}) == len(told.calls)
    assert [call.arguments for call in closed(events_of(told, cuts))] == list(fragments.values())


@given(messages)
def test_markers_that_are_single_tokens_tell_the_same(told: Told) -> None:
    vocabulary = TinyVocabulary(format_named(told.family.format).markers)
    guarded = events_of(told, vocabulary=vocabulary)
    plain = events_of(told)
    assert texts(guarded) == texts(plain)
    assert texts(guarded, Reasoning) == texts(plain, Reasoning)
    assert [(c.name, c.arguments) for c in closed(guarded)] == [(c.name, c.arguments) for c in closed(plain)]


@given(messages, st.integers(0, 10_000))
def test_a_message_cut_anywhere_tells_a_beginning_of_the_whole(told: Told, cut: int) -> None:
    text = told.text[: cut % (len(told.text) + 1)]
    events = run_format(told.family.format, list(text.encode()), None)
    calls = closed(events)
    whole = closed(events_of(told))
    assert [(c.name, c.arguments) for c in calls] == [(c.name, c.arguments) for c in whole[: len(calls)]]
    assert len(started(events)) - len(calls) in (0, 1)
    assert all(problem.kind == "truncated" for problem in diagnostics(events))
    if len(started(events)) > len(calls):
        told_so_far = "".join(e.fragment for e in events if isinstance(e, CallArguments) and e.index == len(calls))
        assert told_so_far == "{}" or whole[len(calls)].arguments.startswith(told_so_far)


@given(families, st.data(), cuts)
def test_anything_at_all_gives_the_same_events_and_never_fails(
    family: Family, data: st.DataObject, cuts: list[int]
) -> None:
    fmt = format_named(family.format)
    shape = fmt.shape.encode()
    pieces = [shape[:cut] for cut in range(0, len(shape), 3)] + [shape[cut:] for cut in range(0, len(shape), 3)]
    markers = [marker.encode() for marker in (*fmt.markers, *family.markup)]
    parts = data.draw(
        st.lists(
            st.sampled_from([*pieces, *markers, b"{", b'"', b"}", b"]", b"\n"]) | st.binary(max_size=4), max_size=8
        )
    )
    ids = list(b"".join(parts))
    events = run_format(family.format, ids, cuts)
    assert joined(events) == joined(run_format(family.format, ids, None))
    for event in events:
        if isinstance(event, (Content, Reasoning)):
            assert event.text.encode().decode() == event.text
    for call in closed(events):
        json.loads(call.arguments)


@given(families.filter(lambda family: not family.answer), st.data())
def test_prose_is_content_to_its_last_character(family: Family, data: st.DataObject) -> None:
    prose = data.draw(prose_of(family))
    for marker in family.markup:
        for tail in (marker[:-1], marker[: len(marker) // 2]):
            message = parse(family.format, f"{prose}.x{tail}", ())
            assert message.content == f"{prose}.x{tail}"
            assert message.diagnostics == ()


@functools.cache
def grammar_of(name: str) -> Gbnf:
    return Gbnf(call_grammar(format_named(name), TOOLS, choice="required", parallel=True))


@pytest.mark.parametrize("name", ALL)
@given(st.integers(0, 10_000))
def test_what_the_grammar_writes_is_parsed_and_what_the_model_writes_is_in_it(name: str, seed: int) -> None:
    text = grammar_of(name).sample(random.Random(seed))
    message = parse(name, text, TOOLS)
    assert message.diagnostics == ()
    assert not (message.content or "").strip()
    assert message.tool_calls
    for call in message.tool_calls:
        assert set(json.loads(call.arguments)) <= {"city", "days", "tz"}


@each_of("piece", [1, 2000])
@each_of("name", ALL)
def test_the_cost_of_a_character_does_not_grow_with_the_length(name: str, piece: int) -> None:
    fmt = format_named(name)

    def scanned(length: int, kind: str) -> int:
        body = "lorem < ipsum, \\u000a" * (length // 21)
        start = fmt.shape.partition("VALUE")[0].replace("TOOL", "f")
        text = {"prose": body, "argument": start + body}[kind]
        parser = parser_for(fmt, PLAIN, (), new_id=Numbered())
        ids = list(text.encode())
        for at in range(0, len(ids), piece):
            parser.feed(ids[at : at + piece])
        return parser.scanned

    for kind in ("prose", "argument"):
        short, long = scanned(500, kind), scanned(4_000, kind)
        assert long <= 8.5 * short
        assert long <= 10 * 4_000


@each_of("piece", ["{", "[", '{"', "[{", "```json\n{", "```", '{"name": "f", ', "\n{", "<tools>", '{"name": '])
@each_of("name", ["hermes", "deepseek_v3", "json", "llama_3"])
def test_what_could_begin_a_call_everywhere_costs_little_more_than_text(name: str, piece: str) -> None:
    assert steps(name, piece) <= 1.2 * steps(name, "x")


@functools.cache
def steps(name: str, piece: str) -> int:
    """How many functions are called and left to read the last part of a long text in which a piece is repeated."""
    parser, taken = parser_for(format_named(name), PLAIN, TOOLS, new_id=Numbered()), 0

    def count(*_: object) -> None:
        nonlocal taken
        taken += 1

    ids = list((piece * 20_000)[:20_000].encode())
    # Behind these, as many pieces have come as are looked at, and all patterns are compiled.
    for at in range(0, 16_000, 50):
        parser.feed(ids[at : at + 50])
    sys.setprofile(count)
    try:
        for at in range(16_000, 20_000, 50):
            parser.feed(ids[at : at + 50])
        parser.close()
    finally:
        sys.setprofile(None)
    return taken


@pytest.mark.parametrize("name", ["harmony", "muse_glimmer", "gemma4"])
def test_markers_that_come_all_at_once_are_not_looked_through_for_each_of_them(name: str) -> None:
    fmt = format_named(name)

    def scanned(marker: str, count: int) -> int:
        parser = parser_for(fmt, PLAIN, (), new_id=Numbered())
        parser.feed(list(marker.encode()) * count)
        return parser.scanned

    for marker in fmt.markers:
        assert scanned(marker, 2400) <= 16 * scanned(marker, 300)
