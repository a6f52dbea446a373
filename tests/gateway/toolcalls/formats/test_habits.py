"""What models of each family were seen to write beside their template's form, one statement a line.

The message is the one that other engines make of such a text, too, or, where they differ, the one that the family's
template asks for. Whitespace at the ends, and how arguments are spelled, do not matter here.
"""

import json
from typing import Any

import pytest

from gateway.toolcalls.formats.registry import format_named
from gateway.toolcalls.parser import parse, stream
from tests.cases import each_of

TOOLS = [
    {"name": "ping", "parameters": {"type": "object", "properties": {}}},
    {
        "name": "plan",
        "parameters": {
            "type": "object",
            "properties": {
                "goal": {"type": "string"},
                "steps": {"type": "integer"},
                "dry": {"type": "boolean"},
                "notes": {"anyOf": [{"type": "array"}, {"type": "null"}]},
                "limits": {"type": "dict"},
            },
        },
    },
]
GOAL = '{"goal": "tea"}'
TEA: tuple[str, dict[str, Any]] = ("plan", {"goal": "tea"})
PING: tuple[str, dict[str, Any]] = ("ping", {})
OBJECT = f'{{"name": "plan", "arguments": {GOAL}}}'
PARAMETERS = f'{{"name": "plan", "parameters": {GOAL}}}'
D = "｜DSML｜"
QWEN = "<tool_call>\n<function=plan>\n<parameter=goal>\ntea\n</parameter>\n</function>\n</tool_call>"
GLM = "<tool_call>plan\n<arg_key>goal</arg_key>\n<arg_value>tea</arg_value>\n</tool_call>"
GEMMA = '<|tool_call>call:plan{goal:<|"|>tea<|"|>}<tool_call|>'
MINIMAX = (
    '<minimax:tool_call>\n<invoke name="plan">\n<parameter name="goal">tea</parameter>\n</invoke>\n</minimax:tool_call>'
)
KIMI = f"<|tool_call_begin|>functions.plan:0<|tool_call_argument_begin|>{GOAL}<|tool_call_end|>"
INKLING = f'<|content_invoke_tool_json|>{{"name": "plan", "args": {GOAL}}}'
ATEM = '<atem:function_calls><atem:invoke name="plan"><atem:parameter name="goal">tea</atem:parameter></atem:invoke>'
HARMONY = f"<|channel|>commentary to=functions.plan <|constrain|>json<|message|>{GOAL}<|call|>"


def typed(name: str, value: str) -> str:
    return f"<tool_call>\n<function=plan>\n<parameter={name}>\n{value}\n</parameter>\n</function>\n</tool_call>"


def invoke(gap: str = "", attribute: str = "true", key: str = "goal", value: str = "tea") -> str:
    parameter = f'<{D}{gap}parameter name="{key}" string="{attribute}">{value}</{D}{gap}parameter>'
    return f'<{D}{gap}invoke name="plan">\n{parameter}\n</{D}{gap}invoke>\n'


HABITS: list[tuple[str, str, str, str, str, str, tuple[tuple[str, dict[str, Any]], ...]]] = [
    # Hermes and its relatives.
    ("hermes", "the closing marker is missing at the end", "", f"<tool_call>\n{OBJECT}", "", "", (TEA,)),
    ("hermes", "two calls share the markers", "", f"<tool_call>{OBJECT}\n{OBJECT}</tool_call>", "", "", (TEA, TEA)),
    ("hermes", "an array stands between the markers", "", f"<tool_call>[{OBJECT}]</tool_call>", "", "", (TEA,)),
    ("hermes", "a call ends open reasoning", "<think>", f"hm\n<tool_call>{OBJECT}</tool_call>", "", "hm", (TEA,)),
    ("hermes", "reasoning closes behind a call", "", f"<think>hm<tool_call>{OBJECT}</tool_call></think>so", "so", "hm",
     (TEA,)),
    ("hermes", "reasoning mentions a marker", "<think>", "use <tool_call> now?</think>no", "no", "use <tool_call> now?",
     ()),
    ("hermes", "the opening marker comes twice", "<think>\n", "<think>\nhm</think>so", "so", "hm", ()),
    ("hermes", "text around a call stays apart", "", f"One.\n<tool_call>{OBJECT}</tool_call>\nTwo.", "One.\nTwo.", "",
     (TEA,)),
    ("longcat", "markers of its own", "", f"So: <longcat_tool_call>{OBJECT}</longcat_tool_call>", "So:", "", (TEA,)),
    ("longcat", "the closing marker is missing", "", f"<longcat_tool_call>\n{OBJECT}\n", "", "", (TEA,)),
    ("ernie45", "the answer is framed", "<think>", "hm\n</think>\n\n<response>\nso\n</response>\n", "so", "hm", ()),
    ("ernie45", "a call after reasoning", "<think>", f"hm</think>\n<tool_call>\n{OBJECT}\n</tool_call>\n", "", "hm",
     (TEA,)),
    # Plain JSON.
    ("json", "a list behind text", "", f"So: [{OBJECT}, {OBJECT}]", "So:", "", (TEA, TEA)),
    ("json", "a list in a code fence", "", f"So:\n```json\n[{OBJECT}]\n```", "So:", "", (TEA,)),
    ("json", "a list in another family's markers", "", f"So: <tool_call>[{OBJECT}]</tool_call>", "So:", "", (TEA,)),
    ("json", "a list behind Mistral's marker", "", f"So: [TOOL_CALLS][{OBJECT}]", "So:", "", (TEA,)),
    ("json", "JSON in a fence that calls nothing", "", '```json\n[{"a": 1}]\n```', '```json\n[{"a": 1}]\n```', "", ()),
    ("llama_3", "a built-in tool is called as in Python", "", '<|python_tag|>plan.call(goal="tea")', "", "", (TEA,)),
    ("llama_3", "a broken object is no call", "", '{"name": "plan", "parameters": {tea}}',
     '{"name": "plan", "parameters": {tea}}', "", ()),
    ("llama_3", "objects parted by a semicolon", "", f"<|python_tag|>{PARAMETERS};{OBJECT}", "", "", (TEA, TEA)),
    ("granite_20b", "a marker before each object", "", f"Ok\n<function_call> {OBJECT}\n<function_call> {OBJECT}",
     "Ok", "",
     (TEA, TEA)),
    ("internlm2", "parameters in place of arguments", "",
     f"Ok <|action_start|><|plugin|>\n{PARAMETERS}<|action_end|>\n",
     "Ok", "", (TEA,)),
    ("gigachat3", "a message of the role of calls", "", f"Ok<|message_sep|>\n\nfunction call<|role_sep|>\n{OBJECT}",
     "Ok",
     "", (TEA,)),
    ("gigachat31", "one marker, and the end spelled out", "", f"Ok<|function_call|>{OBJECT}</s>", "Ok", "", (TEA,)),
    ("command_r_plus", "a code fence behind a word", "",
     'Action:\n```json\n[{"tool_name": "ping", "parameters": {}}]\n```',
     "", "", (PING,)),
    ("phi_4_mini", "one object in place of a list", "", f"functools{OBJECT}", "", "", (TEA,)),
    ("phi_4_mini", "a module of Python is no call", "", "import functools\n[1]", "import functools\n[1]", "", ()),
    ("phi_4_mini", "whitespace before the word", "", f" functools[{OBJECT}]", "", "", (TEA,)),
    ("solar_open", "ids stand before names", "<|think|>",
     f"hm<|end|><|tool_calls|><|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>plan<|tool_call:args|>{GOAL}<|tool_call:end|>"
     "<|calls|>", "", "hm", (TEA,)),
    # Mistral.
    ("mistral_nemo", "a space before the array, no id", "", f"So: [TOOL_CALLS] [{OBJECT}]", "So:", "", (TEA,)),
    ("mistral_nemo", "no marker before the array", "", f"So: [{OBJECT}, {OBJECT}]", "So:", "", (TEA, TEA)),
    ("mistral_nemo", "no marker at the beginning", "", f"\n [{OBJECT}]\n", "", "", (TEA,)),
    ("mistral_nemo", "one object and a closing marker", "", f"[TOOL_CALLS]{OBJECT}[/TOOL_CALLS]", "", "", (TEA,)),
    ("mistral", "brackets of prose stay prose", "", "[1] and [x](y) and [TOOL", "[1] and [x](y) and [TOOL", "", ()),
    ("mistral", "no separator behind the name", "", f"[TOOL_CALLS]plan{GOAL}", "", "", (TEA,)),
    ("mistral", "several calls back to back", "", f"[TOOL_CALLS]plan[ARGS]{GOAL}[TOOL_CALLS]ping[ARGS]{{}}", "", "",
     (TEA, PING)),
    ("mistral", "a call in thoughts is a thought", "", "[THINK]I [TOOL_CALLS]ping[ARGS]{}[/THINK]no", "no",
     "I [TOOL_CALLS]ping[ARGS]{}", ()),
    # Tags.
    ("qwen3_coder", "a call ends open reasoning", "<think>\n", f"hm\n\n{QWEN}", "", "hm", (TEA,)),
    ("qwen3_coder", "an integer is one", "", typed("steps", "3"), "", "", (("plan", {"steps": 3}),)),
    ("qwen3_coder", "no integer is a text", "", typed("steps", "few"), "", "", (("plan", {"steps": "few"}),)),
    ("qwen3_coder", "Python spells truth", "", typed("dry", "True"), "", "", (("plan", {"dry": True}),)),
    ("qwen3_coder", "a digit can be truth", "", typed("dry", "0"), "", "", (("plan", {"dry": False}),)),
    ("qwen3_coder", "nothing in capitals", "", typed("notes", "NULL"), "", "", (("plan", {"notes": None}),)),
    ("qwen3_coder", "a number in quotes stays a text", "", typed("goal", "42"), "", "", (("plan", {"goal": "42"}),)),
    ("qwen3_coder", "a type by another language's name", "", typed("limits", "{'a': 1}"), "", "",
     (("plan", {"limits": {"a": 1}}),)),
    ("glm45", "a call ends open reasoning", "<think>", f"hm{GLM}", "", "hm", (TEA,)),
    ("glm45", "a turn's end is spelled out", "<think></think>", f"{GLM}<|role_end|>", "", "", (TEA,)),
    ("glm45", "a marker ends reasoning", "<think>", "hm<tool_call>no call", "<tool_call>no call", "hm", ()),
    ("glm45", "reasoning closes behind a call", "<think>", f"hm{GLM}</think>so", "so", "hm", (TEA,)),
    ("hunyuan", "a call ends reasoning", "", f"<think>hm<tool_calls>[{OBJECT}]</tool_calls>", "", "hm", (TEA,)),
    ("glm47", "a name alone", "", "<tool_call>ping</tool_call>", "", "", (PING,)),
    ("minimax_m2", "a call ends open reasoning", "<think>\n", f"hm\n{MINIMAX}", "", "hm", (TEA,)),
    ("step3", "no word before the tag, a separator behind it", "",
     '<｜tool_calls_begin｜><｜tool_call_begin｜><steptml:invoke name="ping"></steptml:invoke><｜tool_call_end｜>'
     '<｜tool_sep｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="plan">'
     '<steptml:parameter name="goal">tea'
     "</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>", "", "", (PING, TEA)),
    ("hy_v3", "tags without their ending", "<think></think>",
     "Ok<tool_calls>\n<tool_call>plan<tool_sep>\n<arg_key>goal</arg_key>\n<arg_value>tea</arg_value>\n</tool_call>\n"
     "<tool_call>ping<tool_sep></tool_call></tool_calls>", "Ok", "", (TEA, PING)),
    # DeepSeek.
    ("deepseek_v4", "a space before the tags' names", "", f"<{D} calls>\n{invoke(' ')}</{D} calls>", "", "", (TEA,)),
    ("deepseek_v4", "no section around a call", "", f"{invoke()}</{D}tool_calls>", "", "", (TEA,)),
    ("deepseek_v4", "tags that close themselves", "",
     f'<{D}tool_calls>\n<{D}invoke name="ping"/>\n{invoke()}<{D}invoke name="ping" />\n</{D}tool_calls>', "", "",
     (PING, TEA, PING)),
    ("deepseek_v32", "one object holds the arguments", "",
     f'<{D}function_calls>\n<{D}invoke name="plan">\n{GOAL}\n</{D}invoke>\n</{D}function_calls>', "", "", (TEA,)),
    ("deepseek_v32", "an argument holds the arguments", "",
     f"<{D}function_calls>\n{invoke(key='arguments', attribute='false', value=GOAL)}</{D}function_calls>", "", "",
     (TEA,)),
    ("deepseek_v32", "an argument holds nothing", "",
     f"<{D}function_calls>\n{invoke(key='input', value='{}')}</{D}function_calls>", "", "", (("plan", {}),)),
    ("deepseek_v32", "the schema overrules the tag", "",
     f"<{D}function_calls>\n{invoke(key='steps', value='3')}{invoke(attribute='false', value='null')}"
     f"</{D}function_calls>",
     "", "", (("plan", {"steps": 3}), ("plan", {"goal": "null"}))),
    ("deepseek_v32", "a call ends open reasoning", "<think>", f"hm\n\n<{D}tool_calls>\n{invoke()}</{D}tool_calls>",
     "", "hm",
     (TEA,)),
    # Kimi: reasoning goes on behind a call.
    ("kimi_k2", "a section that is none stays reasoning", "<think>", "hm<|tool_calls_section_begin|>so", "",
     "hm<|tool_calls_section_begin|>so", ()),
    ("kimi_k2", "no section around a call", "", f"Ok{KIMI}", "Ok", "", (TEA,)),
    # Channels.
    ("gemma4", "a channel without its name", "", "<|channel>hm<channel|>so", "so", "hm", ()),
    ("gemma4", "a channel opened twice", "", "<|channel><|channel>thought\n<channel|>so", "so", "", ()),
    ("gemma4", "a channel that closes twice", "", "<|channel>thought\nhm<channel|>so<channel|>", "so", "hm", ()),
    ("gemma4", "thoughts part text from text", "", "a\n<|channel>hm<channel|>\nb", "a\n\nb", "hm", ()),
    ("gemma4", "a call without its first word", "", GEMMA.replace("call:", ":"), "", "", (TEA,)),
    ("gemma4", "a call without braces", "", f"<|tool_call>call:ping<tool_call|>{GEMMA}", "", "", (PING, TEA)),
    ("gemma4", "the prompt has opened the channel", "<|channel>thought\n", f"hm<channel|>{GEMMA}", "", "hm", (TEA,)),
    ("harmony", "code for a tool that nobody offered", "",
     "<|channel|>commentary to=python code<|message|><b>1<|call|>",
     "", "", ()),
    ("harmony", "an object for a tool without prefix", "", f"<|channel|>commentary to=plan<|message|>{GOAL}<|call|>",
     "", "",
     (TEA,)),
    ("harmony", "messages are texts of their own", "",
     "<|channel|>commentary<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>", "a\nb", "",
     ()),
    ("harmony", "a call in the analysis channel", "", HARMONY.replace("commentary", "analysis"), "", "", (TEA,)),
    # Arguments that are not an object, in any family with JSON.
    ("hermes", "no arguments are null", "", '<tool_call>{"name": "ping", "arguments": null}</tool_call>', "", "",
     (PING,)),
    ("hermes", "no arguments are an empty text", "", '<tool_call>{"name": "ping", "arguments": ""}</tool_call>', "", "",
     (PING,)),
    ("hermes", "arguments are encoded twice", "",
     f'<tool_call>{{"name": "plan", "arguments": {json.dumps(GOAL)}}}</tool_call>', "", "", (TEA,)),
    ("kimi_k2", "arguments are encoded twice", "", KIMI.replace(GOAL, json.dumps(GOAL)), "", "", (TEA,)),
    ("mistral", "no arguments are null", "", "[TOOL_CALLS]ping[ARGS]null", "", "", (PING,)),
    # Another family's form, a fence, or nothing, between the same markers.
    ("hermes", "a call in a code fence", "", f"<tool_call>\n```json\n{OBJECT}\n```\n</tool_call>", "", "", (TEA,)),
    ("hermes", "nothing between the markers", "", f"a <tool_call>\n</tool_call>{QWEN}", "a", "", (TEA,)),
    ("hermes", "a call as Qwen3-Coder writes it", "", QWEN, "", "", (TEA,)),
    ("qwen3_coder", "a call as Hermes writes it", "", f"<tool_call>\n{OBJECT}\n</tool_call>", "", "", (TEA,)),
    ("qwen3_coder", "nothing between the markers", "", "a<tool_call></tool_call>", "a", "", ()),
    ("miro_thinker", "a call as Hermes writes it", "", f"<tool_call>\n{OBJECT}\n</tool_call>", "", "", (TEA,)),
    ("k2_horizon", "a call as JSON", "",
     f"<ifm|tool_calls>\n<ifm|tool_call>{OBJECT}</ifm|tool_call>\n</ifm|tool_calls>", "", "", (TEA,)),
    ("k2_horizon", "a tag says the type", "<ifm|think_fast>",
     "hm</ifm|think_fast><ifm|tool_calls><ifm|tool_call>plan<ifm|arg_key>x</ifm|arg_key><ifm|arg_type>integer"
     "</ifm|arg_type><ifm|arg_value>7</ifm|arg_value></ifm|tool_call>", "", "hm", (("plan", {"x": 7}),)),
    ("dots", "a call as JSON", "", f"<dots_function_call>{OBJECT}</dots_function_call>", "", "", (TEA,)),
    ("inkling", "a call without a name before it, and none of the markers of ends", "<|message_model|>",
     f'<|content_thinking|>hm<|message_model|>{INKLING}', "", "hm", (TEA,)),
    ("inkling", "the prompt has begun the thinking", "<|message_model|><|content_thinking|>",
     f"hm<|end_message|><|message_model|>plan{INKLING}<|end_message|><|content_text|>so", "so", "hm", (TEA,)),
    ("inkling", "a call right behind text", "<|message_model|><|content_text|>", f"so{INKLING}", "so", "", (TEA,)),
    ("muse_glimmer", "an end before anything has begun", "", "<|eom|>so", "so", "", ()),
    ("inkling", "a name longer than any, and text without a kind", "", "x" * 300 + "<|end_message|>y",
     "x" * 300 + "y", "", ()),
    ("muse_glimmer", "text without a header", "<|start|>assistant", "so<|eot|>", "so", "", ()),
    ("muse_glimmer", "a header without a recipient", "<|start|>assistant", "<|message|>so<|eot|>", "so", "", ()),
    ("muse_glimmer", "a message to nobody who could be called", "<|start|>assistant", " to=moon<|message|>so<|eot|>",
     "so", "", ()),
    ("muse_glimmer", "a name doubled in the header", "<|start|>assistant",
     f" to=self<|message|>hm<|eom|><|start|>assistant to=plan.plan<|message|>\n{ATEM}<|eot|>", "", "hm", (TEA,)),
    ("plamo3", "arguments without a word on their form", "",
     "<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>plan"
     f"<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:msg|>{GOAL}", "", "", (TEA,)),
    # Python.
    ("lfm2", "a list outside of its markers", "", "[plan(goal='tea')]<|tool_call_end|>", "", "", (TEA,)),
    ("lfm2", "a call in thoughts is a thought", "", "<think>a <|tool_call_start|>[ping()]<|tool_call_end|></think>b",
     "b",
     "a <|tool_call_start|>[ping()]<|tool_call_end|>", ()),
    ("pythonic", "text on both sides of the markers", "", "a <|python_start|>[ping()]<|python_end|> b", "a  b", "",
     (PING,)),
    ("pythonic", "an escape that Python does not know", "", r'[plan(goal="\d")]', "", "", (("plan", {"goal": r"\d"}),)),
]  # fmt: skip


@each_of("habit", HABITS)
def test_what_models_were_seen_to_write_is_read_as_meant(
    habit: tuple[str, str, str, str, str, str, tuple[tuple[str, dict[str, Any]], ...]],
) -> None:
    name, _, tail, text, content, reasoning, calls = habit
    whole = parse(name, text, TOOLS, tail, new_id=iter(map(str, range(9))).__next__)
    assert (whole.content or "").strip() == content
    assert (whole.reasoning_content or "").strip() == reasoning
    assert [(call.name, json.loads(call.arguments)) for call in whole.tool_calls] == list(calls)
    for size in (1, 2, 7):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert stream(name, pieces, TOOLS, tail, new_id=iter(map(str, range(9))).__next__) == whole


@each_of("name", ["deepseek_v32", "deepseek_v4"])
@each_of("section", ["function_calls", "tool_calls", "toolcalls", "calls", " calls", "tool"])
def test_section_of_either_version_or_misspelled_is_markup(name: str, section: str) -> None:
    message = parse(name, f"a\n\n<{D}{section}>\n{invoke()}</{D}{section}> b", TOOLS)

    assert [(call.name, json.loads(call.arguments)) for call in message.tool_calls] == [TEA]
    assert (message.content, message.diagnostics) == ("a b", ())


def test_tag_that_a_value_opens_is_counted_once_however_the_value_arrives() -> None:
    value = "<parameter x>a</parameter>"
    text = f'<minimax:tool_call>\n<invoke name="plan">\n<parameter name="goal">{value}</parameter></parameter></invoke>'
    for size in range(1, 30):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        (call,) = stream("minimax_m2", pieces, TOOLS).tool_calls
        assert json.loads(call.arguments) == {"goal": value}


@pytest.mark.parametrize(("attribute", "value"), [("true", "5"), ("false", 5)])
def test_tag_of_deepseek_says_whether_a_value_is_a_string_where_no_schema_does(attribute: str, value: object) -> None:
    text = f"<{D}tool_calls>\n{invoke(attribute=attribute, key='other', value='5')}</{D}tool_calls>"
    (call,) = parse("deepseek_v4", text, TOOLS).tool_calls

    assert json.loads(call.arguments) == {"other": value}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("qwen3_coder", "<tool_call>\n<function=f>\n<parameter=größe>\n5\n</parameter>\n</function>\n</tool_call>"),
        ("pythonic", "[f(größe=5)]"),
        ("hermes", '<tool_call>\n{"name": "f", "größe": 5}\n</tool_call>'),
    ],
)
def test_key_of_an_argument_is_spelled_as_the_model_wrote_it(name: str, text: str) -> None:
    tool = {"name": "f", "parameters": {"type": "object", "properties": {"größe": {"type": "integer"}}}}

    assert [call.arguments for call in parse(name, text, [tool]).tool_calls] == ['{"größe": 5}']


@pytest.mark.parametrize("suffix", ["", ":opensource"])
def test_call_ends_reasoning_that_is_not_closed_in_either_spelling_of_hunyuan_3(suffix: str) -> None:
    argument = f"<arg_key{suffix}>goal</arg_key{suffix}>\n<arg_value{suffix}>tea</arg_value{suffix}>"
    call = f"<tool_call{suffix}>plan<tool_sep{suffix}>\n{argument}\n</tool_call{suffix}>"
    message = parse("hy_v3", f"<think{suffix}>hm<tool_calls{suffix}>\n{call}\n</tool_calls{suffix}>", TOOLS)

    assert message.reasoning_content == "hm"
    assert [(call.name, json.loads(call.arguments)) for call in message.tool_calls] == [TEA]


def test_bare_name_of_gemma_is_a_call_only_of_a_tool_that_there_is() -> None:
    text = '<|tool_call>{}{{goal:<|"|>tea<|"|>}}<tool_call|>'

    assert [call.name for call in parse("gemma4", text.format("plan"), TOOLS).tool_calls] == ["plan"]
    assert parse("gemma4", text.format("sum"), TOOLS).tool_calls == ()
    assert [call.name for call in parse("gemma4", text.format("call:sum"), TOOLS).tool_calls] == ["sum"]


@pytest.mark.parametrize("written", ["7", "[1]", '"tea"', '"[1]"', r'"{\"a\": \"\ud800\"}"', r'"{\"a\": 1} {}"', '"{"'])
def test_arguments_that_spell_no_object_stay_what_they_are(written: str) -> None:
    (call,) = parse("hermes", f'<tool_call>{{"name": "f", "arguments": {written}}}</tool_call>', ()).tool_calls
    assert call.arguments == written


@pytest.mark.parametrize("broken", ['"a', "nul", '"\x01"', "nope"])
def test_arguments_that_are_no_value_make_no_call(broken: str) -> None:
    for text in (f"[TOOL_CALLS]f[ARGS]{broken}", f"[TOOL_CALLS]f[ARGS]{broken} and more"):
        message = parse("mistral", text, ())
        assert [call.arguments for call in message.tool_calls] == [""]
        assert len(message.diagnostics) == 1


def test_every_habit_is_of_a_family_that_there_is() -> None:
    assert {habit[0] for habit in HABITS} == {format_named(habit[0]).name for habit in HABITS}
