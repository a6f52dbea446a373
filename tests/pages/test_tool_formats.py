"""The page of the formats: what the code writes, complete, and with an example that works."""

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from gateway.toolcalls.formats.format import Format, call_grammar
from gateway.toolcalls.formats.registry import format_named, format_names
from gateway.toolcalls.parser import parser_for
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallClosed, Content, Reasoning
from pages.tool_formats import render_page
from tests.cases import each_of
from tests.gateway.toolcalls.fakes import TIME, TinyVocabulary
from tests.gateway.toolcalls.gbnf_oracle import Gbnf

PAGE = Path(__file__).parents[2] / "docs" / "tool-formats.md"


@pytest.fixture(scope="module")
def rendered() -> str:
    return render_page()


@each_of("name", format_names())
def test_every_format_has_its_entry_once_with_its_shape(rendered: str, name: str) -> None:
    entries = re.findall(rf"^### `{name}`\n(.*?)\n(?=##)", rendered, re.MULTILINE | re.DOTALL)
    assert len(entries) == 1
    assert textwrap.indent(format_named(name).shape, "    ") in entries[0]
    assert all(text.replace("\n", "\\n") in entries[0] for text in format_named(name).template_has)


def example() -> Format:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    scope: dict[str, Any] = {}
    exec(compile(code, "docs/tool-formats.md", "exec"), scope)
    return scope["BIRCH"]


def test_the_worked_example_parses_what_it_says_and_is_short(rendered: str) -> None:
    fmt, vocabulary = example(), TinyVocabulary()
    text = '[muse]hm[/muse]Let me see.\n[call]get_time: {"tz": "[/call]"}[/call]\n[call]now: {}[/call]Done.'
    parser = parser_for(fmt, vocabulary, [TIME])
    events = [event for token_id in vocabulary.spell(text) for event in parser.feed([token_id])] + parser.close()
    assert [(e.name, e.arguments) for e in events if isinstance(e, CallClosed)] == [
        ("get_time", '{"tz": "[/call]"}'),
        ("now", "{}"),
    ]
    assert "".join(e.text for e in events if isinstance(e, Reasoning)) == "hm"
    assert "".join(e.text for e in events if isinstance(e, Content)) == "Let me see.Done."
    assert len(re.findall(r"```python\n(.*?)```", rendered, re.DOTALL)[0].splitlines()) <= 30


def test_the_worked_example_s_grammar_allows_its_calls_alone() -> None:
    grammar = call_grammar(example(), [ToolSpec("now", "", {"type": "object", "properties": {}})], choice="required")
    assert Gbnf(grammar).takes("[call]now: {}[/call]")
    assert not Gbnf(grammar).takes("[call]then: {}[/call]")
    assert not Gbnf(grammar).takes("Hi [call]now: {}[/call]")
