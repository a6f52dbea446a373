"""Which format a template gets, who teaches it, and what a template's own text teaches."""

import json
import random

import pytest

from gateway.toolcalls.formats.format import call_grammar
from gateway.toolcalls.formats.registry import ChosenFormat, UnknownFormat, choose_format, format_named
from gateway.toolcalls.parser import AssistantMessage, join_events, read_events
from tests.cases import each_of
from tests.gateway.toolcalls.fakes import TOOLS
from tests.gateway.toolcalls.gbnf_oracle import Gbnf

CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}{{ m.content }}{% endfor %}"
HERMES = """{{- "<tool_call>\\n{\\"name\\": <name>, \\"arguments\\": <args>}\\n</tool_call>" }}"""
LLAMA_4 = """{{- "<|header_start|>user<|header_end|>" }}
{{- 'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.' }}
{{- '<|python_start|>' }}{{ message.content }}{{- '<|python_end|>' }}
{{- '{"name": "' + call.name + '", ' }}{{- '"parameters": ' }}"""
NEMOTRON_MINI = "{{'<extra_id_0>System'}}{{ '<tool> ' + tool|tojson + ' </tool>' }}{{ '<extra_id_1>User' }}"
MIRO = '{{ \'<use_mcp_tool>\' }} or <tool_call>\\n{\\"name\\": <name>, \\"arguments\\": <args>}\\n</tool_call>'

OBJECT = (
    """# Tools {{ tools | tojson }} Answer {\\"name\\": <function-name>, \\"arguments\\": <args-object>} to call one."""
)
PARAMETERS = """{{- 'Respond in the format {"name": function name, "parameters": dictionary of arguments}.' }}"""
LIST = """To call tools, write [{"name": "tool_name", "arguments": {"x": 1}}, ...] and nothing else."""
TAGS = """Write <call>\\n{\\"name\\": <function-name>, \\"arguments\\": <args-json-object>}\\n</call> for each."""
LISTED_TAGS = """Write <calls>[{"name": "a", "parameters": {}}, {"name": "b", "parameters": {}}]</calls>."""
OPENAI = """Write {"type": "function", "name": "a", "parameters": {}}."""
UNCLOSED = """Write <call> {"name": "a", "arguments": {}}."""
DEFINITIONS = """{"name": "f", "description": "d", "parameters": {"type": "object"}}"""


@each_of(
    ("template", "supports", "name", "preamble"),
    [
        (CHATML, False, "generic", True),
        (CHATML, True, "generic", True),
        ("", False, "generic", True),
        (HERMES, True, "hermes", False),
        (HERMES, False, "hermes", True),
        (LLAMA_4, True, "llama_3", False),
        (NEMOTRON_MINI, True, "nemotron_mini", False),
        (OBJECT, False, "generic", True),
        (OBJECT, True, "template", False),
        (DEFINITIONS, True, "generic", True),
    ],
)
def test_a_format_is_taught_by_the_template_or_by_the_gateway_and_never_by_nobody(
    template: str, supports: bool, name: str, preamble: bool
) -> None:
    chosen = choose_format(template, supports_tools=supports)
    assert (chosen.format.name, chosen.preamble) == (name, preamble)


def test_miro_thinkers_template_is_not_taken_for_hermes() -> None:
    assert choose_format(MIRO, supports_tools=True).format.name != "hermes"


def test_a_setting_decides_whatever_the_template_says() -> None:
    assert choose_format(HERMES, supports_tools=True, wanted="mistral").format is format_named("mistral")
    assert choose_format(HERMES, supports_tools=True, wanted="generic") == ChosenFormat(
        format_named("generic"), True, True
    )
    with pytest.raises(UnknownFormat, match="'nope'"):
        choose_format(HERMES, supports_tools=True, wanted="nope")


def read(template: str, text: str) -> AssistantMessage:
    fmt = choose_format(template, supports_tools=True).format
    return join_events(read_events(fmt, (text,), TOOLS, ""))


WEATHER = '{"city": "Paris"}'
ONE = f'{{"name": "get_weather", "arguments": {WEATHER}}}'
OTHER = '{"name": "get_time", "parameters": {"tz": "CET"}}'


@each_of(
    ("template", "text"),
    [
        (OBJECT, f"{ONE}\n{OTHER}"),
        (OBJECT, f"<think>So.</think>\n\n{ONE}; {OTHER}"),
        (PARAMETERS, f"{ONE}; {OTHER}"),
        (OPENAI, f"{ONE}; {OTHER}"),
        (UNCLOSED, f"{ONE}; {OTHER}"),
        (LIST, f"[{ONE}, {OTHER}]"),
        (LIST, f"Now: ```json\n[{ONE}, {OTHER}]\n```"),
        (TAGS, f"<call>\n{ONE}\n</call>\n<call>{OTHER}</call>"),
        (TAGS, f"<think>So.</think>\n<call>[{ONE}, {OTHER}]"),
        (LISTED_TAGS, f"<calls>[{ONE}, {OTHER}]</calls>"),
        (LLAMA_4, f"{ONE}; {OTHER}"),
        (LLAMA_4, f"<|python_start|>{ONE}; {OTHER}<|python_end|>"),
        (LLAMA_4, "<|python_start|>[get_weather(city='Paris'), get_time(tz='CET')]<|python_end|>"),
        (NEMOTRON_MINI, f"<toolcall> {ONE} </toolcall> <toolcall> {OTHER} </toolcall>"),
        (NEMOTRON_MINI, f"<toolcall> {ONE}, {OTHER} </toolcall>"),
    ],
)
def test_the_calls_that_a_templates_text_teaches_are_read(template: str, text: str) -> None:
    message = read(template, text)
    assert [(call.name, json.loads(call.arguments)) for call in message.tool_calls] == [
        ("get_weather", {"city": "Paris"}),
        ("get_time", {"tz": "CET"}),
    ]
    assert message.diagnostics == ()
    assert (message.content or "").strip() in ("", "Now:")


@pytest.mark.parametrize("template", [OBJECT, PARAMETERS, LIST, TAGS, LISTED_TAGS])
def test_what_a_taught_formats_grammar_writes_is_parsed_and_so_is_its_shape(template: str) -> None:
    fmt = choose_format(template, supports_tools=True).format
    grammar = Gbnf(call_grammar(fmt, TOOLS, choice="required", parallel=True))
    for seed in range(20):
        message = read(template, grammar.sample(random.Random(seed)))
        assert message.tool_calls
        assert (message.diagnostics, message.content) == ((), None)
    assert grammar.takes(fmt.shape.replace("TOOL", "get_time").replace("KEY", "tz").replace("VALUE", "CET"))


def test_prose_under_a_taught_format_stays_prose() -> None:
    for template in (OBJECT, LIST, TAGS):
        for text in ('{"a": 1}', '[1, 2] and {"name": "no_such"}', "a < b", "<call me"):
            assert read(template, text) == AssistantMessage(text, None, (), ())


@pytest.mark.parametrize(
    ("tools", "calls", "preamble", "calls_as_text"),
    [(True, True, False, False), (True, False, False, False), (False, True, True, False), (False, False, True, True)],
)
def test_template_keeps_what_it_can_write_itself(tools: bool, calls: bool, preamble: bool, calls_as_text: bool) -> None:
    chosen = choose_format(HERMES, supports_tools=tools, supports_calls=calls)

    assert (chosen.preamble, chosen.calls_as_text) == (preamble, calls_as_text)


def test_calls_that_the_gateway_teaches_are_text_whatever_the_template_can_write() -> None:
    assert choose_format("", supports_tools=False, supports_calls=True).calls_as_text
