"""Markers that are one special token, ids at the edges of regions, and streams whose text nobody wants."""

import pytest

from gateway.toolcalls.formats.registry import format_named
from gateway.toolcalls.parser import StreamParser, parser_for
from gateway.toolcalls.stream.output_events import CallClosed, CallStarted, Content, Event, Reasoning
from gateway.toolcalls.stream.spelling import Spelling, Vocabulary
from leaf_sdk.vocab import TokenMap
from tests.gateway.toolcalls.fakes import (
    GUARDED,
    MARKERS,
    PLAIN,
    TOOLS,
    Numbered,
    TinyVocabulary,
    closed,
    joined,
    run,
    texts,
)

OPEN, CLOSE = GUARDED.special_tokens["<tool_call>"], GUARDED.special_tokens["</tool_call>"]
BODY = PLAIN.spell('\n{"name": "f", "arguments": {"a": 1}}\n')


def as_vocabulary(token_map: TokenMap) -> Vocabulary:
    """The type checker's word that a real map will do."""
    return token_map


def test_a_guarded_marker_counts_only_as_its_token() -> None:
    spelled = PLAIN.spell("<tool_call>")
    events = run([*spelled, *BODY, OPEN, *BODY, CLOSE], vocabulary=GUARDED)
    assert texts(events) == '<tool_call>\n{"name": "f", "arguments": {"a": 1}}'
    assert [call.ids for call in closed(events)] == [(OPEN, *BODY, CLOSE)]


def test_a_guarded_marker_holds_no_text_back() -> None:
    stream = parser_for(format_named("hermes"), GUARDED, TOOLS)
    assert stream.feed(PLAIN.spell("x<tool_call")) == [Content("x<tool_call")]


def test_a_spelled_closing_marker_does_not_close_a_guarded_region() -> None:
    events = run([OPEN, *BODY, *PLAIN.spell("</tool_call>"), *PLAIN.spell("!")], vocabulary=GUARDED)
    assert [call.ids for call in closed(events)] == [(OPEN, *BODY)]
    assert texts(events) == "</tool_call>!"


def test_a_guarded_marker_inside_a_string_is_data_and_shows_its_text() -> None:
    ids = [OPEN, *PLAIN.spell('{"name": "f", "arguments": {"a": "'), OPEN, CLOSE, *PLAIN.spell('"}}'), CLOSE]
    (call,) = closed(run(ids, vocabulary=GUARDED))
    assert call.arguments == '{"a": "<tool_call></tool_call>"}'
    assert call.ids == tuple(ids)


def test_a_guarded_marker_that_opens_no_call_is_content_with_its_text() -> None:
    events = run([OPEN, *PLAIN.spell("hello"), CLOSE], vocabulary=GUARDED)
    assert texts(events) == "<tool_call>hello</tool_call>"


def test_half_a_character_before_a_guarded_marker_is_replaced_and_not_part_of_the_call() -> None:
    events = run([0xE6, OPEN, *BODY, CLOSE], vocabulary=GUARDED)
    assert texts(events) == "�"
    assert [call.ids for call in closed(events)] == [(OPEN, *BODY, CLOSE)]


def test_a_special_token_that_is_no_marker_is_text() -> None:
    vocabulary = TinyVocabulary([*MARKERS, "<|im_end|>"])
    events = run([65, vocabulary.special_tokens["<|im_end|>"]], vocabulary=vocabulary)
    assert texts(events) == "A<|im_end|>"


def test_a_special_token_that_is_not_shown_has_no_text_and_stays_with_its_region() -> None:
    vocabulary = TinyVocabulary([*MARKERS, "<|im_end|>"])
    end = vocabulary.special_tokens["<|im_end|>"]
    stream = parser_for(format_named("hermes"), vocabulary, TOOLS, hidden={end})
    events = stream.feed([65, end, 66, OPEN, *BODY, end, CLOSE, 0xE6, end, 66]) + stream.close()
    assert texts(events) == "AB\ufffdB"
    assert [call.ids for call in closed(events)] == [(OPEN, *BODY, end, CLOSE)]


def test_a_name_of_a_special_token_that_is_not_its_text_guards_nothing() -> None:
    class Roles(TinyVocabulary):
        def token_bytes(self, token_id: int) -> bytes:
            return b"<call>" if token_id == OPEN else super().token_bytes(token_id)

    events = run([*PLAIN.spell("<tool_call>"), *BODY, CLOSE], vocabulary=Roles(MARKERS))
    assert [call.name for call in closed(events)] == ["f"]


def test_a_special_token_that_the_vocabulary_has_no_bytes_for_guards_nothing() -> None:
    class Forgetful(TinyVocabulary):
        def token_bytes(self, token_id: int) -> bytes:
            if token_id >= 1000:
                raise KeyError(token_id)
            return super().token_bytes(token_id)

    events = run([*PLAIN.spell("<tool_call>"), *BODY, *PLAIN.spell("</tool_call>")], vocabulary=Forgetful(MARKERS))
    assert [call.name for call in closed(events)] == ["f"]


def test_a_marker_counts_by_its_text_where_the_caller_says_so() -> None:
    ids = [*PLAIN.spell("<tool_call>"), *BODY, CLOSE]
    stream = parser_for(format_named("hermes"), GUARDED, TOOLS, by_text=True)
    assert [call.name for call in closed(stream.feed(ids))] == ["f"]


def test_an_unknown_id_is_a_replacement_character() -> None:
    assert texts(run([65, 5_000_000, -1, 66])) == "A��B"


def test_ids_that_spell_nothing_stay_with_the_region_they_stand_in() -> None:
    vocabulary = TinyVocabulary([*MARKERS, ""])
    nothing = vocabulary.special_tokens[""]
    ids = [nothing, 65, nothing, OPEN, nothing, *BODY, nothing, CLOSE, nothing]
    (call,) = closed(run(ids, vocabulary=vocabulary))
    assert call.ids[-len(BODY) - 4 :] == (OPEN, nothing, *BODY, nothing, CLOSE)


def test_two_calls_that_share_a_token_both_name_it() -> None:
    ids = PLAIN.spell('<tool_call>{"name": "f"}</tool_call><tool_call>{"name": "g"}</tool_call>')
    (shared,) = PLAIN.spell("><")
    first, second = closed(run(ids))
    assert first.ids == tuple(ids[: ids.index(shared) + 1])
    assert second.ids == tuple(ids[ids.index(shared) :])


def test_ids_that_no_region_needs_are_forgotten() -> None:
    stream = parser_for(format_named("hermes"), PLAIN, TOOLS)
    ids = PLAIN.spell("some < text\n")
    for _ in range(1000):
        stream.feed(ids)
    assert len(stream._reader._pieces) <= len(ids) + 1  # pyright: ignore[reportPrivateUsage]


def test_a_marker_that_holds_another_is_spelled_as_itself() -> None:
    spelling = Spelling({"<a>": "\udc00", "<a><b>": "\udc01"})
    assert spelling.spell("x<a><b><a>") == "x\udc01\udc00"
    assert spelling.plain("é\udc01\udc00") == "é<a><b><a>"


class Reading(TinyVocabulary):
    """Counts the ids that were decoded."""

    def __init__(self) -> None:
        super().__init__(MARKERS)
        self.read: list[int] = []

    def token_bytes(self, token_id: int) -> bytes:
        self.read.append(token_id)
        return super().token_bytes(token_id)


def silent(vocabulary: TinyVocabulary) -> StreamParser:
    return parser_for(format_named("hermes"), vocabulary, TOOLS, new_id=Numbered(), text_wanted=False)


def test_without_wanted_text_idle_ids_are_not_even_decoded() -> None:
    vocabulary = Reading()
    stream = silent(vocabulary)
    assert stream.feed([65]) == []
    vocabulary.read.clear()
    events: list[Event] = []
    for token_id in [*b"a\xe6 long story", OPEN, *BODY, CLOSE]:
        events += stream.feed([token_id])
    assert vocabulary.read == BODY
    assert [type(event) for event in joined(events)][::2] == [CallStarted, CallClosed]
    assert closed(events)[0].ids == (OPEN, *BODY, CLOSE)
    assert stream.feed([*b"more \xe6", OPEN, *BODY, CLOSE, *b"x"])[-1] == CallClosed(
        1, "call_1", "f", '{"a": 1}', (OPEN, *BODY, CLOSE)
    )
    assert stream.close() == []


@pytest.mark.parametrize("vocabulary", [PLAIN, GUARDED])
def test_without_wanted_text_calls_are_told_and_text_is_not(vocabulary: TinyVocabulary) -> None:
    ids = vocabulary.spell('<think>hm</think>Hi <tool_call>{"name": "f"}</tool_call> there', specials=True)
    stream = silent(vocabulary)
    events = [event for token_id in ids for event in stream.feed([token_id])] + stream.close()
    assert [call.name for call in closed(events)] == ["f"]
    assert not any(isinstance(event, (Content, Reasoning)) for event in events)
