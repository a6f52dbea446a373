"""What models of Gemma 4, gpt-oss, MiniMax and Qwen3-Coder were reported to write, and what it means."""

import json
from typing import Any

import pytest

from gateway.toolcalls.parser import parse, stream
from gateway.toolcalls.schema.spec import ToolSpec
from tests.cases import each_of
from tests.gateway.toolcalls.fakes import Numbered


def tool(name: str, **properties: dict[str, Any]) -> ToolSpec:
    return ToolSpec(name, "", {"type": "object", "properties": properties})


TEXT = {"type": "string"}
TOOLS = (
    tool("get_weather", city=TEXT),
    tool("write", path=TEXT, content=TEXT),
    tool("log_event", tags={"type": "array"}, extra={"type": "object"}),
)
Q = '<|"|>'


@each_of(("written", "name", "meant"), [
        ("call:log_event{tags:['a_1','b']}", "log_event", {"tags": ["a_1", "b"]}),
        ("call:log_event{extra:{'mode':'fast',`n`:`x`}}", "log_event", {"extra": {"mode": "fast", "n": "x"}}),
        ("call:get_weather{city:'Oslo'}", "get_weather", {"city": "Oslo"}),
        ("call:get_weather{city:`Oslo`}", "get_weather", {"city": "Oslo"}),
        ("call:get_weather{city:'it's Oslo'}", "get_weather", {"city": "it's Oslo"}),
        ("call:get_weather{city:it's Oslo}", "get_weather", {"city": "it's Oslo"}),
        ("call:get_weather{city:'Oslo'", "get_weather", {"city": "Oslo"}),
        (f"call:get_weather(city:{Q}Oslo{Q})", "get_weather", {"city": "Oslo"}),
        (f"call:get_weather[city:{Q}Oslo{Q}]", "get_weather", {"city": "Oslo"}),
        ("call:get_weather(city='Oslo')", "get_weather", {"city": "Oslo"}),
        ("call:get_weather(city:Oslo)", "get_weather", {"city": "Oslo"}),
        ("call:get_weather()", "get_weather", {}),
        (f"call:get_weather(city:{Q}O(s)l}}o{Q}", "get_weather", {"city": "O(s)l}o"}),
        (f"call:write{{content:{Q}code with }}],path:{Q}file.txt{Q}}}", "write",
         {"content": "code with }]", "path": "file.txt"}),
        (f"call:write{{path:{Q}a.txt,content:{Q}x, y{Q}}}", "write", {"path": "a.txt", "content": "x, y"}),
        (f"call:write{{path:{Q}a,path:{Q},content:{Q}b{Q}}}", "write", {"path": "a,path:", "content": "b"}),
        (f"call:write{{path:{Q}a,mode:{Q},content:{Q}b{Q}}}", "write", {"path": "a,mode:", "content": "b"}),
        (f"call:write{{path:{Q}a{Q},content:{Q}x, y}}", "write", {"path": "a", "content": "x, y"}),
        (f"call:write{{path:{Q}a{Q},content:{Q}x{Q}", "write", {"path": "a", "content": "x"}),
        ("call:get_weather{city:Oslo", "get_weather", {"city": "Oslo"}),
        (f"call:log_event{{tags:[{Q}a{Q},{Q}b{Q}", "log_event", {"tags": ["a", "b"]}),
        (f"call:get_weather{{city:{Q}Oslo{Q}}}}}", "get_weather", {"city": "Oslo"}),
        ('{"name": "get_weather", "arguments": {"city": "Oslo"}}', "get_weather", {"city": "Oslo"}),
    ])  # fmt: skip
def test_gemma_4_in_other_marks_than_its_own(written: str, name: str, meant: dict[str, Any]) -> None:
    text = f"<|tool_call>{written}<tool_call|>"
    whole = parse("gemma4", text, TOOLS, new_id=Numbered())
    assert [(call.name, json.loads(call.arguments)) for call in whole.tool_calls] == [(name, meant)]
    assert whole.content is None
    assert {problem.kind for problem in whole.diagnostics} <= {"repaired"}
    for size in (1, 2, 5):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert stream("gemma4", pieces, TOOLS, new_id=Numbered()) == whole


def test_a_second_call_of_gemma_4_follows_one_whose_brace_is_missing() -> None:
    one = f"<|tool_call>call:get_weather{{city:{Q}Oslo{Q}<tool_call|>"
    assert [call.arguments for call in parse("gemma4", one + one, TOOLS).tool_calls] == ['{"city":"Oslo"}'] * 2


FINAL = "<|start|>assistant<|channel|>final<|message|>Hi.<|return|>"


@pytest.mark.parametrize(
    ("damaged", "content"),
    [
        ("<|channel|>commentary 2?<|end|>", "Hi."),
        ("<|channel|>??<|end|>", "Hi."),
        ("<|channel|>commentary?<|message|><|end|>", "Hi."),
        ("<|channel|>commentary to=assistant<|message|><|end|>", "Hi."),
        ("<|channel|>commentary<|end|><|start|>assistant<|channel|>commentary<|end|>", "Hi."),
        ("<|channel|>commentary<|message|>Let me.<|end|>", "Let me.\nHi."),
        ("<|channel|>commentary<|message|>Let me.<|end|><|start|>assistant<|channel|>?<|end|>", "Let me.\nHi."),
    ],
)
def test_damaged_headers_of_gpt_oss_leave_no_stray_newline(damaged: str, content: str) -> None:
    text = damaged + FINAL
    whole = parse("harmony", text, TOOLS, "<|start|>assistant")
    assert (whole.content, whole.reasoning_content, whole.tool_calls) == (content, None, ())
    assert stream("harmony", text, TOOLS, "<|start|>assistant") == whole


MINIMAX = (
    '<minimax:tool_call>\n<invoke name="write">\n<parameter name="content">{}</parameter>\n'
    "</invoke>\n</minimax:tool_call>"
)
CODER = "<tool_call>\n<function=write>\n<parameter=content>\n{}\n</parameter>\n</function>\n</tool_call>"
SEED = "<seed:tool_call>\n<function=write>\n<parameter=content>{}</parameter>\n</function>\n</seed:tool_call>"


@each_of(("name", "shape"), [("minimax_m2", MINIMAX), ("qwen3_coder", CODER), ("seed_oss", SEED)])
@each_of(
    ("written", "meant"),
    [
        ("<parameter>\n  <hello></hello>\n</parameter>", None),
        ('<parameter name="q">1</parameter>', None),
        ("<a><parameter>x</parameter></a>", None),
        ("<parameter><parameter>x</parameter></parameter>", None),
        ("x</parameter>", "x"),
        ("x</parameter>\n</parameter>", "x"),
    ],
)
def test_a_value_that_ends_with_its_own_closing_tag_keeps_it(
    name: str, shape: str, written: str, meant: str | None
) -> None:
    text = shape.format(written)
    whole = parse(name, text, TOOLS, new_id=Numbered())
    assert [json.loads(call.arguments) for call in whole.tool_calls] == [{"content": meant or written}]
    assert (whole.content, whole.diagnostics) == (None, ())
    assert stream(name, text, TOOLS, new_id=Numbered()) == whole
