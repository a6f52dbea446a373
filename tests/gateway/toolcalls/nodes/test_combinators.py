"""The nodes in formats that are not Hermes: what the other families need is there, from one declaration each."""

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.toolcalls.formats.format import Format, call_grammar
from gateway.toolcalls.formats.format import Format as FormatType
from gateway.toolcalls.grammar.gbnf import Grammar
from gateway.toolcalls.grammar.schemas import schema_rules
from gateway.toolcalls.nodes.combinators import Choice, Many, maybe
from gateway.toolcalls.nodes.json_nodes import Json, QuotedName
from gateway.toolcalls.nodes.objects import Field, RecordNode
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.readers import Capture, Lit, Marker, Node, Seq, Space, Start, Until
from gateway.toolcalls.nodes.regions import CallNode, Calls, MarkedRegion
from gateway.toolcalls.parser import parser_for
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallStarted, Content, Diagnostic, Event, Reasoning
from gateway.toolcalls.stream.spelling import Spelling
from tests.gateway.toolcalls.fakes import (
    PLAIN,
    TIME,
    TOOLS,
    WEATHER,
    Numbered,
    TinyVocabulary,
    closed,
    diagnostics,
    joined,
    run,
    started,
    texts,
)
from tests.gateway.toolcalls.gbnf_oracle import Gbnf


def family(name: str, region: MarkedRegion, lead: str = "") -> Format:
    return Format(name=name, body=Prose(region, lead=lead), calls=Calls(region), shape="")


ARGS = Marker("[ARGS]")
MINISTRAL = family(
    "ministral", MarkedRegion("[TOOL_CALLS]", CallNode(Seq(Capture("name", "[ARGS]"), ARGS, Start(), Json())))
)
SMALL = family(
    "mistral small",
    MarkedRegion(
        "[TOOL_CALLS]",
        CallNode(
            Seq(Capture("name", "[CALL_ID]"), Marker("[CALL_ID]"), Capture("id", "[ARGS]"), Start(), ARGS, Json())
        ),
    ),
)
OBJECT = RecordNode((Field(("name",), QuotedName()), Field(("arguments",), Json())))
SECTION = MarkedRegion("<TOOLCALL>", "[", Calls(CallNode(OBJECT), Lit(", ")), "]", Marker("</TOOLCALL>"))
NEMOTRON = Format(name="nemotron", body=Prose(SECTION), calls=SECTION, shape="")
DEEPSEEK_CALL = CallNode(Seq("<｜call｜>", Capture("name", "<｜sep｜>"), "<｜sep｜>", Start(), Json(), "<｜end｜>"))
DEEPSEEK_REGION = MarkedRegion("<｜calls｜>", Calls(DEEPSEEK_CALL), Marker("<｜/calls｜>"))
DEEPSEEK = Format(name="deepseek", body=Prose(DEEPSEEK_REGION), calls=DEEPSEEK_REGION, shape="")

ONE = '{"city": "Paris", "days": 3}'
TWO = '{"tz": "CET"}'
WRITTEN = {
    "ministral": (MINISTRAL, f"[TOOL_CALLS]get_weather[ARGS]{ONE}[TOOL_CALLS]get_time[ARGS]{TWO}"),
    "mistral small": (
        SMALL,
        f"[TOOL_CALLS]get_weather[CALL_ID]call00001[ARGS]{ONE}[TOOL_CALLS]get_time[CALL_ID]call00002[ARGS]{TWO}",
    ),
    "nemotron": (
        NEMOTRON,
        f'<TOOLCALL>[{{"name": "get_weather", "arguments": {ONE}}}, '
        f'{{"name": "get_time", "arguments": {TWO}}}]</TOOLCALL>',
    ),
    "deepseek": (
        DEEPSEEK,
        f"<｜calls｜><｜call｜>get_weather<｜sep｜>{ONE}<｜end｜><｜call｜>get_time<｜sep｜>{TWO}<｜end｜><｜/calls｜>",
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_another_family_is_one_declaration(name: str) -> None:
    fmt, text = WRITTEN[name]
    for vocabulary in (PLAIN, TinyVocabulary(fmt.markers)):
        ids = vocabulary.spell(f"Hi {text} end", specials=True)
        events = run(ids, vocabulary=vocabulary, fmt=fmt)
        assert [(call.name, call.arguments) for call in closed(events)] == [("get_weather", ONE), ("get_time", TWO)]
        assert texts(events) == "Hi  end"
        assert diagnostics(events) == []
        assert joined(run(ids, [], vocabulary=vocabulary, fmt=fmt)) == joined(events)


@pytest.mark.parametrize("name", WRITTEN)
def test_a_familys_grammar_takes_what_the_family_writes(name: str) -> None:
    fmt, text = WRITTEN[name]
    grammar = Gbnf(call_grammar(fmt, TOOLS, choice="required", parallel=True))
    assert grammar.takes(text)
    assert not grammar.takes(text[:-1])
    assert not grammar.takes(text.replace("get_weather", "get_wether"))


@pytest.mark.parametrize("name", WRITTEN)
@given(seed=st.integers(0, 10_000))
def test_what_a_familys_grammar_writes_is_parsed_whole(name: str, seed: int) -> None:
    fmt, _ = WRITTEN[name]
    text = Gbnf(call_grammar(fmt, TOOLS, choice="required", parallel=True)).sample(random.Random(seed))
    events = run(PLAIN.spell(text), fmt=fmt)
    assert diagnostics(events) == []
    assert texts(events) == ""
    assert len(closed(events)) >= 1
    for call in closed(events):
        json.loads(call.arguments)


def test_the_model_s_own_ids_are_told() -> None:
    fmt, text = WRITTEN["mistral small"]
    assert [event.id for event in started(run(PLAIN.spell(text), fmt=fmt))] == ["call00001", "call00002"]


def test_calls_of_one_section_divide_its_ids_among_them() -> None:
    fmt, text = WRITTEN["deepseek"]
    ids = list(f"x{text}y".encode())
    first, second = closed(run(ids, fmt=fmt))
    assert bytes(first.ids).decode() == f"<｜calls｜><｜call｜>get_weather<｜sep｜>{ONE}<｜end｜>"
    assert bytes(second.ids).decode() == f"<｜call｜>get_time<｜sep｜>{TWO}<｜end｜><｜/calls｜>"


def test_a_call_of_a_section_stays_whole_when_the_next_one_breaks() -> None:
    text = '<TOOLCALL>[{"name": "f"}, {"nam": 1}]</TOOLCALL>.'
    events = run(PLAIN.spell(text), fmt=NEMOTRON)
    assert [call.name for call in closed(events)] == ["f"]
    assert [(problem.kind, problem.index) for problem in diagnostics(events)] == [("malformed", None)]
    assert texts(events) == '{"nam": 1}]</TOOLCALL>.'


def test_an_id_that_comes_after_its_call_was_told_is_too_late() -> None:
    node = MarkedRegion("[", CallNode(Seq(Capture("name", "#"), "#", Start(), Capture("id", "]"), "]")))
    assert [event.id for event in started(reads(node, "[f#abc]"))] == ["call_0"]


def test_a_region_that_grows_too_long_ends_a_message_that_is_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.toolcalls.parser.MAX_REGION", 20)
    told = reads(MarkedRegion("[", CallNode(Seq(Capture("name", "]"), "]"))), "[" + "x" * 30 + "]")
    assert texts(told) == "[" + "x" * 30 + "]"
    assert ["longer than 20 characters" in problem.message for problem in diagnostics(told)] == [True]


def test_a_name_without_a_delimiter_is_not_waited_for_without_end() -> None:
    events = run(PLAIN.spell("[TOOL_CALLS]" + "x" * 300), fmt=MINISTRAL)
    assert [problem.kind for problem in diagnostics(events)] == ["malformed"]
    assert texts(events) == "[TOOL_CALLS]" + "x" * 300
    assert [d.kind for d in diagnostics(run(PLAIN.spell("[TOOL_CALLS]abc[ARG"), fmt=MINISTRAL))] == ["truncated"]
    assert [d.kind for d in diagnostics(run(PLAIN.spell("[TOOL_CALLS][ARGS]{}"), fmt=MINISTRAL))] == ["malformed"]


def reads(node: Node, text: str, vocabulary: TinyVocabulary = PLAIN) -> list[Event]:
    """Give what a body says of a text; what it leaves is content."""
    fmt = FormatType(name="", body=node, calls=node, shape="")
    stream = parser_for(fmt, vocabulary, (), new_id=Numbered())
    events = [event for byte in text.encode() for event in stream.feed([byte])] + stream.close()
    return joined(events)


def expression(node: Node, tools: tuple[ToolSpec, ...] = ()) -> Gbnf:
    grammar = Grammar(tools, parallel=False, schemas=schema_rules)
    return Gbnf(grammar.text(node.grammar(grammar)))


TAGS = Choice("<a>", "<ab>", Seq(maybe("#"), "x"), Many(Lit("-"), least=1))


@pytest.mark.parametrize(
    ("text", "left"),
    [("<a>.", "."), ("<ab>.", "."), ("#x.", "."), ("x.", "."), ("--.", "."), ("<ac>", "<ac>"), ("<a", "<a")],
)
def test_a_choice_waits_until_its_literals_decide(text: str, left: str) -> None:
    assert reads(TAGS, text) == [Content(left)]
    assert expression(TAGS).takes(text.removesuffix(left)) == (text != left)


def test_a_choice_among_anything_takes_the_first_that_can_begin() -> None:
    node = Seq(Choice("<", Until("reasoning", ("<",))), maybe(Choice("<", Json())))
    assert reads(node, "abc<x") == [Reasoning("abc"), Content("x")]
    assert node.first(run_spelling()) is None


def run_spelling() -> Spelling:
    return Spelling({})


@pytest.mark.parametrize(
    ("least", "most", "text", "left"),
    [
        (0, None, "", ""),
        (0, 2, "a,a,a", ",a"),
        (2, None, "a,a.", "."),
        (2, None, "a.", "."),
        (1, 1, "a,a", ",a"),
        (0, None, "a,b", "b"),
    ],
)
def test_many_reads_between_its_bounds(least: int, most: int | None, text: str, left: str) -> None:
    node = Many(Lit("a"), Lit(","), least=least, most=most)
    assert reads(node, text) == ([Content(left)] if left else [])
    if left in ("", ".", ",a") and text != "a.":
        assert expression(node).takes(text.removesuffix(left))


def test_many_without_bounds_writes_plus_and_star() -> None:
    assert expression(Many(Lit("a"), least=1)).takes("aaa")
    assert not expression(Many(Lit("a"), least=1)).takes("")
    assert expression(Many(Lit("a"))).takes("")
    assert expression(Many(Lit("a"), least=2, most=2)).takes("aa")
    assert not expression(Many(Lit("a"), least=2, most=2)).takes("aaa")
    assert expression(Many(Lit("a"), most=0)).takes("")


@given(st.text(alphabet="</a>b\n", max_size=12))
def test_until_is_every_text_without_its_delimiters(text: str) -> None:
    delimiters = ("</a>", "<b", "\n")
    grammar = expression(Until("content", delimiters))
    assert grammar.takes(text) == (not any(delimiter in text for delimiter in delimiters))


def test_a_name_outside_of_a_call_is_a_fault_of_the_format() -> None:
    with pytest.raises(ValueError, match="put them inside one"):
        expression(QuotedName())


def test_a_name_read_outside_of_a_call_is_a_fault_of_the_format() -> None:
    events = reads(MarkedRegion("<", QuotedName()), '<"f"')
    (problem,) = diagnostics(events)
    assert problem.kind == "failed"
    assert "put them inside one" in str(problem.cause)
    assert texts(events) == '<"f"'


def test_a_region_may_hold_no_call_and_a_call_that_is_never_told_is_none() -> None:
    empty = MarkedRegion("<", Many(CallNode(Seq("!", Json()))), Marker(">"))
    assert reads(Prose(empty), "a<>b") == [Content("ab")]
    events = reads(Prose(empty), "a<!{}>b")
    assert "".join(event.text for event in events if isinstance(event, Content)) == "a<!{}>b"
    assert [event.kind for event in events if isinstance(event, Diagnostic)] == ["malformed"]


def test_nodes_know_whether_they_can_be_missing() -> None:
    missing = [Space(), Start(), Until("content", ("x",)), Thought("<t>", "</t>"), maybe("x"), Seq(Space(), maybe("x"))]
    there = [Lit("x"), Choice("x"), Many(Lit("x"), least=1), Seq(Space(), "x"), Calls(Lit("x")), Json()]
    assert all(node.nullable for node in missing)
    assert not any(node.nullable for node in there)


def test_nodes_know_how_they_begin() -> None:
    spelling = run_spelling()
    assert Seq(Space(), Start(), "x").first(spelling) == (" ", "\t", "\r", "\n", "x")
    assert Seq(Space()).first(spelling) is None
    assert Choice("a", Many(Lit("b"))).first(spelling) == ("a", "b")
    assert Calls(CallNode(Lit("[")), Lit(",")).first(spelling) == ("[",)
    assert DEEPSEEK_REGION.first(spelling) == ("<｜calls｜>",)
    assert OBJECT.first(spelling) == ("{",)
    assert QuotedName().first(spelling) == ('"',)
    for free in (Capture("name", "x"), Until("content", ("x",)), Prose(SECTION), Thought("a", "b"), Seq(Json(), "x")):
        first = free.first(spelling)
        assert first is None or first == Json().first(spelling)


def test_a_body_of_a_region_and_no_prose_leaves_what_follows_as_content() -> None:
    assert [type(event) for event in reads(MINISTRAL.calls, f"[TOOL_CALLS]f[ARGS]{TWO}rest")][::3] == [
        CallStarted,
        Content,
    ]


def test_a_prose_grammar_is_its_region_and_a_thought_s_is_nothing() -> None:
    body = Seq(Thought("<think>", "</think>"), NEMOTRON.body)
    assert expression(body, (TIME, WEATHER)).takes(f'<TOOLCALL>[{{"name": "get_time", "arguments": {TWO}}}]</TOOLCALL>')


def test_the_markers_of_a_format_are_listed_once() -> None:
    assert SMALL.markers == ("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]")
    assert replace(SMALL, body=Seq(Thought("<t>", "</t>"), SMALL.body)).markers[:2] == ("<t>", "</t>")
