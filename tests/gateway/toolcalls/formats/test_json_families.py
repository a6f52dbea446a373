"""Families whose calls are JSON: what their templates render, and what their models write instead."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.toolcalls.formats.format import call_grammar
from gateway.toolcalls.formats.named_calls import NumberedName
from gateway.toolcalls.formats.registry import format_for_template, format_named
from gateway.toolcalls.nodes.combinators import Array, OptionalMarker, Series, Variants, unwritten
from gateway.toolcalls.nodes.json_nodes import Json, QuotedId
from gateway.toolcalls.nodes.readers import Lit, Seq
from gateway.toolcalls.nodes.regions import Bare, LeadingRegion
from gateway.toolcalls.parser import parse, stream
from gateway.toolcalls.stream.output_events import Diagnostic
from gateway.toolcalls.stream.spelling import Spelling
from tests.cases import each_of
from tests.gateway.toolcalls.fakes import PLAIN, TOOLS, WEATHER, Numbered, closed, run, started
from tests.gateway.toolcalls.families_json import JSON_FAMILIES
from tests.gateway.toolcalls.gbnf_oracle import Gbnf

RENDERED: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "vectors" / "json_bodied.json").read_text())
WANTED = [("get_weather", '{"city": "Paris", "days": 3}'), ("get_time", '{"tz": "CET"}')]
ARGS = '{"city": "Paris"}'
CALL = f'{{"name": "get_weather", "arguments": {ARGS}}}'
FENCED = f"get_weather\n```json\n{ARGS}\n```"
ONE = (("get_weather", ARGS),)
TWO = (*ONE, ("get_time", "{}"))
KIMI = f"<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{ARGS}"


@each_of("case", RENDERED)
def test_what_a_template_renders_is_read_back(case: dict[str, Any]) -> None:
    message = parse(case["format"], case["text"], TOOLS)
    assert message.diagnostics == ()
    assert [(call.name, call.arguments) for call in message.tool_calls] == WANTED[: case["calls"]]
    assert (message.content or "").strip() == ""
    assert message.reasoning_content is None


@each_of("case", RENDERED)
def test_content_before_what_a_template_renders_is_content(case: dict[str, Any]) -> None:
    content = "Let me see, 東京 <b>."
    lead, tail = ("all\n", ">>>") if case["format"] == "functionary_32" else ("", "\n")
    calls = case["text"].removeprefix("<think>\n\n</think>\n\n")
    message = parse(case["format"], f"{lead}{content}{tail}{calls}", TOOLS)
    assert message.diagnostics == ()
    assert [(call.name, call.arguments) for call in message.tool_calls] == WANTED[: case["calls"]]
    assert (message.content or "").strip() == content


@each_of("case", RENDERED)
def test_a_familys_grammar_takes_what_its_template_renders(case: dict[str, Any]) -> None:
    text = case["text"].strip().removeprefix("<think>\n\n</think>\n\n")
    # Reka writes two calls without the newline, and a distilled model leaves the section open.
    text = text.replace("</tool_call><tool_call>", "</tool_call>\n<tool_call>")
    if case["format"] == "deepseek_v3":
        text = text.removesuffix("<｜tool▁calls▁end｜>") + "<｜tool▁calls▁end｜>"
    grammar = Gbnf(call_grammar(format_named(case["format"]), TOOLS, choice="required", parallel=True))
    assert grammar.takes(text)
    assert not grammar.takes(text[:-1])


SLOPPY: list[tuple[str, str, str, str | None, str | None, tuple[tuple[str, str], ...]]] = [
    ("hermes", "", f"<tool_call>{CALL}</tool_call>", None, None, ONE),
    ("hermes", "", f"<tool_call>\n{CALL}}}\n</tool_call>\nok", "ok", None, ONE),
    ("hermes", "", f"<tool_call>\n{CALL[:-1]}\n</tool_call>\nok", "ok", None, ONE),
    ("hermes", "", f'<tool_call>{{"type": "function", "function": {CALL}}}</tool_call>', None, None, ONE),
    ("hermes", "<think>\n", f"hm\n</think>\n\nHi <tool_call>{CALL}</tool_call>", "Hi ", "hm", ONE),
    ("deepseek_v3", "", f"<｜tool▁calls｜>function<｜tool▁sep｜>{FENCED}<｜tool▁call▁end｜>", None, None, ONE),
    ("deepseek_v3", "", f"<｜tool_calls_begin｜>function<｜tool▁sep｜>{FENCED}", None, None, ONE),
    ("deepseek_v3", "", f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{FENCED}<｜tool▁ca", None, None, ONE),
    ("deepseek_v3", "<think>\n", f"hm</think>Hi<｜tool▁calls▁begin｜>function<｜tool▁sep｜>{FENCED}", "Hi", "hm", ONE),
    ("deepseek_v3", "<think>\n</think>", "Hi", "Hi", None, ()),
    ("deepseek_v31", "", f"<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{ARGS}", None, None, ONE),
    ("kimi_k2", "", f"<think>a<|tool_calls_section_begin|>{KIMI}<|tool_call_end|><|tool_calls_section_end|>b</think>c",
     "c", "ab", ONE),
    ("kimi_k2", "", f"Hi {KIMI}<|tool_call_end|>", "Hi ", None, ONE),
    ("kimi_k2", "", f"<|tool_call_section_begin|>{KIMI}<|tool_call_end|><|tool_call_section_end|>x", "x", None, ONE),
    ("kimi_k2", "", f"<|tool_calls_section_begin|>{KIMI}{KIMI.replace(ARGS, '{}').replace('weather:0', 'time:1')}",
     None, None, TWO),
    ("kimi_k2", "", KIMI.replace("functions.get_weather:0", " functions_get_weather_2 "), None, None, ONE),
    ("kimi_k2", "", KIMI.replace("functions.get_weather:0", "get_weather"), None, None, ONE),
    ("kimi_k2", "", KIMI.replace("functions.", "tools."), None, None, ONE),
    ("kimi_k2", "", KIMI.replace("get_weather", "no_such"), None, None, (("no_such", ARGS),)),
    ("mistral", "", f"Hi[TOOL_CALLS]get_weather{ARGS}[TOOL_CALLS]get_time[ARGS]{{}}", "Hi", None, TWO),
    ("mistral", "", f"[THINK]a [TOOL_CALLS]x[ARGS]{{}}[/THINK][TOOL_CALLS]get_weather [ARGS] {ARGS}",
     None, "a [TOOL_CALLS]x[ARGS]{}", ONE),
    ("mistral", "", f"[TOOL_CALLS][{CALL}]", None, None, ONE),
    ("mistral", "", f"[TOOL_CALLS]get_weather[CALL_ID]123456789[ARGS]{ARGS}", None, None, ONE),
    ("mistral_nemo", "", f'[TOOL_CALLS] [{{"arguments": {ARGS}, "name": "get_weather"}} ] end', "end", None, ONE),
    ("mistral_nemo", "", f"[TOOL_CALLS]{CALL}", None, None, ONE),
    ("mistral_nemo", "", f"[TOOL_CALLS]get_weather[ARGS]{ARGS}", None, None, ONE),
    ("granite_3", "", "<think>hm</think><response>Hello</response>", "Hello", "hm", ()),
    ("granite_3", "", "Here is my thought process: hm Here is my response: Hello", "Hello", "hm", ()),
    ("granite_3", "", f"<tool_call>[{CALL}]", None, None, ONE),
    ("granite_3", "", f" [{CALL}]", None, None, ONE),
    ("granite_3", "", f"<|tool_call|> {CALL}", None, None, ONE),
    ("granite_3", "", " [1, 2] so", " [1, 2] so", None, ()),
    ("nemotron_nano", "<think>\n", f"hm\n</think>\n\n<TOOLCALL>[{CALL}]</TOOLCALL>", None, "hm", ONE),
    ("nemotron_nano", "", "<TOOLCALL>[]</TOOLCALL>ok", "ok", None, ()),
    ("apriel", "Here are my reasoning steps:\n", "a\n[BEGIN FINAL RESPONSE]\nb\n[END FINAL RESPONSE]", "b", "a", ()),
    ("apriel", "Here are my reasoning steps:\n", f"a\n<tool_calls>[{CALL}]</tool_calls>", None, "a", ONE),
    ("apriel", "", f'<thinking>\na\n</thinking>\nb<tool_calls>[{CALL[:-1]}, "id": "x"}}]', "b", "a", ONE),
    ("minimax_m1", "", f'<tool_calls>\n{CALL}\n{{"name": "get_time"}}\n</tool_calls>', None, None, TWO),
    ("hunyuan", "", f"<think>a</think>\n<answer>b</answer><tool_calls>[{CALL}]</tool_calls>", "b", "a", ONE),
    ("command_r7b", "", "<|START_THINKING|>a<|END_THINKING|><|START_TEXT|>b<|END_TEXT|>", "b", "a", ()),
    ("command_r7b", "<|START_THINKING|>", f"a<|START_ACTION|>[{CALL}]<|END_ACTION|>", None, "a", ONE),
    ("functionary_31", "", f"<function=get_weather> {ARGS} </function> ok", "ok", None, ONE),
    ("functionary_32", ">>>", f"all\nHello\nyou>>>get_weather\n{ARGS}", "Hello\nyou", None, ONE),
    ("functionary_32", "", f">>>get_weather\n{ARGS}", None, None, ONE),
    ("functionary_32", "", "Hello\n3 apples", "Hello\n3 apples", None, ()),
    ("apertus", "", f'<|inner_prefix|>a<|inner_suffix|>b<|tools_prefix|>[{{"get_weather": {ARGS}}}]', "b", "a", ONE),
    ("phi_4_mini", "", f"Sure. functools[{CALL}] functools[x] functools", "Sure. functools[x] functools", None, ONE),
    ("phi_4_mini", "", f"<|tool_call|>{CALL}<|/tool_call|>", None, None, ONE),
    ("llama_3", "", f'{CALL.replace("arguments", "parameters")}; {{"name": "get_time", "parameters": {{}}}}.',
     ".", None, TWO),
    ("llama_3", "", f"Here: {CALL}", "Here:", None, ONE),
    ("llama_3", "", f'<|python_tag|>{{"type": "function", "name": "get_weather", "parameters": {ARGS}}}',
     None, None, ONE),
    ("llama_3", "", f'{{"type": "function", "function": {CALL}}}', None, None, ONE),
    ("llama_3", "", f'{{"parameters": {ARGS}, "name": "get_weather"}}', None, None, ONE),
    ("llama_3", "", '{"name": "no_such", "parameters": {}}', None, None, (("no_such", "{}"),)),
    ("llama_3", "", 'So {"name": "no_such", "parameters": {}}', 'So {"name": "no_such", "parameters": {}}', None, ()),
    ("llama_3", "", '{"name": "Bob", "age": 5} is {a}', '{"name": "Bob", "age": 5} is {a}', None, ()),
    ("llama_3", "", '{"name": "get_weather"}', '{"name": "get_weather"}', None, ()),
    ("llama_3", "", '{"name": "get_weather", "parameters": 3}', '{"name": "get_weather", "parameters": 3}', None, ()),
    ("llama_3", "", "\n {", "\n {", None, ()),
    ("json", "", f"[{CALL}]", None, None, ONE),
    ("json", "", f"```json\n{CALL}\n```", None, None, ONE),
    ("json", "", "[1, 2]", "[1, 2]", None, ()),
]  # fmt: skip


@each_of(("name", "tail", "text", "content", "reasoning", "calls"), SLOPPY)
def test_what_models_write_instead_is_read_too(
    name: str, tail: str, text: str, content: str | None, reasoning: str | None, calls: tuple[tuple[str, str], ...]
) -> None:
    message = parse(name, text, TOOLS, tail, new_id=Numbered())
    assert (message.content or "").strip() == (content or "").strip()
    assert (message.reasoning_content or "").strip() == (reasoning or "").strip()
    assert tuple((call.name, call.arguments) for call in message.tool_calls) == calls
    odd = text.count("{") != text.count("}") and calls
    assert [problem.kind for problem in message.diagnostics] == ["repaired"] * bool(odd)
    assert stream(name, text, TOOLS, tail, new_id=Numbered()) == message


@each_of(("name", "text", "content", "arguments", "kind"), [
        ("mistral_nemo", '[TOOL_CALLS][{"name": "f", "arguments": {"city": "Par', None, '{"city": "Par', "truncated"),
        ("llama_3", '{"name": "f", "parameters": {"city": "Pa', None, '{"city": "Pa', "truncated"),
        ("kimi_k2", KIMI[:-2], None, '{"city": "Paris', "truncated"),
        ("granite_3", '<|tool_call|>[{"name": "f", "arguments": {"a": nope}}] x',
         '<|tool_call|>[{"name": "f", "arguments": {"a": nope}}] x', '{"a": ', "malformed"),
        ("llama_3", '{"name": "f", "parameters": {"a": nope}} x',
         '{"name": "f", "parameters": {"a": nope}} x', '{"a": ', "malformed"),
        ("kimi_k2", "<|tool_calls_section_begin|>none", "<|tool_calls_section_begin|>none", None, "malformed"),
        ("apertus", '<|tools_prefix|>[{"f" {}}]', '<|tools_prefix|>[{"f" {}}]', None, "malformed"),
        ("kimi_k2", KIMI.replace("functions.get_weather:0", " "), KIMI.replace("functions.get_weather:0", " "), None,
         "malformed"),
        ("apertus", "<|tools_prefix|>[3]", "<|tools_prefix|>[3]", None, "malformed"),
    ])  # fmt: skip
def test_a_call_that_breaks_is_reported_once_and_loses_no_text(
    name: str, text: str, content: str | None, arguments: str | None, kind: str
) -> None:
    message = parse(name, text, ())
    assert [problem.kind for problem in message.diagnostics] == [kind]
    assert message.content == content
    assert [call.arguments for call in message.tool_calls] == ([arguments] if arguments else [])
    assert stream(name, text, (), new_id=Numbered()).content == content


@pytest.mark.parametrize(
    ("name", "text", "ids"),
    [
        ("mistral_nemo", f'[TOOL_CALLS][{CALL[:-1]}, "id": "abcdefghi"}}]', ["abcdefghi"]),
        ("mistral_nemo", f'[TOOL_CALLS][{CALL[:-1]}, "id": 7}}, {CALL}]', ["call_0", "call_1"]),
        ("command_r7b", f'<|START_ACTION|>[{CALL[:-1]}, "tool_call_id": "0"}}]', ["0"]),
        ("command_r7b", f'<|START_ACTION|>[{{"tool_call_id": "0", {CALL[1:]}]', ["0"]),
        ("mistral_small", f"[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{ARGS}", ["abcdefghi"]),
        ("kimi_k2", KIMI + KIMI, ["functions.get_weather:0", "call_0"]),
        ("apriel", f'<tool_calls>[{CALL[:-1]}, "id": "mine"}}]', ["call_0"]),
    ],
)  # fmt: skip
def test_the_model_s_own_ids_are_kept_and_no_two_calls_share_one(name: str, text: str, ids: list[str]) -> None:
    fmt = format_named(name)
    assert [call.id for call in started(run(PLAIN.spell(text), fmt=fmt))] == ids
    assert [call.id for call in closed(run(PLAIN.spell(text), fmt=fmt))] == ids


TEMPLATES = {
    "apertus": "{{ '<|tools_prefix|>[' }}{{ '<|tools_suffix|>' }}",
    "apriel": "give it as [BEGIN FINAL RESPONSE] ... {{- '\\n<tool_calls>[' -}}",
    "command_r7b": '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": {{ name }}, "parameters": {{ args }}}]',
    "deepseek_v3": "{{'<｜tool▁call▁begin｜>' + type + '<｜tool▁sep｜>' + name + '\\n' + '```json' + '\\n'}}",
    "deepseek_v31": "{{'<｜tool▁call▁begin｜>'+ name + '<｜tool▁sep｜>' + args + '<｜tool▁call▁end｜>'}}",
    "functionary_31": '<|start_header_id|> "parameters": <function=example>{}</function>',
    "functionary_32": "<|start_header_id|> {{ '>>>all\\n' + content }} \"parameters\": ",
    "granite_3": "<|start_of_role|>assistant {{ '<|tool_call|>' + calls }}",
    "hermes": '<tool_call>\\n{\\"name\\": \\"\' \\"arguments\\": ',
    "hunyuan": "<tool_calls>[ <answer>",
    "jamba": "{{ '<tool_calls>[\\n' }}",
    "kimi_k2": "<|tool_calls_section_begin|><|tool_call_begin|>",
    "llama_3": "<|start_header_id|>assistant {{- '{\"name\": \"' + name + '\", ' }}{{- '\"parameters\": ' }}",
    "minimax_m1": "<beginning_of_sentence>ai {{ '<tool_calls>\\n' }}",
    "mistral": "[TOOL_CALLS] name [ARGS] args",
    "mistral_nemo": '[TOOL_CALLS][{"name": ',
    "mistral_small": "[TOOL_CALLS] name [CALL_ID] id [ARGS]",
    "nemotron_nano": "{{- '<TOOLCALL>[' -}} <|start_header_id|> \"parameters\": ",
    "phi_4_mini": "<|tool|>{{ tools }}<|/tool|>",
    "command_r_plus": "Action:```json [{'\"tool_name\": ' + name}]```",
    "ernie45": "{{ '<tool_call>' + call + '</tool_call>' }}{{ '<response>' + content + '</response>' }} \"arguments\"",
    "gigachat3": "{{ 'function call' + '<|role_sep|>' }}",
    "gigachat31": "{{ '<|function_call|>' + call }} `function call` {{ '<|role_sep|>' }}",
    "granite_20b": "<|function_call_library|>{{ '<function_call> ' + call }}",
    "internlm2": "{{ '<|action_start|><|plugin|>' + call }}",
    "json": '[{"name": "tool_call_name", "arguments": {"arg1": "value1"}}]',
    "inkling": "{{ '<|message_model|>' + name + '<|content_invoke_tool_json|>' }}",
    "plamo3": "{{ '<|plamo:begin_tool_requests:plamo|>' }}",
    "miro_thinker": "<use_mcp_tool> {{ '<tool_call>\\n' }} \"arguments\"",
    "nemotron_mini": "<extra_id_1>User {{ '<tool> ' + tool }}",
    "longcat": "<longcat_tool_call>{{ call }}</longcat_tool_call>",
    "solar_open": "{{ '<|tool_call:begin|>' + id }}",
}

OTHER_TEMPLATES = {
    "hunyuan": '<tool_calls>[{"name": "func_name1", "arguments": {}}]</tool_calls>',
    "llama_3": "<|header_start|>{{ '\"parameters\": ' }}",
    "phi_4_mini": "functools[{{ call }}]",
}


@pytest.mark.parametrize("name", OTHER_TEMPLATES)
def test_a_template_that_others_wrote_for_a_family_names_it_too(name: str) -> None:
    assert format_for_template(OTHER_TEMPLATES[name]) == name


@each_of("name", TEMPLATES)
def test_a_familys_template_names_it(name: str) -> None:
    assert format_for_template(TEMPLATES[name]) == name


def test_every_family_but_those_without_a_template_is_known_by_one() -> None:
    assert {family.format for family in JSON_FAMILIES} - set(TEMPLATES) == {"generic"}


def reads(node: Any, text: str) -> tuple[bool, str]:
    """Say whether a node reads a text, and what it leaves."""
    body = Seq(node, "!")
    events = run(PLAIN.spell(text), fmt=format_of(body))
    left = "".join(event.text for event in events if hasattr(event, "text"))
    return not left, left


def format_of(body: Any) -> Any:
    return replace(format_named("generic"), body=body)


def test_sloppy_nodes_read_more_than_they_write() -> None:
    assert reads(Seq(OptionalMarker("</x>")), " </x>!") == (True, "")
    assert reads(Seq(OptionalMarker("</x>")), " !") == (True, "")
    assert reads(Seq(OptionalMarker("</x>")), " </y") == (False, "</y")
    assert reads(Array(Lit("a")), "[ a , a\na ]!") == (True, "")
    assert reads(Array(Lit("a")), "a,a!") == (True, "")
    assert reads(Array(Lit("a")), "[ ]!") == (True, "")
    assert reads(Array(Lit("a")), "[b]!") == (False, "b]!")
    assert reads(Array(Lit("a")), "[a!") == (False, "!")
    assert reads(Series(Lit("a"), "; "), "a;;a !") == (True, "")
    assert reads(unwritten(Lit("a")), "!") == (True, "")


def test_sloppy_nodes_know_how_they_begin_and_what_they_are_made_of() -> None:
    spelling = run_spelling()
    free = LeadingRegion(Bare("{", Lit("{")))
    assert OptionalMarker("x").nullable
    assert free.nullable
    assert free.first(spelling) is None
    assert free.children() == (free.region,)
    assert Series(Lit("a")).first(spelling) == ("a",)
    assert Series(Lit("a")).children() == Array(Lit("a")).children() == (Lit("a"),)
    assert Array(Lit("a")).first(spelling) == ("[", "a")
    assert NumberedName("x").first(spelling) is None
    assert QuotedId().first(spelling) == Json().first(spelling)
    assert Variants(Lit("a"), Lit("b"), writes=Lit("b")).first(spelling) == ("a", "b")


def run_spelling() -> Spelling:
    return Spelling({})


def test_a_bare_object_is_forced_without_its_optional_keys() -> None:
    grammar = Gbnf(call_grammar(format_named("llama_3"), [WEATHER], choice="required"))
    assert grammar.takes(f'{{"name": "get_weather", "parameters": {ARGS}}}')
    assert not grammar.takes(f'{{"type": "function", "name": "get_weather", "parameters": {ARGS}}}')


def test_a_bare_region_that_grows_beyond_its_bound_is_content(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.toolcalls.parser.MAX_REGION", 100)
    text = '{"parameters": {"a": "' + "x" * 200 + '"}, "name": "f"}'
    events = run(PLAIN.spell(text), fmt=format_named("llama_3"))
    assert "".join(event.text for event in events if hasattr(event, "text")) == text
    assert [event.kind for event in events if isinstance(event, Diagnostic)] == ["malformed"]
