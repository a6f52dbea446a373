"""JSON with flaws that leave one reading, against the value that each can only mean."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.toolcalls.values.json_repair import MendingScanner, mended
from gateway.toolcalls.values.json_scanner import MAX_DEPTH, JsonScanner, Scan, missing_end
from gateway.toolcalls.values.string_end import Surroundings
from tests.cases import each_of
from tests.gateway.toolcalls.strategies import json_values

FILE = Surroundings(
    ("path", "content", "mode"),
    ("</tool_call>", "```"),
    lambda path: path[-1] in ("path", "content", "ü") and len(path) == 1,
)

FLAWS: list[tuple[str, Any]] = [
    ('{"content": "l1\nl2\tl3\r\n"}', {"content": "l1\nl2\tl3\r\n"}),
    ('{"content": "nul\x00"}', {"content": "nul\x00"}),
    (r'{"path": "C:\dir\users\x64"}', {"path": r"C:\dir\users\x64"}),
    (r'{"path": "C:\dir\", "mode": 1}', {"path": "C:\\dir\\", "mode": 1}),
    (r'{"content": "\d+\.\w*"}', {"content": r"\d+\.\w*"}),
    (r'{"content": "it\'s \"x\" \\ \u00e9 \u12"}', {"content": 'it\'s "x" \\ é \\u12'}),
    ('{"content": "curl \\\n -H"}', {"content": "curl \\\n -H"}),
    ('{"path": "a",}', {"path": "a"}),
    ('{"a": [1, 2, ], "b": {"c": 1 , } , }', {"a": [1, 2], "b": {"c": 1}}),
    ('{"a": None, "b": True, "c": False, "d": [None]}', {"a": None, "b": True, "c": False, "d": [None]}),
    ('{"a": NaN, "b": -Infinity, "c": undefined}', {"a": None, "b": None, "c": None}),
    ('{"a": 007, "b": +1, "c": .5, "d": 1_000}', {"a": 7, "b": 1, "c": 0.5, "d": 1000}),
    ('{"path": 02134, "mode": 02134, "b": 007}', {"path": "02134", "mode": 2134, "b": 7}),
    ('{"content": +49301234, path: 1_000, "\\u00fc" : 00}', {"content": "+49301234", "path": "1_000", "ü": "00"}),
    ('{"path": 2134, "content": [02134], "mode": {"path": 02134}}',
     {"path": 2134, "content": [2134], "mode": {"path": 2134}}),
    ('{path: "a", "content": "x", mode : 1}', {"path": "a", "content": "x", "mode": 1}),
    ('{"path": "a", content: "x"}', {"path": "a", "content": "x"}),
    ("{'path': 'a', 'content': 'it's \"x\"'}", {"path": "a", "content": 'it\'s "x"'}),
    ("{\"path\": 'a', \"b\": ['x', \"y\"]}", {"path": "a", "b": ["x", "y"]}),
    ('{"content": "say "hi" now"}', {"content": 'say "hi" now'}),
    ('{"content": "say "hi"", "path": "a"}', {"content": 'say "hi"', "path": "a"}),
    ('{"content": "he said "hi", then left"}', {"content": 'he said "hi", then left'}),
    ('{"content": "d = {"k": "v", "z": [1, "y"]}", "path": "a"}',
     {"content": 'd = {"k": "v", "z": [1, "y"]}', "path": "a"}),
    ('{"path": "a", "content": "<a href="x">y</a>"}', {"path": "a", "content": '<a href="x">y</a>'}),
    ('{"path": "a" "content": "x"}', {"path": "a", "content": "x"}),
    ('{"path": "a"\n  "content": "x"}', {"path": "a", "content": "x"}),
    ('{{"path": "a", "mode": {{"b": 1}}}}', {"path": "a", "mode": {"b": 1}}),
    ('{"mode": {"b": [1, 2}}', {"mode": {"b": [1, 2]}}),
    ('{"mode": [1, 2]], "path": "a"}', {"mode": [1, 2], "path": "a"}),
    ('{"path": "a", "mode": {"b": "x"', {"path": "a", "mode": {"b": "x"}}),
    ('{"path": "a"</tool_call>', {"path": "a"}),
    ('{"path": "say "a""\n```', {"path": 'say "a"'}),
    ("{'mode': [1] </tool_call>", {"mode": [1]}),
    ("{'mode': 1, </tool_call>", {"mode": 1}),
    ('{"content": """say "hi"""", "path": \'\'\'it\'s \'\'\'}', {"content": 'say "hi"', "path": "it's "}),
    (r'{"content": "\d \"x\" y"}', {"content": r'\d "x" y'}),
    ("{'path': 'a', /* b */ 'mode': 1}", {"path": "a", "mode": 1}),
    ("{'mode': ['x'," + " " * 509 + "None]}", {"mode": ["x", None]}),
    ("{'mode': ['x'," + " " * 509 + "Xo']}", {"mode": ["x'," + " " * 509 + "Xo"]}),
    ('{\\n\n\n{"path": /* a */ \u00a0 "a"}}', {"path": "a"}),
]  # fmt: skip

NO_READING = [
    '{"a": nope}',
    '{"a": 1 + 2}',
    '{"a": f(1)}',
    '{"a": }',
    '{"a"}',
    '{"a", "b"}',
    '{"a" = 1}',
    '{"a": 1; "b": 2}',
    "[1 2]",
    "{1: 2}",
    '{"path": "say "hi}</tool_call>',
    '{"path": "a"}}"',
    f'{{"a": {"0" * 300}}}',
    # Only the schema can say that a comment is no part of the string before it.
    "{'mode': {'a': 'x', /* b */ 'c': 1}}</tool_call>",
    "{'mode': [1] </tool>",
]


def pieces(text: str, cuts: list[int], around: Surroundings = FILE) -> tuple[str, Scan]:
    """What a text that comes in pieces is read as, and what it came to."""
    strict, mending, told, at = JsonScanner(), None, "", 0
    for end in [*sorted(cut % (len(text) + 1) for cut in cuts), len(text)]:
        if mending is None:
            after = strict.scan(text[:end], at)
            told, at = told + text[at:after], after
            mending = MendingScanner(strict, around, before=told) if strict.state is Scan.WRONG else None
        if mending is not None:
            at, more = mending.scan(text[:end], at)
            told += more
    return told, strict.state if mending is None else mending.state


def read(text: str) -> object:
    told = mended(text.replace("</tool_call>", "").rstrip("`\n"), FILE)
    return None if told is None else json.loads(told)


@each_of(("text", "meant"), FLAWS)
def test_a_flaw_with_one_reading_is_read_as_that(text: str, meant: object) -> None:
    assert read(text) == meant


@each_of("text", NO_READING)
def test_a_flaw_without_a_reading_is_wrong(text: str) -> None:
    told, state = pieces(text, [])
    assert (state, mended(text, FILE)) in ((Scan.WRONG, None), (Scan.WHOLE, None))
    assert state is Scan.WRONG or not told.startswith(text)
    assert read(text) is None


@given(st.sampled_from([text for text, _ in FLAWS] + NO_READING), st.lists(st.integers(0, 999), max_size=6))
def test_the_cuts_do_not_matter(text: str, cuts: list[int]) -> None:
    text += " </tool_call> x"
    assert pieces(text, cuts) == pieces(text, [])


@each_of("text", [*(text for text, _ in FLAWS), *NO_READING])
def test_a_flaw_that_comes_by_single_characters_is_written_the_same(text: str) -> None:
    text += " </tool_call> x"
    assert pieces(text, [*range(len(text))]) == pieces(text, [])


@given(json_values, st.booleans(), st.sampled_from([None, 1]))
def test_valid_json_is_never_touched(value: object, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert mended(text, FILE) == text


@given(st.lists(st.sampled_from([*"{}[],:'\"\\ \naN1.-", "true", "None", "path", "</tool_call>"]), max_size=14))
def test_whatever_is_read_as_whole_is_json(parts: list[str]) -> None:
    text = "{" + "".join(parts)
    told, state = pieces(text + "</tool_call>", [])
    if state is Scan.WHOLE:
        json.loads(told)
    if (whole := mended(text, FILE)) is not None:
        json.loads(whole)


@given(json_values.map(json.dumps), st.integers(0, 999))
def test_any_beginning_of_json_has_an_end(text: str, cut: int) -> None:
    scanner = JsonScanner()
    good = text[: scanner.scan(text[: cut % (len(text) + 1)], 0)]
    json.loads(good + missing_end(good))


def test_a_nest_without_bottom_is_refused() -> None:
    assert mended("{a: " + "[" * MAX_DEPTH, FILE) is None
    assert mended("{a: " + "[" * (MAX_DEPTH - 1), FILE) is None
    assert mended("{a: " + "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1), FILE) is not None
