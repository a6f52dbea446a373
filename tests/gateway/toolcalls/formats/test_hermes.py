"""Hermes, Qwen2.5 and the generic format: what each way to write a call, and to fail at it, tells."""

import pytest

from gateway.toolcalls.formats.registry import format_named
from gateway.toolcalls.parser import AssistantMessage, ToolCall, join_events, parse, parser_for
from gateway.toolcalls.stream.output_events import (
    CallArguments,
    CallClosed,
    CallStarted,
    Content,
    Diagnostic,
    Reasoning,
)
from tests.cases import each_of
from tests.gateway.toolcalls.fakes import (
    PLAIN,
    TOOLS,
    Numbered,
    closed,
    diagnostics,
    joined,
    parser,
    run,
    started,
    texts,
)

ONE = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}\n</tool_call>'
TWO = ONE + '\n<tool_call>\n{"name": "get_time", "arguments": {"tz": "CET"}}\n</tool_call>'
WEATHER_CALL = ToolCall("call_0", "get_weather", '{"city": "Paris", "days": 3}')
TIME_CALL = ToolCall("call_1", "get_time", '{"tz": "CET"}')

# What the families' own chat templates render for one call and for two, without the end-of-turn token.
RENDERED = {
    "Qwen2.5": (ONE, TWO, ""),
    "Hermes 3": (ONE, TWO, ""),
    "Bielik": ("\n" + ONE, "\n" + TWO, ""),
    "Qwen3": ("<think>\n\n</think>\n\n" + ONE, "<think>\n\n</think>\n\n" + TWO, ""),
    "QwQ, prompt closes reasoning": (ONE, TWO, "<|im_start|>assistant\n<think>\n</think>"),
    "QwQ, prompt opens reasoning": ("\n</think>\n\n" + ONE, "\n</think>\n\n" + TWO, "<|im_start|>assistant\n<think>\n"),
    "Reka": (" " + ONE + "\n\n", " " + TWO.replace("</tool_call>\n", "</tool_call>") + "\n\n", ""),
}


def told(text: str, prompt_tail: str = "") -> AssistantMessage:
    return join_events(run(PLAIN.spell(text), prompt_tail=prompt_tail))


@pytest.mark.parametrize("family", RENDERED)
def test_what_a_template_renders_is_read_back(family: str) -> None:
    one, two, prompt_tail = RENDERED[family]
    content = " " if family == "Reka" else None
    assert told(one, prompt_tail) == AssistantMessage(content, None, (WEATHER_CALL,), ())
    assert told(two, prompt_tail) == AssistantMessage(content, None, (WEATHER_CALL, TIME_CALL), ())


def test_a_call_streams_name_first_then_arguments_as_they_come() -> None:
    stream = parser()
    events = [
        stream.feed(PLAIN.spell(piece))
        for piece in ('<tool_call>\n{"name": "get_', 'time", "arguments": {"tz"', ': "C', 'ET"}}')
    ]
    assert events == [
        [],
        [CallStarted(0, "call_0", "get_time"), CallArguments(0, '{"tz"')],
        [CallArguments(0, ': "C')],
        [CallArguments(0, 'ET"}')],
    ]
    closing = PLAIN.spell("\n</tool_call>")
    assert [type(event) for event in stream.feed(closing)] == [CallClosed]
    assert stream.close() == []


def test_text_before_between_and_after_calls_is_content() -> None:
    text = "Let me look.\n" + ONE + "\n\nAnd the time: " + ONE.replace("get_weather", "get_time") + " Done.\n"
    message = told(text)
    assert message.content == "Let me look.\n\nAnd the time:  Done.\n"
    assert [call.name for call in message.tool_calls] == ["get_weather", "get_time"]


def test_content_is_not_held_longer_than_a_marker_may_still_begin() -> None:
    stream = parser()
    assert stream.feed(PLAIN.spell("a <tool_cal")) == [Content("a ")]
    assert stream.feed(PLAIN.spell("m")) == [Content("<tool_calm")]
    assert stream.feed(PLAIN.spell("b\n")) == [Content("b")]
    assert stream.feed(PLAIN.spell("c")) == [Content("\nc")]


def test_a_marker_begins_and_ends_inside_tokens() -> None:
    # One token is " <", another `{"name": "`; the closing marker shares its last token with a quotation mark.
    ids = PLAIN.spell('say: <tool_call>{"name": "f"}</tool_call>" end')
    events = run(ids)
    assert texts(events) == 'say: " end'
    (call,) = closed(events)
    region = b"".join(map(PLAIN.token_bytes, call.ids))
    assert region == b' <tool_call>{"name": "f"}</tool_call>"'


@pytest.mark.parametrize("gap", ["", "\n", " ", "\r\n\t "])
def test_whitespace_inside_a_region_is_free(gap: str) -> None:
    pieces = ["<tool_call>", "{", '"name"', ":", '"f"', ",", '"arguments"', ":", f'{{"a":{gap}1}}', "}", "</tool_call>"]
    text = gap.join(pieces)
    assert told(text).tool_calls == (ToolCall("call_0", "f", f'{{"a":{gap}1}}'),)


def test_arguments_before_the_name_wait_for_it() -> None:
    stream = parser()
    assert stream.feed(PLAIN.spell('<tool_call>{"arguments": {"tz": "CET"}, ')) == []
    assert stream.feed(PLAIN.spell('"name": "get_time"')) == [
        CallStarted(0, "call_0", "get_time"),
        CallArguments(0, '{"tz": "CET"}'),
    ]


@pytest.mark.parametrize(
    "text", ['{"name": "now"}', '{"name": "now", "arguments": {}}', '{"name": "now", "parameters": {}}']
)
def test_a_call_without_arguments_says_an_empty_object(text: str) -> None:
    events = joined(run(PLAIN.spell(f"<tool_call>{text}</tool_call>")))
    assert events[:2] == [CallStarted(0, "call_0", "now"), CallArguments(0, "{}")]
    assert [(call.name, call.arguments) for call in closed(events)] == [("now", "{}")]


def test_arguments_that_are_an_object_in_a_text_are_that_object() -> None:
    call = '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>'
    assert told(call).tool_calls[0].arguments == '{"a": 1}'


def test_keys_that_no_call_has_are_passed_over() -> None:
    text = '<tool_call>{"type": "function", "name": "f", "x": [{"name": "g"}], "arguments": {"a": 1}}</tool_call>'
    assert told(text) == AssistantMessage(None, None, (ToolCall("call_0", "f", '{"a": 1}'),), ())


def test_an_unknown_tool_is_a_call() -> None:
    assert [call.name for call in told('<tool_call>{"name": "no_such"}</tool_call>').tool_calls] == ["no_such"]


def test_an_escaped_name_is_told_as_it_reads() -> None:
    assert told('<tool_call>{"name": "gr\\u00f6\\u00dfe\\ud800"}</tool_call>').tool_calls[0].name == "größe�"


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>",
        "<tool_call>\n{",
        '<tool_call>{"na',
        '<tool_call>{"name": "f',
        '<tool_call>{"arguments": {"a": [1, "x\\u00',
        '<tool_call>{"arguments": {"a": 1}, "name"',
    ],
)
def test_a_call_cut_off_before_its_name_is_content_and_reported(text: str) -> None:
    events = run(PLAIN.spell("x" + text))
    assert texts(events) == "x" + text
    assert [(problem.kind, problem.index) for problem in diagnostics(events)] == [("truncated", None)]
    assert not started(events)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('<tool_call>{"name": "f"', ""),
        ('<tool_call>{"name": "f", "argu', ""),
        ('<tool_call>{"name": "f", "arguments": {"a": [1, tr', '{"a": [1, tr'),
        ('<tool_call>{"name": "f", "arguments": {"a": 12', '{"a": 12'),
        ('<tool_call>{"name": "f", "arguments": {"a": "x\\u00', '{"a": "x\\u00'),
        ('<tool_call>{"name": "f", "arguments": {"a": 1}', '{"a": 1}'),
    ],
)
def test_a_call_cut_off_after_its_name_stays_unclosed_with_all_its_arguments(text: str, arguments: str) -> None:
    events = run(PLAIN.spell(text))
    assert "".join(e.fragment for e in events if isinstance(e, CallArguments)) == arguments
    assert [(problem.kind, problem.index) for problem in diagnostics(events)] == [("truncated", 0)]
    assert not closed(events)
    assert texts(events) == ""


@pytest.mark.parametrize("end", ["", "\n", "\n</tool_ca"])
def test_a_whole_call_that_only_its_closing_marker_is_missing_from_is_a_call(end: str) -> None:
    events = run(PLAIN.spell('<tool_call>{"name": "f", "arguments": {"a": 1}}' + end))
    assert [call.arguments for call in closed(events)] == ['{"a": 1}']
    assert (texts(events), diagnostics(events)) == ("", [])


@each_of(
    "region",
    [
        "<tool_call>hello</tool_call>",
        "<tool_call>{}</tool_call>",
        '<tool_call>{"name": 1}</tool_call>',
        '<tool_call>{"name": ""}</tool_call>',
        '<tool_call>{"name" "f"}</tool_call>',
        '<tool_call>{name = "f"}</tool_call>',
        '<tool_call>{"arguments": {}}</tool_call>',
        '<tool_call>{"arguments": {a 1}, "name": "f"}</tool_call>',
        '<tool_call>{"arguments": {}, "parameters": {}, "name": "f"}</tool_call>',
        '<tool_call>{"x": 1,}</tool_call>',
        f'<tool_call>{{"name": "{"f" * 300}"}}</tool_call>',
        f'<tool_call>{{"{"k" * 300}": 1}}</tool_call>',
    ],
)
def test_a_region_that_is_no_call_is_content_and_the_stream_goes_on(region: str) -> None:
    events = run(PLAIN.spell(f"a\n{region}\nb {ONE}"))
    assert texts(events) == f"a\n{region}\nb "
    assert [(problem.kind, problem.index) for problem in diagnostics(events)] == [("malformed", None)]
    assert [(call.index, call.name) for call in closed(events)] == [(0, "get_weather")]


@pytest.mark.parametrize("opening", ['{"name": "', '{"', '{"name": "f", "x'])
def test_a_word_without_end_is_given_up_while_it_still_comes(opening: str) -> None:
    stream = parser()
    events = [event for byte in f"<tool_call>{opening}{'k' * 300}".encode() for event in stream.feed([byte])]
    assert [problem.kind for problem in diagnostics(events)] == ["malformed"]


def test_a_call_that_breaks_after_its_name_stays_unclosed_and_its_text_is_content() -> None:
    broken = '<tool_call>{"name": "f", "arguments": {"a": nope}}</tool_call> so'
    events = run(PLAIN.spell(f"{broken}\n{ONE}"))
    assert texts(events) == broken
    assert diagnostics(events) == [
        Diagnostic(
            "malformed", "a tool call breaks its format at character 44; what can't be read is passed on as content", 0
        )
    ]
    assert [call.index for call in closed(events)] == [1]


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "f"}<tool_call>{"name": "g"}</tool_call>',
        '<tool_call>{"name": "f"}\n{"name": "g"}</tool_call>',
        '<tool_call>[{"name": "f"}, {"name": "g"}]</tool_call>',
    ],
)
def test_calls_that_share_markers_or_forget_the_closing_one_are_calls_of_their_own(text: str) -> None:
    events = run(PLAIN.spell(text))
    assert [call.name for call in closed(events)] == ["f", "g"]
    assert (texts(events), diagnostics(events)) == ("", [])


def test_a_region_beyond_its_bound_is_content(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.toolcalls.parser.MAX_REGION", 100)
    text = '<tool_call>{"arguments": {"a": "' + "x" * 200 + '"}, "name": "f"}</tool_call>'
    events = run(PLAIN.spell(text + ONE))
    assert texts(events) == text
    assert diagnostics(events) == [
        Diagnostic("malformed", "a tool call is longer than 100 characters; what can't be read is passed on as content")
    ]
    assert [call.name for call in closed(events)] == ["get_weather"]


def test_reasoning_is_told_apart_and_its_edges_are_markup() -> None:
    events = run(PLAIN.spell("<think>\nhm, <tool_call>?\nyes\n</think>\n\nHello <think>"))
    assert joined(events) == [Reasoning("hm, <tool_call>?\nyes"), Content("Hello <think>")]


@pytest.mark.parametrize("tail", ["<think>", "<|im_start|>assistant\n<think>\n"])
def test_reasoning_that_the_prompt_opened_goes_on(tail: str) -> None:
    assert told("hm\n</think>\nHello", tail) == AssistantMessage("Hello", "hm", (), ())


def test_reasoning_that_never_closes_is_reasoning_to_the_end() -> None:
    assert told("<think>\nhm </thi") == AssistantMessage(None, "hm </thi", (), ())


def test_a_message_that_almost_begins_with_reasoning_is_content() -> None:
    assert told("<thinking> so") == AssistantMessage("<thinking> so", None, (), ())
    assert told("<thi") == AssistantMessage("<thi", None, (), ())


def test_ids_are_unique_by_default_and_have_openais_shape() -> None:
    stream = parser_for(format_named("hermes"), PLAIN, TOOLS)
    ids = [event.id for event in started(stream.feed(PLAIN.spell(TWO)))]
    assert len(set(ids)) == 2
    assert all(len(call_id) == 29 and call_id.startswith("call_") and int(call_id[5:], 16) >= 0 for call_id in ids)


def test_a_closed_parser_takes_no_more_and_closes_once() -> None:
    stream = parser()
    stream.feed(PLAIN.spell("<"))
    assert stream.close() == [Content("<")]
    assert stream.close() == []
    with pytest.raises(ValueError, match="one parser per generation"):
        stream.feed([65])


@each_of("piece", [1, 4, 4000])
@each_of("kind", ["prose", "argument", "reasoning", "keys"])
def test_the_cost_of_a_character_does_not_grow_with_the_length(kind: str, piece: int) -> None:
    def scanned(length: int) -> int:
        body = "lorem < \n" * (length // 9)
        text = {
            "prose": body,
            "reasoning": "<think>" + body,
            "argument": '<tool_call>{"arguments": {"a": "' + body.replace("\n", "\\u000a"),
            "keys": '<tool_call>{"name": "f", "arguments": {' + '"key": 12345, ' * (length // 14),
        }[kind]
        stream = parser()
        ids = list(text.encode())
        for at in range(0, len(ids), piece):
            stream.feed(ids[at : at + piece])
        return stream.scanned

    short, long = scanned(4_000), scanned(64_000)
    assert long <= 17 * short
    assert long <= 8 * 64_000


def test_a_message_has_openais_shape() -> None:
    message = parse("hermes", "<think>hm</think>Hi " + ONE, TOOLS, new_id=Numbered())
    assert message.to_openai() == {
        "role": "assistant",
        "content": "Hi ",
        "reasoning_content": "hm",
        "tool_calls": [
            {
                "id": "call_0",
                "type": "function",
                "function": {"name": "get_weather", "arguments": '{"city": "Paris", "days": 3}'},
            }
        ],
    }
    assert parse("hermes", "", TOOLS).to_openai() == {"role": "assistant", "content": None}
