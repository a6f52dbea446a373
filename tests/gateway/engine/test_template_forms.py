"""Simpler forms of a conversation for templates that refuse it, and a definition cut out of two prompts."""

import json
from typing import Any

import pytest

from gateway.engine.rendering.template_forms import (
    ToolFault,
    ToolForms,
    around,
    as_json,
    definition_in,
    histories,
    nowhere,
)
from gateway.toolcalls.schema.spec import ToolSpec


def call(call_id: str) -> dict[str, Any]:
    return {"type": "function", "id": call_id, "function": {"name": "f", "arguments": "{}"}}


def result(call_id: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "name": "f", "content": content}


ASKED = {"role": "user", "content": "?"}


def test_conversation_without_calls_has_one_form() -> None:
    messages = [ASKED, {"role": "assistant", "content": "x"}]

    assert list(histories(messages)) == [[*enumerate(messages)]]


def test_forms_get_simpler_and_keep_the_numbers_of_what_is_unchanged() -> None:
    messages = [
        ASKED,
        {"role": "assistant", "content": "I look", "tool_calls": [call("call_1"), call("abcdefgh9"), call("lost")]},
        result("abcdefgh9", "nine"),
        result("call_1", "one"),
        {"role": "assistant", "content": None},
        {"role": "user", "content": "!"},
    ]
    plain, short, single, questions = histories(messages)

    assert plain == [*enumerate(messages)]
    ids = [each["id"] for each in short[1][1]["tool_calls"]]
    assert ids[1] == "abcdefgh9"
    assert all(len(each) == 9 and each.isalnum() for each in ids)
    assert len({*ids}) == 3
    assert [number for number, _ in short] == [*range(6)]
    assert [each[1].get("tool_call_id") for each in short[2:4]] == [ids[1], ids[0]]
    # Each call in a turn of its own, with its result behind it; the words stand before the first.
    assert [(number, m["role"], m.get("content")) for number, m in single] == [
        (0, "user", "?"),
        (None, "assistant", "I look"),
        (3, "tool", "one"),
        (None, "assistant", ""),
        (2, "tool", "nine"),
        (None, "assistant", ""),
        (4, "assistant", None),
        (5, "user", "!"),
    ]
    assert [len(m.get("tool_calls", ())) for _, m in single] == [0, 1, 0, 1, 0, 1, 0, 0]
    assert [(number, m["role"], m["content"]) for number, m in questions] == [
        (0, "user", "?"),
        (None, "assistant", "I look"),
        (3, "user", "one"),
        (None, "assistant", ""),
        (2, "user", "nine"),
        (None, "assistant", ""),
        (4, "assistant", ""),
        (5, "user", "!"),
    ]
    assert not any(key in m for _, m in questions for key in ("tool_calls", "tool_call_id", "name"))


def test_consecutive_results_are_joined_where_they_are_questions() -> None:
    messages = [ASKED, {"role": "assistant", "content": "", "tool_calls": [call("a")]}, result("a", "x"), ASKED]
    forms = [*histories(messages)]

    # A turn with one call need not be split.
    assert len(forms) == 3
    assert [(number, m["role"], m["content"]) for number, m in forms[-1]] == [
        (0, "user", "?"),
        (1, "assistant", ""),
        (None, "user", "x\n\n?"),
    ]
    only = [*histories([ASKED, result("a", "x")])]
    assert [m["content"] for _, m in only[-1]] == ["?\n\nx"]


@pytest.mark.parametrize("call_id", ["abcdefgh", "abcdefghij", "abcdefgh-", "abcdefghé", ""])
def test_id_of_a_call_is_nine_letters_or_digits(call_id: str) -> None:
    messages = [{"role": "assistant", "content": "", "tool_calls": [call(call_id)]}]
    _, short, *_ = histories(messages)
    shown = short[0][1]["tool_calls"][0]["id"]

    assert (len(shown), shown.isascii(), shown.isalnum()) == (9, True, True)
    assert shown != call_id


def shown(*names: str, form: str = '{{"name": "{0}"}}', between: str = "\n") -> str:
    return "tools:\n" + between.join(form.format(name) for name in names) + "\nend"


@pytest.mark.parametrize(
    ("form", "between", "definition"),
    [
        ('{{"name": "{0}"}}', "\n", '{"name": "mid"}'),
        ('{{"name": "{0}"}}', ", ", '{"name": "mid"}'),
        ("<tool name='{0}'>x</tool>", "\n", "<tool name='mid'>x</tool>"),
        ("<tool>{0}</tool>", ",", "<tool>mid</tool>"),
        ("- {0}: a tool", "\n", "- mid: a tool"),
        # Neither an object nor lines: nobody can tell where it begins.
        ("tool {0} ", ";", None),
    ],
)
def test_definition_is_what_one_prompt_has_and_the_other_lacks(form: str, between: str, definition: str | None) -> None:
    text, without = (shown(*names, form=form, between=between) for names in (("a", "mid", "z"), ("a", "z")))

    assert definition_in(text, without) == definition


def test_definition_that_changes_more_than_its_place_is_not_found() -> None:
    text, without = shown("a", "mid", "z"), shown("a", "z")

    assert definition_in(without, without) is None
    assert definition_in(without, text) is None
    assert definition_in(text + "2", without + "1") is None
    assert definition_in("x{", "x") is None
    assert definition_in("\n" + "[" * 10_000, "\n") == "[" * 10_000


def test_definition_stands_between_two_that_have_little_in_common_with_others() -> None:
    own = {"type": "function", "function": {"name": "mid"}}
    first, middle, last = around(own)

    assert middle is own
    assert around(None) == [first, last]
    assert first["function"]["name"] != last["function"]["name"]


def test_definition_as_json_is_what_most_templates_write() -> None:
    assert as_json({"name": "é", "x": {"y": 1}}) == '{"name": "é", "x": {"y": 1}}'
    assert json.loads(as_json({"a": "\ud800"})) == {"a": "?"}


ODD, EVEN = ToolSpec("odd", "", {"type": "odd"}), ToolSpec("even", "", {"type": "object"})


def test_tool_is_rendered_in_its_form_or_left_out_and_the_fault_is_told_once(caplog) -> None:
    forms, plain = ToolForms(), ToolSpec("odd", "", {"type": "object"})
    fault = ToolFault("up", "odd", "it is odd")
    assert forms.rendered([ODD, EVEN]) == [ODD, EVEN]
    forms.note(ODD, plain, fault)
    assert forms.rendered([ODD, EVEN]) == [plain, EVEN]
    assert forms.offered([ODD, EVEN]) == (ODD, EVEN)
    assert forms.left_out(ODD) is None
    forms.note(ODD, None, fault)
    assert forms.rendered([ODD, EVEN]) == [EVEN]
    assert forms.offered([ODD, EVEN]) == (EVEN,)
    assert forms.left_out(ODD) is fault
    assert forms.faults([ODD, EVEN], lambda name: "up") == [fault]
    assert forms.reported == [fault]
    assert caplog.text.count("can't be used as it is defined") == 1
    assert fault.message == "tool 'odd' of server 'up': it is odd"
    assert ToolFault(None, "odd", "it is odd").message == "tool 'odd' of the request: it is odd"


def test_reference_that_leads_nowhere_is_a_fault_though_the_tool_can_be_rendered(caplog) -> None:
    forms = ToolForms()
    tool = ToolSpec("odd", "", {"type": "object", "properties": {"x": {"$ref": "#/$defs/none"}}})
    for _ in range(2):
        (fault,) = forms.faults([EVEN, tool], {"odd": "up"}.get)
        assert (fault.server, fault.tool) == ("up", "odd")
        assert fault.reason == "nothing in its schema is what '#/$defs/none' refers to; any value is accepted there"
    assert forms.reported == [fault]


def test_three_references_are_named_and_the_others_counted() -> None:
    assert nowhere(["a", "b", "c"]).startswith("nothing in its schema is what 'a', 'b', 'c' refers")
    assert "'a', 'b', 'c' and 2 more refers" in nowhere(["a", "b", "c", "d", "e"])
    assert len(nowhere(["x" * 1000])) < 200


def test_tools_that_were_asked_for_longest_ago_are_forgotten() -> None:
    forms = ToolForms(most=2)
    tools = [ToolSpec(name, "", {"type": name}) for name in "abc"]
    faults = [ToolFault(None, tool.name, "odd") for tool in tools]
    for tool, fault in zip(tools[:2], faults, strict=False):
        forms.note(tool, None, fault)
    assert forms.left_out(tools[0]) is faults[0]
    forms.note(tools[2], None, faults[2])

    assert [forms.left_out(tool) for tool in tools] == [faults[0], None, faults[2]]
    assert forms.reported == faults[1:]


def test_schema_that_an_engine_could_not_follow_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []

    def look(schema: Any) -> bool:
        looked.append(schema)
        return schema["type"] == "odd"

    monkeypatch.setattr("gateway.engine.rendering.template_forms.has_too_many_ways", look)
    forms = ToolForms(most=2)
    for _ in range(2):
        assert [forms.has_too_many_ways(tool) for tool in (ODD, EVEN)] == [True, False]
    assert looked == [ODD.parameters, EVEN.parameters]
    third = ToolSpec("third", "", {"type": "object"})
    forms.has_too_many_ways(ODD)
    forms.has_too_many_ways(third)
    forms.has_too_many_ways(ODD)
    assert len(looked) == 3
    forms.has_too_many_ways(EVEN)
    assert len(looked) == 4
