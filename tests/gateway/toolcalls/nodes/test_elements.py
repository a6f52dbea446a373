"""MiniMax M3, MiniCPM5 and FunctionGemma: arguments as elements, in CDATA sections, and between `<escape>` tokens."""

import json
from typing import Any

import pytest

from gateway.toolcalls.formats.minimax import MAX_DEPTH
from gateway.toolcalls.parser import parse, stream
from gateway.toolcalls.schema.spec import ToolSpec
from tests.cases import each_of
from tests.gateway.toolcalls.fakes import Numbered

ORDER = ToolSpec(
    "order",
    "",
    {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "note": {"type": "string"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "lines": {"type": "array", "items": {"type": "object", "properties": {"qty": {"type": "integer"}}}},
            "either": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "string"}]},
            "named": {"oneOf": [{"type": "string"}, {"type": "object", "properties": {"text": {"type": "string"}}}]},
            "limit": {"oneOf": [{"type": "integer"}, {"$ref": "#/$defs/Limit"}]},
            "labels": {"type": "object", "additionalProperties": {"type": "integer"}},
            "free": {"type": "object"},
            "list": {"type": "array"},
        },
        "$defs": {"Limit": {"type": "object", "properties": {"most": {"type": "integer"}}}},
    },
)
MARK = "]<]minimax[>["


def read(name: str, text: str) -> tuple[str | None, list[tuple[str, Any]], list[str]]:
    """Give the content, the calls, and what went wrong; the same for pieces of one to five."""
    text = text.replace("~", MARK)
    message = parse(name, text, [ORDER], new_id=Numbered())
    for size in (1, 2, 5):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert stream(name, pieces, [ORDER], new_id=Numbered()) == message
    calls = [(call.name, json.loads(call.arguments)) for call in message.tool_calls]
    return message.content, calls, [problem.kind for problem in message.diagnostics]


def arguments_of(elements: str, name: str = "order") -> Any:
    """Read the arguments of one call of MiniMax M3."""
    text = f'~<tool_call>\n~<invoke name="{name}">{elements}~</invoke>\n~</tool_call>'
    content, calls, problems = read("minimax_m3", text)
    assert (content, problems) == (None, [])
    ((called, given),) = calls
    assert called == name
    return given


@each_of(
    ("elements", "given"),
    [
        ("", {}),
        ("~<id>018~</id>\n~<note>\n a <b> & c\n~</note>", {"id": 18, "note": "\n a <b> & c\n"}),
        ("~<tags>~<item>a~</item>\n~<item>~</item>~</tags>", {"tags": ["a", ""]}),
        ("~<tags>~<tag>a~</tag>~</tags>", {"tags": ["a"]}),
        ("~<lines>~<item>~<qty>2~</qty>~</item>~<item>~</item>~</lines>", {"lines": [{"qty": 2}, {}]}),
        ('~<lines>[{"qty": 2}]~</lines>', {"lines": [{"qty": 2}]}),
        ("~<limit>5~</limit>", {"limit": 5}),
        ("~<limit>~<most>5~</most>~</limit>", {"limit": {"most": 5}}),
        ("~<labels>\n~<a>1~</a>~<b>2~</b>\n~</labels>", {"labels": {"a": 1, "b": 2}}),
        ("~<either>~<item>1~</item>~</either>", {"either": [1]}),
        ("~<either>~</either>", {"either": ""}),
        ("~<named>~<text>hi~</text>~</named>", {"named": f"{MARK}<text>hi{MARK}</text>"}),
        ("~<tags>~</tags>~<free>~</free>~<note>~</note>~<id>~</id>", {"tags": [], "free": {}, "note": "", "id": ""}),
        ("~<note>say ~<note>~</note>", {"note": f"say {MARK}<note>"}),
        ("~<id>1~</id>~<note>unfinished", {"id": 1, "note": "unfinished"}),
    ],
)
def test_elements_become_what_the_schema_says(elements: str, given: Any) -> None:
    assert arguments_of(elements) == given


@pytest.mark.parametrize(
    ("elements", "given"),
    [
        ("~<t>a~</t>~<t>b~</t>~<u>1~</u>", {"t": ["a", "b"], "u": "1"}),
        ("~<t>~<item>a~</item>~</t>~<t>~<k>b~</k>~</t>", {"t": [["a"], {"k": "b"}]}),
        ("~<k>~<l>a~</l>~<l>b~</l>~</k>", {"k": {"l": ["a", "b"]}}),
    ],
)
def test_elements_that_no_schema_names_are_text_and_lists_where_they_come_again(elements: str, given: Any) -> None:
    assert arguments_of(f"~<free>{elements}~</free>") == {"free": given}
    assert arguments_of(f"~<list>~<item>{elements}~</item>~</list>") == {"list": [given]}


def test_a_tool_that_nobody_offers_has_texts_for_arguments() -> None:
    given = {"n": "1", "empty": "", "list": ["a", "b"], "map": {"k": "v"}}
    elements = "~<n>1~</n>~<empty>~</empty>~<list>~<item>a~</item>~<item>b~</item>~</list>~<map>~<k>v~</k>~</map>"
    assert arguments_of(elements, name="other") == given


def nested(depth: int, name: str) -> str:
    return f"~<{name}>" * depth + "v" + f"~</{name}>" * depth


@pytest.mark.parametrize("name", ["n", "item"])
def test_elements_are_read_to_a_depth_and_no_further(name: str) -> None:
    assert arguments_of(f"~<free>{nested(MAX_DEPTH, name)}~</free>") != {}
    too_deep = f'~<tool_call>~<invoke name="order">~<free>{nested(MAX_DEPTH + 1, name)}~</free>~</invoke>~</tool_call>'
    message = parse("minimax_m3", too_deep.replace("~", MARK), [ORDER])
    assert [problem.kind for problem in message.diagnostics] == ["malformed"]


@pytest.mark.parametrize(
    "tail",
    [
        "junk~<note>x~</note>",
        "~<>x~</>",
        "~<free>~<k>v~</k>~</other>~</free>",
        "~<tags>~<item>a~</item>b~</tags>",
        "~</note>",
    ],
)
def test_a_broken_element_breaks_the_call_where_it_stands(tail: str) -> None:
    text = f'~<tool_call>~<invoke name="order">~<id>1~</id>{tail}~</invoke>~</tool_call>'.replace("~", MARK)
    message = parse("minimax_m3", text, [ORDER])
    assert message.tool_calls[0].arguments.startswith('{"id": 1')
    assert [problem.kind for problem in message.diagnostics] == ["malformed"]


def test_the_section_or_the_next_call_ends_a_call_that_lacks_its_end() -> None:
    text = '~<tool_call>~<invoke name="order">~<id>1~</id>~<invoke name="order">~<id>2~</id>~</tool_call>'
    assert read("minimax_m3", text) == (None, [("order", {"id": 1}), ("order", {"id": 2})], [])


@each_of(
    ("params", "given"),
    [
        ('<param name="note"><![CDATA[<a>\n</param> ]]></param>', {"note": "<a>\n</param> "}),
        ('<param name="note"><![CDATA[]]></param><param name="id">7</param>', {"note": "", "id": 7}),
        ('<param name="note"><![CDATA[a]]> b]]></param>', {"note": "a]]> b"}),
        ('<param name="tags"><![CDATA[["a<b"]]]></param>', {"tags": ["a<b"]}),
        ("<paramname='note'>a < b</param>", {"note": "a < b"}),
        ('<paramĠname="note"> x </param>', {"note": " x "}),
        ("<param name=\"properties\">{'note': 'x', 'id': 1}</param>", {"note": "x", "id": 1}),
        ('<param name="arguments"><![CDATA[{"note": "<x>"}]]></param>', {"note": "<x>"}),
        ('<param name="note">x</param></param>', {"note": "x"}),
        ("", {}),
    ],
)
def test_parameters_may_stand_in_a_section_that_quotes_them(params: str, given: Any) -> None:
    for head in ('<function name="order">', "<functionname='order'>", '<functionĠname="order">'):
        assert read("minicpm5", f"a\n{head}{params}</function>\nb") == ("a\nb", [("order", given)], [])


@pytest.mark.parametrize("note", ["<![CDATA[<tool_call>]]>", "<![CDATA[]]>", "plain", ""])
def test_a_parameter_cut_anywhere_tells_a_beginning_of_its_value(note: str) -> None:
    text = f'<function name="order"><param name="id">7</param><param name="note">{note}</param></function>'
    (whole,) = parse("minicpm5", text, [ORDER]).tool_calls
    for cut in range(text.index("<param"), len(text)):
        (call,) = parse("minicpm5", text[:cut], [ORDER]).tool_calls or (whole,)
        assert call.arguments == "{}" or whole.arguments.startswith(call.arguments), text[:cut]


@pytest.mark.parametrize(
    "text", ["<function> is a tag", "a <function", "a <function f(x)>", '<function name="f"> is one', "x <functional>"]
)
def test_a_function_tag_without_a_call_is_prose(text: str) -> None:
    assert read("minicpm5", text) == (text, [], [])


def test_a_parameter_without_a_name_breaks_the_call() -> None:
    text = '<function name="order"><param>x</param></function>'
    message = parse("minicpm5", text, [ORDER])
    assert [problem.kind for problem in message.diagnostics] == ["malformed"]


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("call:order{note:<escape>a, {b}<escape>,id:3}<end_function_call>", [("order", {"note": "a, {b}", "id": 3})]),
        ("call:order{tags:[<escape>a<escape>],free:{k:true}}<end_function_call>",
         [("order", {"tags": ["a"], "free": {"k": True}})]),
        ("call:order{}<end_function_call><start_function_call>call:now{}<end_function_call><start_function_response>",
         [("order", {}), ("now", {})]),
    ],
)  # fmt: skip
def test_function_gemma_s_strings_stand_between_escape_tokens(text: str, calls: Any) -> None:
    assert read("function_gemma", f"Sure. <start_function_call>{text}") == ("Sure. ", calls, [])


@pytest.mark.parametrize(
    "elements",
    ["~<a>~<b>x~</b>~</a>", "~<a>~<item>x~</item>~<item>~<c>~</c>~</item>~</a>", "~<tags>~<item>a~</item>~</tags>"],
)
def test_an_element_cut_before_its_value_does_not_say_that_it_is_a_string(elements: str) -> None:
    text = f'~<tool_call>\n~<invoke name="order">{elements}~</invoke>\n~</tool_call>'.replace("~", MARK)
    (whole,) = parse("minimax_m3", text, [ORDER]).tool_calls
    for cut in range(text.index("<a") if "<a" in text else text.index("<tags"), len(text)):
        for call in parse("minimax_m3", text[:cut], [ORDER]).tool_calls:
            assert call.arguments == "{}" or whole.arguments.startswith(call.arguments), text[:cut]


@pytest.mark.parametrize("elements", ["~<tags>~</b>x~</tags>", "~<tags>~<item>x~<", "~<tags>~<item"])
def test_list_that_breaks_inside_ends_its_call(elements: str) -> None:
    text = f'~<tool_call>\n~<invoke name="order">{elements}~</invoke>\n~</tool_call>'.replace("~", MARK)
    message = parse("minimax_m3", text, [ORDER], new_id=Numbered())

    assert [problem.kind for problem in message.diagnostics] == ["malformed"]
