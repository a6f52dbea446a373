"""Families whose calls are tags, Python or another syntax: what templates render, and what models write instead."""

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.toolcalls.formats.registry import format_for_template, format_named
from gateway.toolcalls.parser import parse, parser_for, stream
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallArguments
from tests.cases import each_of
from tests.gateway.toolcalls.fakes import PLAIN, TIME, WEATHER, Numbered

RENDERED: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "vectors" / "tagged.json").read_text())
IDS = [f"{case['template']}-{case['format']}-{case['calls']}" for case in RENDERED]
WANTED = [("get_weather", {"city": "Paris", "days": 3}), ("get_time", {"tz": "CET"})]
TYPED = ToolSpec(
    "typed",
    "",
    {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "count": {"type": "integer"},
            "on": {"type": "boolean"},
            "list": {"type": "array"},
            "map": {"$ref": "#/$defs/Map"},
            "maybe": {"type": ["string", "null"]},
            "either": {"anyOf": [{"type": "string"}, {"type": "object"}]},
            "unit": {"enum": ["C", "F"]},
            "any": {},
        },
        "$defs": {"Map": {"type": "object"}},
    },
)
ALL = (WEATHER, TIME, TYPED)


def told(name: str, text: str, prompt_tail: str = "") -> tuple[str, str, list[tuple[str, str]], list[str]]:
    """Give content and reasoning, stripped, the calls, and what went wrong; the same for pieces of one to five."""
    message = parse(name, text, ALL, prompt_tail, new_id=Numbered())
    for size in (1, 2, 5):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert stream(name, pieces, ALL, prompt_tail, new_id=Numbered()) == message
    calls = [(call.name, call.arguments) for call in message.tool_calls]
    kinds = [problem.kind for problem in message.diagnostics]
    return (message.content or "").strip(), (message.reasoning_content or "").strip(), calls, list(kinds)


def typed(value: str, key: str) -> Any:
    """Read one value of the tool `typed`, as Qwen3-Coder writes it."""
    text = f"<tool_call>\n<function=typed>\n<parameter={key}>\n{value}\n</parameter>\n</function>\n</tool_call>"
    (call,) = told("qwen3_coder", text)[2]
    return json.loads(call[1])[key]


@each_of("case", RENDERED)
def test_what_a_template_renders_is_read_back(case: dict[str, Any]) -> None:
    content, reasoning, calls, problems = told(case["format"], case["text"], case["prompt_tail"])
    assert [(name, json.loads(given)) for name, given in calls] == WANTED[: case["calls"]]
    assert (content, reasoning, problems) == ("", "", [])


@each_of("case", RENDERED)
def test_content_before_what_a_template_renders_is_content(case: dict[str, Any]) -> None:
    if case["format"] == "harmony":
        text = f"<|channel|>final<|message|>Let me see, 東京 <b>.<|end|><|start|>assistant{case['text']}"
    else:
        closed = case["text"].strip().removeprefix("<think></think>").removeprefix("</think>").strip()
        closed = closed.removeprefix("<|close|>think<|sep|>")
        text = f"Let me see, 東京 <b>.\n{closed}"
    content, reasoning, calls, problems = told(case["format"], text)
    assert [(name, json.loads(given)) for name, given in calls] == WANTED[: case["calls"]]
    assert (content, reasoning, problems) == ("Let me see, 東京 <b>.", "", [])


@each_of(
    ("value", "key", "wanted"),
    [
        ("42", "text", "42"),
        ("a\n", "text", "a\n"),
        ('say "x" \\ é', "text", 'say "x" \\ é'),
        ("x</parameter>y", "text", "x</parameter>y"),
        ("<function=f>\n</function>", "text", "<function=f>\n</function>"),
        ("42", "count", 42),
        (" 42 ", "count", 42),
        ("many", "count", "many"),
        ("True", "on", True),
        ("FALSE", "on", False),
        ("[{'a': None, \"b</parameter>\": (1, 2.50)},]", "list", [{"a": None, "b</parameter>": [1, 2.5]}]),
        ('{"a": {"b": []}}', "map", {"a": {"b": []}}),
        ("null", "maybe", None),
        ("nil", "maybe", "nil"),
        ("12", "maybe", "12"),
        ('{"a": 1}', "either", {"a": 1}),
        ('{"a": 1', "either", '{"a": 1'),
        ("[1]", "either", "[1]"),
        ("C", "unit", "C"),
        ("3", "any", 3),
        ("3 apples", "any", "3 apples"),
        ("07", "any", "07"),
        ("12", "no such key", "12"),
        ("", "text", ""),
    ],
)
def test_a_raw_value_has_the_type_of_its_schema(value: str, key: str, wanted: object) -> None:
    assert typed(value, key) == wanted


@each_of(
    ("value", "key", "so_far"),
    [
        ("a b", "text", '"a b'),
        ("12", "text", '"12'),
        ("hello", "maybe", '"hello'),
        ("nil", "maybe", ""),
        ("hello", "either", '"hello'),
        ('{"a": [1', "either", ""),
        ("{'a': [1", "map", '{"a": ['),
        ("[True, ", "list", "[true"),
        ("12", "count", ""),
        ("tr", "on", ""),
        ("hello", "no such key", '"hello'),
    ],
)
def test_a_raw_value_is_told_as_it_arrives_where_nothing_that_follows_can_change_its_type(
    value: str, key: str, so_far: str
) -> None:
    text = f"<tool_call>\n<function=typed>\n<parameter={key}>\n{value}"
    parser = parser_for(format_named("qwen3_coder"), PLAIN, ALL, new_id=Numbered())
    arguments = "".join(event.fragment for event in parser.feed(PLAIN.spell(text)) if isinstance(event, CallArguments))

    assert arguments == f'{{"{key}": {so_far}'


QWEN = "<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>"
PARIS = [("get_weather", '{"city": "Paris"}')]
DSML = '<｜DSML｜invoke name="get_weather">\n<｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>\n'
INVOKE = "<parameter name='city'>Paris</parameter></invoke>"
FINAL = "<|start|>assistant<|channel|>final<|message|>"
THOUGHT = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant"
GLM = "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>"
MINIMAX = f"<minimax:tool_call><invoke name=get_weather>{INVOKE}</minimax:tool_call>"
GEMMA = '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>'
NO_ARGUMENTS = '<｜DSML｜invoke name="get_time">\n</｜DSML｜invoke>'
MESSAGE = '<|constrain|>json<|message|>{"city": "Paris"}'


@each_of(
    ("name", "text"),
    [
        ("qwen3_coder", f"{QWEN}\n</tool_call>"),
        ("qwen3_coder", QWEN),
        ("qwen3_coder", f"<tool_call>{QWEN}</tool_call>"),
        ("qwen3_coder", QWEN.replace("\n</parameter>", "\n</parameter>\n</parameter>")),
        ("qwen3_coder", "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</function>\n</tool_call>"),
        ("qwen3_coder", "<tool_call><function='get_weather'><parameter=\"city\">Paris</parameter></tool_call>"),
        ("seed_oss", QWEN),
        ("mimo", f"<tool_call>{QWEN}</tool_call>"),
        ("minimax_m2", f"<minimax:tool_call><invoke name=get_weather>{INVOKE}</minimax:tool_call>"),
        ("minimax_m2", f'<minimax:tool_call><invoke name="get_weather">{INVOKE}</minimax:tool_call>'),
        ("glm45", "<tool_call>\nget_weather\n<arg_key> city </arg_key> <arg_value>Paris</arg_value></tool_call>"),
        ("glm47", "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>"),
        ("deepseek_v32", f"<｜DSML｜tool_calls>\n{DSML}</｜DSML｜invoke>\n</｜DSML｜tool_calls>"),
        ("deepseek_v4", f"<｜DSML｜ calls>{DSML}</｜DSML｜invoke></｜DSML｜ calls>"),
        ("deepseek_v4", f"<｜DSML｜toolcalls>{DSML}</｜DSML｜tool_calls>"),
        ("deepseek_v4", f"{DSML}</｜DSML｜invoke>"),
        ("deepseek_v4", f"{DSML}</｜DSML｜invoke>".replace(' string="true"', "")),
        ("pythonic", "[get_weather( city = 'Paris' , )]"),
        ("pythonic", "<|python_start|>[get_weather(city='Par\\x69s')]"),
        ("lfm2", '[get_weather(city="Paris")]'),
        ("lfm2", '<|tool_call_start|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]<|tool_call_end|>'),
        ("olmo_3", "<function_calls>\nget_weather(city='''Paris''')\n</function_calls>"),
        ("gemma4", '<|tool_call>call:get_weather{"city":"Paris"}<tool_call|><|tool_response>'),
        ("gemma4", "<|tool_call>call:get_weather{city:Paris}<tool_call|><turn|>"),
        ("harmony", f"<|channel|>commentary to=functions.get_weather {MESSAGE}<|call|>"),
        ("harmony", f" to=functions.get_weather<|channel|>commentary {MESSAGE}"),
        ("harmony", f"<|start|>assistant<|channel|>analysis to=functions.get_weather {MESSAGE}<|end|>"),
        ("harmony", f"<|channel|>commentary to=get_weather<|channel|>commentary? {MESSAGE}<|call|>"),
        ("harmony", '<|channel|>commentary to=get_weather<|message|> <|message|>{"city": "Paris"}<|call|>'),
    ],
)
def test_sloppy_calls_are_calls(name: str, text: str) -> None:
    content, _, calls, problems = told(name, text)
    assert [(called, json.loads(given)) for called, given in calls] == [("get_weather", {"city": "Paris"})]
    assert (content, problems) == ("", [])


@each_of(
    ("name", "text"),
    [
        ("qwen3_coder", "<tool_call>\n<function=get_time>\n</function>\n</tool_call>"),
        ("glm45", "<tool_call>get_time\n</tool_call>"),
        ("glm47", "<tool_call>get_time</tool_call>"),
        ("minimax_m2", '<minimax:tool_call>\n<invoke name="get_time">\n</invoke>\n</minimax:tool_call>'),
        (
            "deepseek_v4",
            f"<｜DSML｜tool_calls>\n{NO_ARGUMENTS}\n</｜DSML｜tool_calls>",
        ),
        ("pythonic", "[get_time()]"),
        ("olmo_3", "<function_calls>get_time()</function_calls>"),
        ("gemma4", "<|tool_call>call:get_time{}<tool_call|>"),
        ("harmony", "<|channel|>commentary to=functions.get_time<|message|><|call|>"),
        ("harmony", "<|channel|>commentary to=functions.get_time<|message|><|message|> <|call|>"),
    ],
)
def test_a_call_without_arguments_says_an_empty_object(name: str, text: str) -> None:
    assert told(name, text) == ("", "", [("get_time", "{}")], [])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("qwen3_coder", "write <function=f> to call"),
        ("qwen3_coder", "a <parameter=x> b </function>"),
        ("pythonic", "[a link](http://x) and [f(x)] and [1, 2]"),
        ("lfm2", "see [get_weather](http://x), [docs] and [unknown(x=1)]"),
        ("deepseek_v4", "the ｜DSML｜ tag <｜DSML｜invoke name=x"),
        ("gemma4", "call:f{a:1}"),
        ("harmony", "plain to=functions.f text"),
    ],
)
def test_prose_that_looks_like_a_call_is_content(name: str, text: str) -> None:
    assert told(name, text) == (text, "", [], [])


@each_of(
    ("name", "text"),
    [
        ("qwen3_coder", "<tool_call>\nhello\n</tool_call>"),
        ("qwen3_coder", "<tool_call>\n<function=>\n</function>\n</tool_call>"),
        ("glm45", "<tool_call>is\na tag</tool_call>"),
        ("minimax_m2", "<minimax:tool_call>hello</minimax:tool_call>"),
        ("deepseek_v4", "<｜DSML｜tool_calls>hello</｜DSML｜tool_calls>"),
        ("olmo_3", "<function_calls>f(x)</function_calls>"),
        ("lfm2", "<|tool_call_start|>f<|tool_call_end|>"),
        ("gemma4", "<|tool_call>f<tool_call|>"),
    ],
)
def test_a_region_that_is_no_call_is_content_and_reported(name: str, text: str) -> None:
    content, _, calls, problems = told(name, f"{text} so")
    assert content.split() == f"{text} so".split()
    assert (calls, problems) == ([], ["malformed"])


@each_of(("name", "text", "prompt_tail"), [
        ("qwen3_coder", f"hm\n<tool_call>\n{QWEN}\n</tool_call>", "<|im_start|>assistant\n<think>\n"),
        ("qwen3_coder", f"<think>\nhm\n</think>\n\n<tool_call>\n{QWEN}\n</tool_call>", ""),
        ("qwen3_coder", f"<think>hm</think><tool_call>\n{QWEN}\n</tool_call>", "<think>\n"),
        ("seed_oss", f"<seed:think>hm</seed:think>\n{QWEN}", ""),
        ("glm45", f"\n<think>hm</think>\n{GLM}", ""),
        ("deepseek_v4", f"hm\n\n<｜DSML｜tool_calls>{DSML}</｜DSML｜invoke></｜DSML｜tool_calls>", "<think>"),
        ("minimax_m2", f"hm\n</think>\n\n{MINIMAX}", "<think>\n"),
        ("gemma4", f"<|channel>thought\nhm\n<channel|>{GEMMA}", ""),
        ("harmony", f"{THOUGHT} to=functions.get_weather<|channel|>commentary {MESSAGE}", ""),
        ("harmony", f"hm<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather {MESSAGE}<|call|>",
         "<|start|>assistant<|channel|>analysis<|message|>"),
        ("olmo_3", "<think>hm</think><function_calls>get_weather(city='Paris')</function_calls>", ""),
    ])  # fmt: skip
def test_reasoning_is_told_apart_however_it_was_opened_and_closed(name: str, text: str, prompt_tail: str) -> None:
    content, reasoning, calls, problems = told(name, text, prompt_tail)
    assert (content, reasoning, problems) == ("", "hm", [])
    assert [(called, json.loads(given)) for called, given in calls] == [("get_weather", {"city": "Paris"})]


@each_of(
    ("name", "text", "given"),
    [
        ("qwen3_coder", "<tool_call>\n<function=get_weather>\n", ""),
        ("qwen3_coder", "<tool_call>\n<function=get_weather>\n<parameter=city>\nPar\n</para", '{"city": "Par'),
        ("qwen3_coder", "<tool_call>\n<function=get_weather>\n<parameter=days>\n3", '{"days": '),
        ("glm45", "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Par", '{"city": "Par'),
        ("deepseek_v4", "<｜DSML｜tool_calls>\n" + DSML, '{"city": "Paris"'),
        ("pythonic", "[get_weather(city='Par", '{"city": "Par'),
        ("gemma4", '<|tool_call>call:get_weather{city:<|"|>Par', '{"city":"Par'),
        ("harmony", "<|channel|>commentary to=functions.get_weather<|message|>", ""),
    ],
)
def test_a_call_that_is_cut_off_is_reported_and_kept_as_far_as_it_came(name: str, text: str, given: str) -> None:
    assert told(name, text) == ("", "", [("get_weather", given)], ["truncated"])


def test_text_after_calls_is_content() -> None:
    assert told("qwen3_coder", f"<tool_call>\n{QWEN}\n</tool_call>\nDone.")[0] == "Done."
    assert told("gemma4", "<|tool_call>call:f{}<tool_call|>Done.")[0] == "Done."
    assert told("pythonic", "[get_time()] Done.")[0] == "Done."


def test_headers_of_harmony_are_read_by_what_they_mention() -> None:
    start = "<|start|>assistant"
    text = (
        f"<|channel|><|channel|>analysis<|message|>a<|end|>{start}<|channel|>commentary<|message|>b<|end|>"
        f"{start}<|channel|>analysis to=browser.search code<|message|>c<|call|>"
        f"{start} to=user<|channel|>final<|message|>d<|return|>"
    )
    assert told("harmony", text) == ("b\nd", "ac", [], [])
    assert told("harmony", "Hello", FINAL)[0] == "Hello"
    assert told("harmony", "final<|message|>Hello", "<|start|>assistant<|channel|>")[0] == "Hello"
    assert told("harmony", "<|channel|>comm") == ("", "", [], [])
    assert told("harmony", "<|channel|>commentary to=functions.f") == ("", "", [], ["truncated"])
    assert told("harmony", f"<|channel|>{'x' * 300}<|message|>y")[0] == f"{'x' * 300}y"


def test_a_message_to_a_tool_that_nobody_offered_is_a_call_where_it_brings_nothing() -> None:
    head = "<|channel|>commentary to=python <|message|>"
    assert told("harmony", f"{head} <|end|>") == ("", "", [("python", "{}")], [])
    assert told("harmony", f"{head} import os<|end|>") == ("", "", [], ["malformed"])


def test_a_value_that_breaks_off_is_no_argument_of_its_call() -> None:
    text = '<tool_call>typed\n<arg_key>map</arg_key>\n<arg_value>{"a" 1}</arg_value>\n</tool_call>'
    assert told("glm45", text)[2:] == ([("typed", '{"map": {"a" ')], ["malformed"])
    opened = (
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="typed">\n<｜DSML｜parameter name="arguments" string="false">'
    )
    assert told("deepseek_v32", f'{opened}{{"text": "x"}}')[2:] == ([("typed", "")], ["truncated"])


def test_whitespace_behind_a_call_amid_reasoning_parts_the_reasoning_where_that_goes_on() -> None:
    call = "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
    section = f"<|tool_calls_section_begin|>{call}<|tool_calls_section_end|>"
    message = parse("kimi_k2", f"<think>first{section}\n\nsecond</think>said", ())
    assert message.reasoning_content == "first\n\nsecond"
    assert message.content == "said"
    assert [call.name for call in message.tool_calls] == ["f"]


@each_of(
    ("template", "name"),
    [
        ("<tool_call>\n<function={{ name }}>\n<parameter={{ key }}>", "qwen3_coder"),
        ("You are MiMo. <tool_call>\n<function={{ name }}>\n<parameter={{ key }}>", "mimo"),
        ("<seed:tool_call>\n<function={{ name }}>\n<parameter={{ key }}>", "seed_oss"),
        ('<minimax:tool_call>\n<invoke name=\\"{{ name }}\\">', "minimax_m2"),
        ("<tool_call>{{ name }}\n<arg_key>{{ k }}</arg_key>\n<arg_value>{{ v }}</arg_value>", "glm45"),
        ("<tool_call>{{ name }}<arg_key>{{ k }}</arg_key><arg_value>{{ v }}</arg_value>", "glm47"),
        ("<｜DSML｜function_calls>", "deepseek_v32"),
        ("<｜DSML｜tool_calls>", "deepseek_v4"),
        ("put it in the format of [func_name1(params_name1=params_value1)]", "pythonic"),
        ("List of tools: <|tool_list_start|>[", "lfm2"),
        ("write them inside <function_calls></function_calls>", "olmo_3"),
        ("<|tool_call>call:{{ name }}", "gemma4"),
        ('<|open|>call tool=\\"{{ name }}\\"<|sep|><|close|>call<|sep|>', "kimi_k3"),
        ("<|start|>assistant<|channel|>analysis<|message|>", "harmony"),
        ("<dots_function_call>\n<invoke name=", "dots"),
        ("<|start|>assistant to=self<|message|> <atem:function_calls>", "muse_glimmer"),
        ("<ifm|tool_calls>\n<ifm|tool_call>{{ name }}<ifm|arg_key>", "k2_horizon"),
    ],
)
def test_a_template_names_its_family(template: str, name: str) -> None:
    assert format_for_template(template) == name


@pytest.mark.parametrize(
    ("name", "text", "given"),
    [
        ("pythonic", "[get_weather('Paris', 3)]", {"city": "Paris", "days": 3}),
        ("pythonic", "[get_weather( 'Paris', days=3)]", {"city": "Paris", "days": 3}),
        ("olmo_3", "<function_calls>get_weather(None)</function_calls>", {"city": None}),
        (
            "lfm2",
            "<|tool_call_start|>[get_weather('Pa'ris', {1, 2})]<|tool_call_end|>",
            {"city": "Pa'ris", "days": [1, 2]},
        ),
    ],
)
def test_an_argument_without_a_keyword_is_the_one_at_its_place(name: str, text: str, given: dict[str, Any]) -> None:
    content, _, ((called, arguments),), problems = told(name, text)
    assert (content, called, json.loads(arguments), problems) == ("", "get_weather", given, [])


@pytest.mark.parametrize("text", ["[get_weather(x)]", "[get_weather(Trueish)]", "[unknown('Paris')]"])
def test_an_argument_that_has_no_place_or_is_no_value_makes_no_call(text: str) -> None:
    assert told("pythonic", text) == (text, "", [], [])


def test_more_arguments_than_a_tool_has_break_its_call() -> None:
    _, _, calls, problems = told("pythonic", "[get_weather('Paris', 3, 4)]")
    assert (calls, problems) == ([("get_weather", '{"city": "Paris", "days": 3')], ["malformed"])
