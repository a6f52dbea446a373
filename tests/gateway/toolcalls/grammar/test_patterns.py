"""A schema's `pattern` in a grammar: simple ones are held, in every place; of others nothing is."""

import json
import random
import re
from typing import Any

import pytest

from gateway.toolcalls.formats.format import call_grammar
from gateway.toolcalls.formats.registry import format_named
from gateway.toolcalls.parser import parse
from gateway.toolcalls.schema.spec import ToolSpec
from tests.cases import each_of
from tests.gateway.toolcalls.gbnf_oracle import Gbnf

SIMPLE = [
    (r"^\d{4}-\d{2}-\d{2}$", ["2026-11-22"], ["2026-1-22", "x2026-11-22"]),
    (r"^[A-Z]{2,3}[^a-z\s]?$", ["AB", "ABC9", "AB."], ["A", "ABx", "AB "]),
    (r"^(?:cat|dog)s*$", ["cat", "dogss"], ["cow", "cats!"]),
    (r"^(a|bc)+?-\w*$", ["a-", "abca-x_9"], ["-", "b-"]),
    (r"^a$|^b", ["a", "bcd"], ["ab", "c"]),
    (r"b{2,}", ["xbbx", "bb", "bbb"], ["xbx", ""]),
    (r"^$", [""], ["a"]),
    (r"^[\x41\u0042]\.\t?[\"\\\n]$", ['A."', "B.\\", "A.\t\n"], ["C.x", "A,x"]),
    (r"^\D[\d-]\S\W$", ["x-y.", "é1z-"], ["1-y.", "x y."]),
    (r"^.[)\]-]\/$", ["x)/", '"]/', "é-/"], ["\n)/", "x(/"]),
    (r"^[a\]-]b$", ["ab", "]b", "-b"], ["cb"]),
]
HARD = [
    *(
        r"^(?=a)b",
        r"^a\b",
        r"(a)\1",
        r"^(?<n>a)$",
        r"^(a*)*$",
        r"^(a?){2}$",
        r"^a{2,1}$",
        r"^a{x}$",
        r"^a{,2}$",
        r"^a{2",
        r"^a**$",
        r"[a",
    ),
    *(
        r"(a",
        r"a)",
        r"^(^a)$",
        r"^(a$)$",
        r"[z-a]",
        r"[\d-z]",
        r"[\D]",
        r"[]",
        r"\p{L}",
        r"\xzz",
        r"a\\"[:-1],
        "a" * 600,
        "(" * 30,
    ),
    "[\x01]",
]


def takes(name: str, schema: Any, text: str) -> bool:
    """Whether the grammar of a tool `f` takes a call whose one argument is this text."""
    called = {"name": "f", "arguments": {"v": text}}
    shapes = {
        "hermes": f"<tool_call>\n{json.dumps(called, ensure_ascii=False)}\n</tool_call>",
        "glm47": f"<tool_call>f<arg_key>v</arg_key><arg_value>{text}</arg_value></tool_call>",
        "mimo": f"<tool_call><function=f><parameter=v>{text}</parameter></function></tool_call>",
    }
    parameters = {"type": "object", "properties": {"v": schema}, "required": ["v"]}
    return Gbnf(call_grammar(format_named(name), [ToolSpec("f", "", parameters)], choice="required")).takes(
        shapes[name]
    )


@each_of(("pattern", "good", "bad"), SIMPLE)
def test_a_simple_pattern_is_held(pattern: str, good: list[str], bad: list[str]) -> None:
    schema = {"type": "string", "pattern": pattern}
    assert [text for text in good if not re.search(pattern, text)] == []
    assert [text for text in good if not takes("hermes", schema, text)] == []
    assert [text for text in bad if takes("hermes", schema, text)] == []


@each_of("pattern", HARD)
@each_of("name", ["hermes", "glm47"])
def test_a_pattern_that_is_not_simple_leaves_the_text_free_within_its_lengths(name: str, pattern: str) -> None:
    schema = {"type": "string", "pattern": pattern, "minLength": 2}
    assert takes(name, schema, "zz")
    assert not takes(name, schema, "z")


@pytest.mark.parametrize("name", ["glm47", "mimo"])
def test_between_tags_a_pattern_is_held_that_says_all_of_a_text_and_cannot_end_it(name: str) -> None:
    held = {"type": "string", "pattern": r"^[A-Z]{2}\d?$"}
    assert [text for text in ("AB", "AB1", "ab", "ABC") if takes(name, held, text)] == ["AB", "AB1"]
    for free in (r"^[^a]$", "a", r"^<$"):
        assert takes(name, {"type": "string", "pattern": free}, "any text")


@each_of("pattern", [pattern for pattern, _, _ in SIMPLE])
def test_what_is_written_under_a_pattern_fits_it(pattern: str) -> None:
    schema = {"type": "object", "properties": {"v": {"type": "string", "pattern": pattern}}, "required": ["v"]}
    texts = Gbnf(call_grammar(format_named("hermes"), [ToolSpec("f", "", schema)], choice="required"))
    for seed in range(20):
        (call,) = parse("hermes", texts.sample(random.Random(seed)), ()).tool_calls
        assert re.search(pattern, json.loads(call.arguments)["v"], re.ASCII)
