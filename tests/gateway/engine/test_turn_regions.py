"""Where a rendering shows a turn whose ids are known, by its contents, its ends and its calls: nowhere else."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from gateway.engine.rendering.foreign_text import ForeignText, MarkerGuard, Signs, find_marks, restored
from gateway.engine.rendering.prompt_ids import Known, turn_regions
from leaf_sdk.testing import tiny_map

TINY = tiny_map()
OPEN = "<|im_start|>assistant\n"
CALLS = (("f", {"x": 1}),)
WRITTEN = '<call>{"name": "f", "arguments": {"x": 1}}</call>'
OTHER_STYLE = '<call>{"arguments":{"x":1},"name":"f"}</call>'


def calls_in(text: str) -> Sequence[tuple[str, object]]:
    """Reads calls as this family writes them, in any order of their keys."""
    found: list[tuple[str, object]] = []
    for part in text.split("<call>")[1:]:
        call = json.loads(part.partition("</call>")[0])
        found.append((call["name"], call["arguments"]))
    return found


def turn(content: str = "", calls: str = "") -> dict[str, Any]:
    return {"role": "assistant", "content": content, "calls": calls}


def user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def shown(
    messages: Sequence[Mapping[str, Any]], known: Mapping[int, Known], *, style: str = ""
) -> list[tuple[int, str]]:
    """The known turns that are found in a rendering, and the text that they stand for."""
    signs = ForeignText(Signs(MarkerGuard(TINY.special_texts)))
    plain = [{key: value for key, value in each.items() if key != "calls"} for each in messages]
    contents = [each["content"] for each in signs.messages(plain, marked=True)]
    parts = [
        f"<|im_start|>{each['role']}\n{content}{style or each.get('calls', '')}<|im_end|>\n"
        if each["role"] == "assistant"
        else f"<|im_start|>{each['role']}\n{content}<|im_end|>\n"
        for each, content in zip(messages, contents, strict=True)
    ]
    text = restored("".join(parts) + OPEN, signs)
    marks = find_marks(text, signs.mark)
    found = turn_regions(text, marks, signs, plain, known, calls_in)
    assert all(region.held and not region.joins for region in found)
    for region in found:
        assert region.message is not None
        assert region.ids == known[region.message].ids
    spelled = []
    for region in found:
        said = text[region.start : region.end]
        for mark in reversed(marks):
            if region.start <= mark.start and mark.end <= region.end:
                content = mark.fit.apply(signs.contents[mark.number])
                said = said[: mark.start - region.start] + content + said[mark.end - region.start :]
        spelled.append((region.message, said))
    return spelled


def test_turn_of_words_is_found_whole_with_the_blanks_that_are_its_own() -> None:
    for words in ("hello", " hello ", "hello\n\nworld"):
        messages = [user("x"), turn(words), user("y")]
        assert shown(messages, {1: Known([1, 2], words)}) == [(1, words)]


def test_turn_that_wrote_something_else_is_not_found() -> None:
    messages = [user("x"), turn("hello"), user("y")]

    assert shown(messages, {1: Known([1], "hello and more")}) == []
    assert shown(messages, {1: Known([1], "thought: hello")}) == []
    assert shown(messages, {1: Known([1], "other")}) == []
    assert shown(messages, {1: Known([1], "x" * 513 + "hello")}) == []
    # Only turns of the model have ids of their own.
    assert shown(messages, {0: Known([1], "x")}) == []
    assert shown(messages, {}) == []


def test_turn_of_calls_alone_is_found_in_its_own_writing_and_in_the_template_s() -> None:
    messages = [user("x"), turn(calls=WRITTEN), user("y")]
    known = {1: Known([1], WRITTEN, CALLS, "<|im_end|>")}

    assert shown(messages, known) == [(1, WRITTEN)]
    assert shown(messages, known, style=OTHER_STYLE) == [(1, OTHER_STYLE)]
    spaced = WRITTEN.replace(": ", " :  ")
    assert shown(messages, known, style=spaced) == [(1, spaced)]
    assert shown(messages, known, style=OTHER_STYLE.replace("1}", "2}")) == []
    assert shown(messages, known, style=OTHER_STYLE * 2) == []
    # A turn without calls, nor contents, is nowhere.
    assert shown(messages, {1: Known([1], WRITTEN)}) == []


def test_turn_of_calls_that_a_limit_ended_is_found_by_its_end() -> None:
    messages = [user("x"), turn(calls=WRITTEN), user("y")]

    assert shown(messages, {1: Known([1], WRITTEN, CALLS)}) == [(1, WRITTEN)]
    assert shown(messages, {1: Known([1], f"{WRITTEN}\n", CALLS)}, style=f"{WRITTEN}\n") == [(1, f"{WRITTEN}\n")]
    assert shown(messages, {1: Known([1], f"{WRITTEN}\n", CALLS)}) == [(1, WRITTEN)]
    assert shown(messages, {1: Known([1], WRITTEN, CALLS, "<|none|>")}) == [(1, WRITTEN)]


def test_turn_of_words_and_calls_is_found_from_its_first_word_to_its_last_call() -> None:
    messages = [user("x"), turn("hello\n", WRITTEN), user("y")]
    known = {1: Known([1], f"hello\n{WRITTEN}", CALLS, "<|im_end|>")}

    assert shown(messages, known) == [(1, f"hello\n{WRITTEN}")]
    assert shown(messages, known, style=OTHER_STYLE) == [(1, f"hello\n{OTHER_STYLE}")]
    assert shown(messages, known, style=OTHER_STYLE.replace("1}", "2}")) == []
    assert shown([user("x"), turn("other\n", WRITTEN)], {1: known[1]}) == []


@pytest.mark.parametrize("ended_by", ["<|im_end|>", ""])
def test_each_of_several_alike_is_found_in_its_own_place(ended_by: str) -> None:
    one, two = WRITTEN, WRITTEN.replace("1}", "2}")
    messages = [user("x"), turn(calls=one), user("y"), turn(calls=two), user("z"), turn("hello"), turn("hello")]
    known = {
        1: Known([1], one, CALLS, ended_by),
        3: Known([2], two, (("f", {"x": 2}),), ended_by),
        5: Known([3], "hello"),
        6: Known([4], "hello"),
    }

    assert shown(messages, known) == [(1, one), (3, two), (5, "hello"), (6, "hello")]
    assert shown(messages, {3: known[3]}) == [(3, two)]
    # One that is shown in another's place is not that one.
    assert shown(messages, {1: known[3]}) == []


def test_several_calls_end_at_the_last_end_of_turn_that_they_wrote_themselves() -> None:
    twice = f"{WRITTEN}<|im_end|>{WRITTEN}"
    known = {1: Known([1], twice, CALLS * 2, "<|im_end|>")}

    assert shown([user("x"), turn(calls=twice), user("y")], known) == [(1, twice)]


def test_calls_without_markers_are_found_behind_what_opens_the_turn() -> None:
    bare = '{"name": "f", "arguments": {"x": 1}}'
    messages = [user("x"), turn(calls=WRITTEN), user("y")]

    assert shown(messages, {1: Known([1], bare, CALLS, "<|im_end|>", unmarked=True)}) == [(1, WRITTEN)]
    assert shown(messages, {1: Known([1], bare, (("g", {}),), "<|im_end|>", unmarked=True)}) == []
    found = shown(messages, {1: Known([1], bare, CALLS, "<|im_end|>", unmarked=True)}, style=bare)
    assert found == [(1, bare)]


def test_reasoning_before_words_is_part_of_the_turn_where_the_template_shows_it() -> None:
    messages = [user("x"), {**turn("hello"), "reasoning_content": "thought"}, user("y")]

    # This template drops it.
    assert shown(messages, {1: Known([1], "hello")}) == []
