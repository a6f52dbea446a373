"""What vLLM is sent of a grammar that waits for a token: for every format that has one, and what can be read back."""

import json
import re

from gateway.engine.interface import GenerateRequest
from gateway.engine.wire.vllm_json import completion_body, ids_body, in_ebnf, structured_outputs
from gateway.toolcalls.formats.format import CallTrigger, call_grammar, call_triggers
from gateway.toolcalls.formats.registry import format_named, format_names
from gateway.toolcalls.schema.spec import ToolSpec
from tests.cases import each_of
from tests.gateway.toolcalls.fakes import TIME, TinyVocabulary
from tests.gateway.toolcalls.tool_sets import TOOL_SETS
from tests.standins.vllm_wire_over_llama_cpp import waiting_grammar

TOKEN = re.compile(r"<\[\d+\]>")
TEXT = re.compile(r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]')


def armed(name: str, tools: list[ToolSpec], *, parallel: bool) -> tuple[str, tuple[CallTrigger, ...]]:
    """The grammar of a format whose markers are all tokens, and what arms it."""
    fmt = format_named(name)
    vocabulary = TinyVocabulary(fmt.markers)
    grammar = call_grammar(fmt, tools, choice="required", parallel=parallel, vocabulary=vocabulary)
    return grammar, call_triggers(fmt, vocabulary)


@each_of("tools", TOOL_SETS.values())
@each_of("name", format_names())
def test_grammar_of_a_format_is_sent_whole_and_can_be_read_back(name: str, tools: list[ToolSpec]) -> None:
    for parallel in (False, True):
        grammar, triggers = armed(name, tools, parallel=parallel)
        if not triggers:
            assert structured_outputs(grammar, ()).keys() == {"grammar"}
            continue
        sent = structured_outputs(grammar, triggers)

        assert sent.keys() == {"structural_tag"}
        tag = json.loads(sent["structural_tag"])
        free, held = tag["format"]["elements"]
        assert tag["type"] == "structural_tag"
        assert tag["format"]["type"] == "sequence"
        assert free == {"type": "any_tokens", "exclude_tokens": [trigger.token_id for trigger in triggers]}
        assert held["type"] == "optional"
        assert held["content"].keys() == {"type", "grammar"}
        # No token in the notation of another engine, and none that was text.
        assert not TOKEN.search(TEXT.sub("", held["content"]["grammar"]))
        assert waiting_grammar(sent["structural_tag"]) == (grammar, [trigger.token_id for trigger in triggers])


def test_what_looks_like_a_token_in_a_text_stays_a_text() -> None:
    grammar = 'root ::= <[7]> "<[8]>" "\\"<[9]>" [<[10\\]>] a\na ::= "\\\\" <[11]>\n'

    assert in_ebnf(grammar) == 'root ::= Token(7) "<[8]>" "\\"<[9]>" [<[10\\]>] a\na ::= "\\\\" Token(11)\n'


def test_names_of_tools_that_look_like_tokens_are_sent_as_they_are() -> None:
    (grammar, triggers) = armed("hermes", [ToolSpec("<[5]>Token(6)", "", TIME.parameters)], parallel=False)
    tag = json.loads(structured_outputs(grammar, triggers)["structural_tag"])

    assert "<[5]>Token(6)" in tag["format"]["elements"][1]["content"]["grammar"]


@each_of("name", format_names())
def test_no_grammar_has_an_escape_that_engines_read_differently(name: str) -> None:
    # Of `\x2Dab` llama.cpp takes two digits, xgrammar all four.
    pattern = {"type": "object", "properties": {"p": {"pattern": "^[-a-f^b]{2}$"}, "\x1fab": {"const": "\x7fab"}}}
    fmt = format_named(name)
    for tools in (*TOOL_SETS.values(), [ToolSpec("\x01f", "", pattern)]):
        grammar = call_grammar(fmt, tools, choice="required", parallel=True, prompt_tail="")
        assert "\\x" not in re.sub(r"\\\\", "", grammar)


def test_both_endpoints_are_asked_alike() -> None:
    grammar, triggers = armed("hermes", [TIME], parallel=True)
    request = GenerateRequest([1], None, 3, grammar=grammar, triggers=triggers)
    held = structured_outputs(grammar, triggers)

    assert ids_body(request, "m")["sampling_params"]["structured_outputs"] == held
    assert completion_body(request, "m")["structured_outputs"] == held
