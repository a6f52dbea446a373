"""Where a grammar may be armed by a token, and what it then asks for: markers as tokens, and nothing else so."""

import re

from gateway.toolcalls.formats.format import CallTrigger, call_grammar, call_triggers
from gateway.toolcalls.formats.registry import format_named, format_names
from gateway.toolcalls.schema.spec import ToolSpec
from tests.cases import each_of
from tests.gateway.toolcalls.fakes import TIME, TinyVocabulary


def first_literal(grammar: str) -> str:
    """The text with which all that a grammar allows begins."""
    rules = dict(line.split(" ::= ", 1) for line in grammar.splitlines())
    body = rules["root"].lstrip("( ")
    while not body.startswith('"'):
        body = rules[re.split(r"[^\w-]", body)[0]].lstrip("( ")
    return body.split('"')[1]


@each_of("name", format_names())
def test_a_grammar_of_tokens_spells_no_marker_that_is_one(name: str) -> None:
    fmt = format_named(name)
    vocabulary = TinyVocabulary(fmt.markers)
    if call_triggers(fmt, vocabulary):
        tools = [TIME, ToolSpec(fmt.markers[0], "", TIME.parameters)]
        grammar = call_grammar(fmt, tools, choice=TIME.name, parallel=True, vocabulary=vocabulary)
        assert [marker for marker in fmt.markers if marker in grammar.replace("\\", "")] == []
        # A tool's name is text, whatever it looks like.
        grammar = call_grammar(fmt, tools, choice=fmt.markers[0], vocabulary=vocabulary)
        assert grammar.replace("\\", "").count(fmt.markers[0]) >= 1


@each_of("name", format_names())
def test_a_trigger_is_what_the_formats_grammar_begins_with(name: str) -> None:
    fmt = format_named(name)
    vocabulary = TinyVocabulary(fmt.markers)
    for trigger in call_triggers(fmt, vocabulary):
        assert vocabulary.special_tokens[trigger.text] == trigger.token_id
        first = first_literal(call_grammar(fmt, [TIME], choice="required"))
        assert first.replace("\\", "").startswith(trigger.text)
    assert call_triggers(fmt, TinyVocabulary()) == ()


def test_families_with_a_token_for_calls_have_a_trigger_and_bare_ones_have_none() -> None:
    armed = {
        name for name in format_names() if call_triggers(format_named(name), TinyVocabulary(format_named(name).markers))
    }
    assert {"hermes", "qwen3_coder", "mistral", "kimi_k2", "deepseek_v31", "glm45", "gemma4", "lfm2"} <= armed
    assert not armed & {"llama_3", "json", "pythonic", "functionary_32", "harmony"}
    hermes = call_triggers(format_named("hermes"), TinyVocabulary(["<tool_call>"]))
    assert hermes == (CallTrigger("<tool_call>", 1000),)


def test_an_enumeration_that_looks_like_a_marker_is_text_between_tokens() -> None:
    quote = '<|"|>'
    choice = {"type": "object", "properties": {"k": {"enum": [quote, "<|im_end|>"]}}, "required": ["k"]}
    vocabulary = TinyVocabulary([quote, "<|im_end|>", "<|tool_call>"])
    grammar = call_grammar(
        format_named("gemma4"), [ToolSpec("f", "", choice)], choice="required", vocabulary=vocabulary
    )
    assert '(<[1000]> ("<|\\"|>" | "<|im_end|>") <[1000]>)' in grammar
    assert "<[1001]>" not in grammar
