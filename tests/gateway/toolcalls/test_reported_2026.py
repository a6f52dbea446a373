"""Model outputs of public bug reports of 2026: what they mean, read whole, streamed, and without loss.

Each case names its report.
"""

import json
from typing import Any

from gateway.toolcalls.formats.registry import format_named
from gateway.toolcalls.parser import join_events, parser_for, stream
from gateway.toolcalls.schema.spec import ToolSpec
from tests.cases import each_of
from tests.gateway.toolcalls.fakes import PLAIN, Numbered


def tool(name: str, **properties: object) -> ToolSpec:
    return ToolSpec(name, "", {"type": "object", "properties": properties})


STRING, INTEGER = {"type": "string"}, {"type": "integer"}
TOOLS = (
    tool("get_weather", city=STRING, days=INTEGER),
    tool("write", path=STRING, content=STRING),
    tool("bash", command=STRING, timeout=INTEGER),
    tool("set_flag", enabled={"type": "boolean"}),
    tool("ping"),
    tool("memory_get", **{"from": INTEGER}),
    tool("resize", size={"type": "array", "items": INTEGER}, lat={"type": "number"}),
    tool("grep", include=STRING, pattern=STRING),
    tool("update", items={"type": "array", "items": {"type": "object"}}),
)
OSLO, LS = ("get_weather", {"city": "Oslo"}), ("bash", {"command": "ls"})
PING: tuple[str, dict[str, Any]] = ("ping", {})
FLAG = ("set_flag", {"enabled": True})
V4 = "<｜DSML｜tool_calls>\n{}\n</｜DSML｜tool_calls>"
CITY = '<｜DSML｜parameter name="city" string="true">Oslo</｜DSML｜parameter>'
INVOKE = f'<｜DSML｜invoke name="get_weather">\n{CITY}\n</｜DSML｜invoke>'
SET = '<｜DSML｜invoke name="set_flag">\n{}\n</｜DSML｜invoke>'


def lfm2(call: str) -> str:
    return f"<|tool_call_start|>[{call}]<|tool_call_end|>"


def kimi(call_id: str, given: str) -> str:
    return f"<|tool_call_begin|>{call_id}<|tool_call_argument_begin|>{given}<|tool_call_end|>"


CASES: list[tuple[str, str, str, list[tuple[str, dict[str, Any]]], str]] = [
    ("vllm 48171: a bracket in a string", "lfm2", lfm2("""bash(command='grep -F "]" log.txt')"""),
     [("bash", {"command": 'grep -F "]" log.txt'})], ""),
    ("vllm 48171: a raw line end", "lfm2", lfm2("bash(command='cat << EOF\nx = 1\nEOF')"),
     [("bash", {"command": "cat << EOF\nx = 1\nEOF"})], ""),
    ("vllm 48171: a backslash ends the string", "lfm2", lfm2(r"write(path='a', content='pattern \\')"),
     [("write", {"path": "a", "content": "pattern \\"})], ""),
    ("vllm 48171: a negative number", "lfm2", lfm2("resize(lat=-74.0046539)"), [("resize", {"lat": -74.0046539})], ""),
    ("vllm 48171: a tuple", "lfm2", lfm2("resize(size=(800, 600))"), [("resize", {"size": [800, 600]})], ""),
    ("vllm 48171: a keyword of Python", "lfm2", lfm2("memory_get(from=1)"), [("memory_get", {"from": 1})], ""),
    ("vllm 48171: quotes of the code inside", "lfm2", lfm2("bash(command='print('hi')')"),
     [("bash", {"command": "print('hi')"})], ""),
    ("llama.cpp 26658: both kinds of quotes", "lfm2",
     lfm2("""bash(command="plot(x, 'red', label='')\\nshow()")"""),
     [("bash", {"command": "plot(x, 'red', label='')\nshow()"})], ""),
    ("llama.cpp 24071: brackets in prose", "lfm2", "items = [1, 2] and [ping] too", [],
     "items = [1, 2] and [ping] too"),
    ("vllm 30722: the last bracket is missing", "pythonic", "[update(items=[{'a': 1}, {'b': [1, 2]}])",
     [("update", {"items": [{"a": 1}, {"b": [1, 2]}]})], ""),
    ("a sibling: the parenthesis is missing", "pythonic", "[get_weather(city='Oslo']", [OSLO], ""),
    ("sglang 40236: no section", "deepseek_v4", f"Let me look.\n\n{INVOKE}", [OSLO], "Let me look."),
    ("sglang 40236: a section without an end", "deepseek_v4", f"<｜DSML｜tool_calls>\n{INVOKE}", [OSLO], ""),
    ("sglang 40236: the same in V3.2", "deepseek_v32", f"<｜DSML｜function_calls>\n{INVOKE}", [OSLO], ""),
    ("sglang 39435: a tag without its mark", "deepseek_v4",
     V4.format(SET.format('<parameter name="enabled">true</｜DSML｜parameter>')), [FLAG], ""),
    ("sglang 39435: nor has its end a mark", "deepseek_v4",
     V4.format(SET.format('<parameter name="enabled">true</parameter>')), [FLAG], ""),
    ("sglang 39435: only the end lacks it", "deepseek_v4",
     V4.format(SET.format('<｜DSML｜parameter name="enabled" string="false">true</parameter>')), [FLAG], ""),
    ("sglang 39435: no type", "deepseek_v4",
     V4.format(SET.format('<｜DSML｜parameter name="enabled">true</｜DSML｜parameter>')), [FLAG], ""),
    ("sglang 38924: all arguments in one", "deepseek_v4",
     V4.format(INVOKE.replace(CITY, CITY.replace("city", "arguments").replace("Oslo", '{"city": "Oslo"}'))),
     [OSLO], ""),
    ("llama.cpp 24658: ids with underscores, no section", "kimi_k2",
     kimi("functions_bash_2", '{"command": "ls"}') + kimi("functions_ping_3", "{}") + "<|tool_calls_section_end|>",
     [LS, PING], ""),
    ("vllm 38441: line ends in an id", "kimi_k2",
     "<|tool_calls_section_begin|>" + kimi("\nfunctions.bash:0\n", '\n{"command": "ls"}\n'), [LS], ""),
    ("llama.cpp 24807: a closing tag twice", "qwen3_coder",
     "<tool_call>\n<function=write>\n<parameter=path>\na\n</parameter>\n</parameter>\n<parameter=content>\nx\n"
     "</parameter>\n</function>\n</tool_call>", [("write", {"path": "a", "content": "x"})], ""),
    ("opencode 7486: Hermes' form of a Coder model", "qwen3_coder",
     '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>', [LS], ""),
    ("a sibling: an object in the function's tag", "qwen3_coder",
     '<tool_call>\n<function=bash>\n{"command": "ls"}\n</function>\n</tool_call>', [LS], ""),
    ("a sibling: a list in quotation marks", "qwen3_coder",
     '<tool_call>\n<function=update>\n<parameter=items>\n"[{\\"a\\": 1}]"\n</parameter>\n</function>\n</tool_call>',
     [("update", {"items": [{"a": 1}]})], ""),
    ("dynamo 245: the block's end in a value", "minimax_m2",
     '<minimax:tool_call><invoke name="get_weather"><parameter name="city">a </minimax:tool_call> b</parameter>'
     "</invoke></minimax:tool_call>", [("get_weather", {"city": "a </minimax:tool_call> b"})], ""),
    ("mlx-lm 1307: Devstral", "mistral", '[TOOL_CALLS]bash[ARGS]{"command": "ls"}', [LS], ""),
    ("mlx-lm 1374: a list", "mistral", '[TOOL_CALLS] [{"name": "bash", "arguments": {"command": "ls"}}]', [LS], ""),
    ("ollama 15315: its own quote behind another", "gemma4",
     """<|tool_call>call:grep{include:<|"|>*.py<|"|>,pattern:':\\s*\\w+'<|"|>}<tool_call|>""",
     [("grep", {"include": "*.py", "pattern": ":\\s*\\w+"})], ""),
    ("vllm 47906: a bare number", "gemma4",
     '<|tool_call>call:bash{command:<|"|>ls<|"|>,timeout:30}<tool_call|>',
     [("bash", {"command": "ls", "timeout": 30})], ""),
    ("hermes-agent 7449: parentheses", "gemma4", '<|tool_call>call:get_weather(city: "Oslo")<tool_call|>', [OSLO], ""),
    ("vllm 35906: a channel in the name", "harmony",
     '<|channel|>commentary to=functions.bash<|channel|>commentary <|constrain|>json<|message|>{"command": "ls"}'
     "<|call|>", [LS], ""),
    ("vllm 35948: Granite's arguments in a string", "hermes",
     '<tool_call>\n{"name": "bash", "arguments": "{\\"command\\": \\"ls\\"}"}\n</tool_call>', [LS], ""),
    ("vllm 56263: text behind a call", "hermes",
     '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>\nDone.', [PING], "Done."),
    ("vllm-mlx 580: Llama's bare object", "llama_3",
     '{"type": "function", "name": "bash", "parameters": {"command": "ls"}}', [LS], ""),
]  # fmt: skip


@each_of("case", CASES)
def test_a_reported_output_is_read_as_it_is_meant(
    case: tuple[str, str, str, list[tuple[str, dict[str, Any]]], str],
) -> None:
    _, name, text, calls, content = case
    parser = parser_for(format_named(name), PLAIN, TOOLS, new_id=Numbered())
    ids = PLAIN.spell(text)
    message = join_events(parser.feed(ids) + parser.close(whole=True))
    assert [(call.name, json.loads(call.arguments)) for call in message.tool_calls] == calls
    assert (message.content or "") == content
    assert {problem.kind for problem in message.diagnostics} <= {"repaired"}
    for size in (1, 3, 8):
        parser = parser_for(format_named(name), PLAIN, TOOLS, new_id=Numbered())
        events = [event for at in range(0, len(ids), size) for event in parser.feed(ids[at : at + size])]
        assert join_events(events + parser.close(whole=True)) == message
    # A stream that is cut off loses no character of what was said before.
    assert (stream(name, [text], TOOLS).content or "").startswith(content)
