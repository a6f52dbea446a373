"""Calls as models were reported to write them, in every format, spelling and place that the reports leave open.

A text that the model ended itself is either whole calls, with nothing left over, or content to its last character.
"""

import itertools
import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gateway.toolcalls.formats.registry import format_named, format_names
from gateway.toolcalls.parser import parser_for
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallClosed, CallStarted, Content, Diagnostic, Reasoning
from tests.cases import each_of
from tests.gateway.toolcalls.fakes import Numbered, TinyVocabulary
from tests.gateway.toolcalls.families import Family, Written
from tests.gateway.toolcalls.test_laws import ALL
from tests.gateway.toolcalls.test_repairs import TOOLS as FILE
from tests.gateway.toolcalls.test_repairs import WRITES_JSON, call_of, without_markup
from tests.gateway.toolcalls.test_unmarked_calls import BARE

TAGS = {"type": "array", "items": {"type": "string"}}
LOG = ToolSpec("log", "", {"type": "object", "properties": {"tags": TAGS, "note": {"type": "string"}, "extra": {}}})
CITY = ToolSpec("look-up", "", {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})
TOOLS = (*FILE, LOG, CITY)
FILED = {"path": "ü.py", "content": "b"}
SEOUL = ("look-up", {"city": "서울"})


@dataclass(frozen=True)
class Read:
    """What a text was read as; `calls` are those that are whole."""

    content: str
    reasoning: str
    calls: list[tuple[str, Any]]
    started: int
    kinds: tuple[str, ...]


def read(name: str, text: str, cuts: Iterable[int] = (), *, tail: str = "", tools: Sequence[ToolSpec] = TOOLS) -> Read:
    """Read a text that the model ended itself, cut at these places."""
    parser = parser_for(format_named(name), TinyVocabulary(), tools, prompt_tail=tail, new_id=Numbered())
    ids = list(text.encode())
    places = [0, *sorted(cut % (len(ids) + 1) for cut in cuts), len(ids)]
    events = [event for a, b in itertools.pairwise(places) for event in parser.feed(ids[a:b])]
    events += parser.close(whole=True)
    return Read(
        "".join(each.text for each in events if isinstance(each, Content)),
        "".join(each.text for each in events if isinstance(each, Reasoning)),
        [(each.name, json.loads(each.arguments)) for each in events if isinstance(each, CallClosed)],
        sum(isinstance(each, CallStarted) for each in events),
        tuple(each.kind for each in events if isinstance(each, Diagnostic)),
    )


def cut_anywhere(text: str) -> list[Sequence[int]]:
    """One id at a time, and a few at random."""
    size = len(text.encode())
    return [range(size), random.Random(text).sample(range(size), min(6, size))]


cuts = st.lists(st.integers(0, 10_000), max_size=8)

MENDED = {
    r"escaped line ends": r'{\n"path": "ü.py",\n"content": "b"\n}',
    "a comment to the line's end": '{"path": "ü.py", // the file\n "content": "b"} ',
    "a comment in Python": '{"path": "ü.py", # the file\n "content": "b" # done\n}',
    "a comment in between": '{"path": /* where */ "ü.py", /* what, */ "content": "b"}',
    "two commas": '{"path": "ü.py",, "content": "b",,}',
    "a comma first": '{, "path": "ü.py", "content": "b"}',
    "other blanks": '\ufeff{"path":\u00a0"ü.py",\u3000"content": "b"}',
    "typographic quotes": "{“path”: “ü.py”, “content”: “b”}",
    "backticks": '{"path": `ü.py`, `content`: `b`}',
    "three quotes": '{"path": """ü.py""", "content": """b"""}',
    "three single quotes": "{'path': '''ü.py''', 'content': '''b'''}",
    "a key without its first quote": '{path": "ü.py", content": "b"}',
    "no comma": '{"path": "ü.py"\n"content": "b"}',
    "mixed quotes": "{\"path\": 'ü.py', 'content': \"b\"}",
    "no last brace": '{"path": "ü.py", "content": "b"',
    "a brace too many": '{"path": "ü.py", "content": "b"}}',
}
VALUES = {
    "01": 1,
    "+1": 1,
    ".5": 0.5,
    "1.": 1,
    "0x1F": 31,
    "1_000": 1000,
    "TRUE": True,
    "Null": None,
    "undefined": None,
    "[1, 2,]": [1, 2],
    '{"a": None, "b": [True, {"c": 1,}]}': {"a": None, "b": [True, {"c": 1}]},
    "{'a': ['b',]}": {"a": ["b"]},
    r"\n[1, 2]\n": [1, 2],
    "-Infinity": None,
}
ADDRESS = {"type": "object", "properties": {"zip": {"type": "string"}, "floor": {"type": "integer"}}}
NESTED = {
    "home": {"$ref": "#/$defs/Address"},
    "work": {"anyOf": [{"$ref": "#/$defs/Address"}, {"type": "null"}]},
    "zips": {"type": "array", "items": {"type": "string"}},
    "all": {"type": "array", "items": {"$ref": "#/$defs/Address"}},
    "by": {"type": "object", "additionalProperties": {"type": "string"}},
    "deep": {"type": "object", "properties": {"list": {"type": "array", "items": {"type": "array", "items": ADDRESS}}}},
    "pair": {"type": "array", "prefixItems": [{"type": "string"}]},
    "either": {"type": "array", "items": {"type": ["string", "integer"]}},
}
MOVE = ToolSpec("move", "", {"type": "object", "properties": NESTED, "$defs": {"Address": ADDRESS}})
ZEROS = {
    '{"home": {"zip": 02134}}': {"home": {"zip": "02134"}},
    '{"home": {"floor": 02, "zip": 02134}}': {"home": {"floor": 2, "zip": "02134"}},
    '{"work": {"zip": 007, "floor": 007}}': {"work": {"zip": "007", "floor": 7}},
    '{"zips": [02134, "a", 00501]}': {"zips": ["02134", "a", "00501"]},
    '{"zips": [[02134]]}': {"zips": [[2134]]},
    '{"all": [{"zip": 02134}, {"floor": 01, "zip": 00501}]}': {"all": [{"zip": "02134"}, {"floor": 1, "zip": "00501"}]},
    '{"by": {"Oslo": 0150, "a.b": +47}}': {"by": {"Oslo": "0150", "a.b": "+47"}},
    '{"deep": {"list": [[], [{"zip": 02134}]]}}': {"deep": {"list": [[], [{"zip": "02134"}]]}},
    '{"deep": {"list": [[{"zip": 02134}]]}, "home": {"zip": 01}}': {
        "deep": {"list": [[{"zip": "02134"}]]},
        "home": {"zip": "01"},
    },
    '{"pair": [01], "either": [02]}': {"pair": [1], "either": [2]},
    '{{"home": {{"zip": 02134}}}}': {"home": {"zip": "02134"}},
    "{'home': {'zip': 02134}, zips: [01,],}": {"home": {"zip": "02134"}, "zips": ["01"]},
    '{"zip": 02134, "x": {"zip": 02134}}': {"zip": 2134, "x": {"zip": 2134}},
}
"""Leading zeros where the schema of `move` wants strings, and where it does not."""
TEXTS = {
    "l1\r\nl2": "l1\r\nl2",
    "\x0b\x00\x1b[0m": "\x0b\x00\x1b[0m",
    r"\$x \. \( \[": r"\$x \. \( \[",
    r"\x41 \u12 z": r"\x41 \u12 z",
    r"C:\Users\me\.cfg": r"C:\Users\me\.cfg",
    '<a href="x.html">go</a>': '<a href="x.html">go</a>',
    'print("hi")': 'print("hi")',
    'd = {"k": [1, 2], "j": "v"}\\nprint(d["k"])': 'd = {"k": [1, 2], "j": "v"}\nprint(d["k"])',
    'say "hi"': 'say "hi"',
    '{"name": "x", "v": [1, "2"]}': '{"name": "x", "v": [1, "2"]}',
    "naïve → 東京\t👍🏽": "naïve → 東京\t👍🏽",
    r"it\'s": "it's",
}
NO_READING = [
    '{"path": "a, "content": "b"}',
    '{"path": "a"; "content": "b"}',
    '{"path": "a", "content": "b}',
    '{"path" "a", "content": "b"}',
    '{"path: "a", "content": "b"}',
    '{"path": a.txt, "content": "b"}',
    '{"path": lst", "content": "b"}',
    '{"path": "a", ...}',
    '{\\"path\\": \\"a\\", \\"content\\": \\"b\\"}',
    '{"path"="a", "content"="b"}',
]
bare = {"json", "llama_3", "functionary_32"}
"""Formats in which only an object that begins as one is looked at."""


def is_call(family: Family, given: str, meant: Any) -> None:
    text = family.answer + call_of(family, given)
    told = read(family.format, text)
    assert told.calls == [("write_file", meant)], (family.format, told)
    assert told.kinds == ("repaired",), (family.format, told)
    assert not told.content.strip()
    assert [read(family.format, text, cut) for cut in cut_anywhere(text)] == [told] * 2


@each_of("flaw", MENDED)
def test_a_flaw_between_the_tokens_of_arguments_is_mended(flaw: str) -> None:
    for family in WRITES_JSON:
        odd = MENDED[flaw][0] != "{" or MENDED[flaw][1] not in "\"'"
        # What follows these arguments shows where they end, or may be a part of them.
        apart = family.format == "mistral_nemo" and flaw in ("no last brace", "a brace too many")
        if not apart and not (odd and family.format in bare):
            is_call(family, MENDED[flaw], FILED)


@each_of("written", VALUES)
def test_a_value_that_is_not_spelled_as_in_json_is_mended(written: str) -> None:
    for family in WRITES_JSON:
        for flawed in (f'{{"path": "a", "mode": {written}}}', f'{{"mode": {written}, "path": "a"}}'):
            is_call(family, flawed, {"path": "a", "mode": VALUES[written]})


@each_of("written", ZEROS)
def test_a_zero_before_a_number_is_kept_where_an_inner_schema_wants_a_string(written: str) -> None:
    for family in WRITES_JSON:
        text = family.answer + family.write([Written("move", written, "abcdefghi")])
        told = read(family.format, text, tools=[MOVE])
        assert told.calls == [("move", ZEROS[written])], (family.format, told)
        assert [read(family.format, text, cut, tools=[MOVE]) for cut in cut_anywhere(text)] == [told] * 2


@each_of("written", TEXTS)
def test_a_text_that_is_not_escaped_is_mended(written: str) -> None:
    for family in WRITES_JSON:
        is_call(family, f'{{"path": "a", "content": "{written}"}}', {"path": "a", "content": TEXTS[written]})
        is_call(family, f'{{"content": "{written}", "path": "a"}}', {"path": "a", "content": TEXTS[written]})


@each_of("written", NO_READING)
def test_arguments_without_one_reading_are_content_and_never_another_call(written: str) -> None:
    for family in WRITES_JSON:
        text = f"{family.answer}So. {call_of(family, written)}"
        told = read(family.format, text)
        # An id behind the arguments reads like the end of a text in them.
        if family.format != "mistral_nemo":
            assert told.calls == [], (family.format, told)
            assert without_markup(family, told.content) == "So." + without_markup(family, call_of(family, written))
        assert [read(family.format, text, cut) for cut in cut_anywhere(text)] == [told] * 2


GIVEN = json.dumps(FILED, ensure_ascii=False)
AROUND = [
    f'{{"name": "write_file", "arguments": "{GIVEN}"}}',
    f"{{'name': 'write_file', 'arguments': '{GIVEN}'}}",
    f'{{"name": "write_file", "arguments": {json.dumps(GIVEN)}}}',
    f'{{"name": "write_file", "input": {GIVEN}}}',
    f'{{"name": "write_file", "args": {GIVEN}}}',
    f'{{"name": "write_file", "parameters": {GIVEN}}}',
    f'{{"type": "function", "function": {{"name": "write_file", "arguments": {GIVEN}}}}}',
    f'{{"name": "write_file", {GIVEN[1:]}',
    f'{{"arguments": {GIVEN}, "name": "write_file"}}',
    f'{{"name": "write_file" "arguments": {GIVEN}}}',
    f'{{"name": "write_file", "arguments": {GIVEN},}}',
    f'{{"name": "write_file", "arguments": {GIVEN}',
    f'{{"name": "write_file", "arguments": {GIVEN}}}}}}}',
    f'{{{{"name": "write_file", "arguments": {GIVEN}}}}}',
]
AROUND_UNREAD = [
    f'{{"name": "write_file"}}, "arguments": {GIVEN}}}',
    f'{{"arguments": {GIVEN}}}, "name": "write_file"}}',
    f'{{"name": "write_file",, "arguments": {GIVEN}}}',
    f'{{"name" "write_file", "arguments": {GIVEN}}}',
    f'{{"name": "write_file", "arguments": {GIVEN}, "arguments": {{}}}}',
    f'{{"name": "write_file", {GIVEN[1:-1]}, "arguments": {GIVEN}}}',
    f'"name": "write_file", "arguments": {GIVEN}}}',
    json.dumps(f'{{"name": "write_file", "arguments": {GIVEN}}}'),
]
IN_MARKERS = {
    "hermes": ("<tool_call>\n", "\n</tool_call>"),
    "qwen3_coder": ("<tool_call>\n", "\n</tool_call>"),
    "glm45": ("<tool_call>", "</tool_call>"),
    "glm47": ("<tool_call>\n", "\n</tool_call>"),
    "ernie45": ("<tool_call>\n", "\n</tool_call>\n"),
    "minimax_m2": ("<minimax:tool_call>", "</minimax:tool_call>"),
    "dots": ("<dots_function_call>", "</dots_function_call>"),
    "gemma4": ("<|tool_call>", "<tool_call|>"),
    "longcat": ("<longcat_tool_call>", "</longcat_tool_call>"),
    "nemotron_nano": ("<TOOLCALL>[", "]</TOOLCALL>"),
    "jamba": ("<tool_calls>[\n", "\n]</tool_calls>"),
    "gigachat31": ("<|function_call|>", ""),
    "internlm2": ("<|action_start|><|plugin|>", "<|action_end|>"),
}


@each_of("name", IN_MARKERS)
def test_the_object_around_arguments_may_be_flawed_and_nothing_is_lost_or_left_over(name: str) -> None:
    before, behind = IN_MARKERS[name]
    answer = ALL[name].answer
    for written in AROUND:
        text = f"{answer}So. {before}{written}{behind}"
        told = read(name, text)
        assert (told.calls, told.content.strip()) == ([("write_file", FILED)], "So."), (written, told)
        assert read(name, text, cut_anywhere(text)[1]) == told
    for written in AROUND_UNREAD:
        told = read(name, f"{answer}So. {before}{written}{behind}")
        assert told.calls == [], (written, told)
        assert "".join(written.split()) in "".join(told.content.split())


FENCES = [
    "{}",
    "```json\n{}\n```",
    "```\n{}```",
    "``` json\n{}\n```",
    "~~~json5\n{}\n~~~",
    "````tool-call\r\n{}\r\n````",
    "`{}`",
    "<tools>\n{}\n</tools>",
    "<tool>{}</tool>",
    "```xml\n<function_call>{}</function_call>\n```",
    "```json\n{}",
    "\n {}\n\n",
]
CITIES = '{"city": "서울"}'
OBJECTS = [
    f'{{"name": "look-up", "arguments": {CITIES}}}',
    json.dumps({"name": "look-up", "arguments": {"city": "서울"}}, indent=2),
    f'{{"type": "function", "function": {{"name": "look-up", "arguments": {json.dumps(CITIES)}}}}}',
    f'{{"tool": "look-up", "args": {CITIES}}}',
    f'{{"tool_name": "look-up", "tool_input": {CITIES}}}',
    f'{{"action": "look-up", "action_input": {CITIES}}}',
    f'{{"type": "tool_use", "id": "x", "name": "look-up", "input": {CITIES}}}',
    f'{{"function": "look-up", "parameters": {CITIES}}}',
    f'{{"tool_calls": [{{"id": "c", "function": {{"name": "look-up", "arguments": {CITIES}}}}}]}}',
    f'{{"function_call": {{"name": "look-up", "arguments": {CITIES}}}}}',
    "{'name': 'look-up', 'arguments': {'city': '서울',}}",
    f'{{"name": "look-up", "arguments": {CITIES}',
    f'{{"name": "look-up", "arguments": {CITIES}}}}}',
]
marked = st.sampled_from([name for name in format_names() if name not in BARE])


@given(
    marked, st.sampled_from(FENCES), st.sampled_from(OBJECTS), st.sampled_from(["", "Sure. ", "물론이죠:\n\n"]), cuts
)
def test_an_object_that_calls_a_tool_is_a_call_in_any_wrapping(
    name: str, fence: str, written: str, before: str, cuts: list[int]
) -> None:
    family = ALL[name]
    shown = fence.format(written)
    # A marker of the format's own is read as one.
    assume(not any(mark in shown for mark in format_named(name).markers if mark.startswith("<")))
    told = read(name, family.answer + before + shown, cuts)
    assert (told.calls, told.content.strip()) == ([SEOUL], before.strip())
    assert told.kinds == ()
    for rest in (".", "\nI called it."):
        kept = read(name, family.answer + before + shown + rest, cuts)
        assert kept.calls == []
        # Behind `<response>` a line ends that is no part of what is said.
        assert kept.content.lstrip("\n") == (before + shown + rest).lstrip("\n")


QUOTES = ['<|"|>{}<|"|>', '"{}"', "'{}'", "`{}`", '"""{}"""']
WORDS = ["a_1", "東京", "it is, so: fine", "x (y) [z] {w}", "", "C:/d", "true", "l1\nl2"]
CLOSED = {"{": "}", "(": ")", "[": "]", "({": "})"}


@st.composite
def gemma_calls(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A call of Gemma 4 with each mark in one of the spellings that the reports show."""

    def text(value: str) -> str:
        return draw(st.sampled_from(QUOTES)).format(value)

    words = st.sampled_from(WORDS)
    given: dict[str, Any] = {
        "note": draw(words),
        "tags": draw(st.lists(words, max_size=3)),
        "extra": {"k": draw(words)},
    }
    quote = draw(st.sampled_from(["", '"', "'", "`"]))
    colon = draw(st.sampled_from([":", ": ", "="]))
    opener = draw(st.sampled_from(list(CLOSED)))
    tags = draw(st.sampled_from([",", ", "])).join(map(text, given["tags"]))
    # Small models forget the bracket before another one.
    closer = "" if opener != "[" and draw(st.booleans()) else "]"
    members = (
        f"{quote}note{quote}{colon}{text(given['note'])}",
        f"{quote}extra{quote}{colon}{{{quote}k{quote}:{text(given['extra']['k'])}}}",
        f"{quote}tags{quote}{colon}[{tags}{closer}",
    )
    lead = draw(st.sampled_from(["call:", ":", "", "call: "]))
    end = draw(st.sampled_from(["<tool_call|>", ""]))
    return f"<|tool_call>{lead}log{opener}{','.join(members)}{CLOSED[opener]}{end}", given


@given(gemma_calls(), st.sampled_from(["", "Sure.", "<|channel>thought\nhm<channel|>"]), cuts)
def test_gemma_4_means_the_same_in_any_marks(written: tuple[str, dict[str, Any]], before: str, cuts: list[int]) -> None:
    text, given = written
    told = read("gemma4", before + text, cuts)
    assert told.calls == [("log", given)], told
    assert told.content == ("" if "<" in before else before)


@given(
    st.sampled_from(["x, y", "code with }]", "a: b", "", "def f():\n  return {}", "ünï"]),
    st.sampled_from(["path", "content"]),
    st.sampled_from(["none", "opens", "closes"]),
    cuts,
)
def test_a_string_of_gemma_4_that_lacks_a_mark_ends_where_it_must(
    value: str, odd: str, lacks: str, cuts: list[int]
) -> None:
    mark = '<|"|>'
    given = {"path": "f.txt", "content": value} if odd == "content" else {"content": value, "path": "f.txt"}
    assume(lacks != "opens" or (not set(value) & set(",:{}[]()\n") and value))
    spelled = {key: f"{mark}{each}{mark}" for key, each in given.items()}
    if lacks != "none":
        whole = spelled["content"]
        spelled["content"] = whole.removeprefix(mark) if lacks == "opens" else whole.removesuffix(mark)
    text = f"<|tool_call>call:write_file{{{','.join(f'{key}:{each}' for key, each in spelled.items())}}}<tool_call|>"
    told = read("gemma4", text, cuts)
    assert (told.calls, told.content) == ([("write_file", given)], "")


HEADS = [
    "commentary 2?",
    "??",
    "commentary?commentary?",
    "commentary to=assistant<|channel|>commentary?",
    "free text",
    "",
    "<|channel|>",
    "commentary",
    "––commentary",
    "final",
    "分析",
    "commentary to=",
    "commentary json",
]
CALLS = [
    "commentary to=functions.look-up <|constrain|>json<|message|>{}",
    "commentary to=functions.look-upjson<|message|>{}",
    "commentary to=look-up json<|message|>{}",
    "commentary to=assistant.look-up<|message|>{}",
    "commentary to=functions.look-up?<|message|>{}",
    "analysis to=functions.look-up<|message|>{}",
    "final to=functions.look-up code<|message|>{}",
    "commentary to=functions.look-up<|constrain|>{}",
    "commentary to=functions.look-up <|constrain|>json<|message|><|message|>{}",
    "commentary to=functions.look-up{}",
    "commentary to=functions.look-up<|channel|>commentary json<|message|>{}",
]


@given(st.sampled_from(HEADS), st.sampled_from(["", "<|start|>assistant"]), st.sampled_from([*CALLS, ""]), cuts)
def test_a_damaged_header_of_gpt_oss_leaves_nothing_behind(head: str, tail: str, call: str, cuts: list[int]) -> None:
    rest = f"<|channel|>{call.format(CITIES)}<|call|>" if call else "<|channel|>final<|message|>Hi.<|return|>"
    thought = "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant"
    text = f"<|channel|>{head}<|end|><|start|>assistant{thought}{rest}"
    told = read("harmony", text, cuts, tail=tail)
    assert (told.content, told.reasoning, told.calls) == ("" if call else "Hi.", "Think.", [SEOUL] if call else [])


TAGGED = {
    "qwen3_coder": "parameter",
    "seed_oss": "parameter",
    "mimo": "parameter",
    "minimax_m2": "parameter",
    "dots": "parameter",
    "glm45": "arg_value",
    "glm47": "arg_value",
    "hy_v3": "arg_value:opensource",
    "step3": "steptml:parameter",
    "muse_glimmer": "atem:parameter",
    "deepseek_v32": "｜DSML｜parameter",
    "deepseek_v4": "｜DSML｜parameter",
}
pieces = st.lists(st.sampled_from(["o", "c", "x", "\n ", "é", '<p a="b">', "&lt;"]), min_size=1, max_size=7)


@given(st.sampled_from(list(TAGGED)), pieces, st.booleans(), cuts)
def test_a_value_may_hold_and_end_with_its_own_tags(name: str, pieces: list[str], last: bool, cuts: list[int]) -> None:
    depths = list(itertools.accumulate({"o": 1, "c": -1}.get(piece, 0) for piece in pieces))
    assume(min(depths) >= 0 and depths[-1] == 0)
    spelled = {"o": f"<{TAGGED[name]}>", "c": f"</{TAGGED[name]}>"}
    value = "<a>" + "".join(spelled.get(piece, piece) for piece in pieces)
    given = {"path": "p", "content": value} if last else {"content": value, "path": "p"}
    assume(value == value.strip())
    family = ALL[name]
    told = read(name, family.answer + family.write([Written("write_file", json.dumps(given), "")]), cuts)
    assert told.calls == [("write_file", given)]
    assert not told.content.strip()


@pytest.mark.parametrize("name", ["glm45", "glm47", "gemma4", "qwen3_coder", "minimax_m2", "deepseek_v31", "kimi_k2"])
def test_what_no_tool_can_be_called_is_never_a_call(name: str) -> None:
    family = ALL[name]
    for odd in ('{"a": 1}', 'write_file("a")', "look[up]", 'a"b', "<b>"):
        told = read(name, family.write([Written("TOOL", "{}", "abcdefghi")]).replace("TOOL", odd))
        assert told.calls == [], (odd, told)
