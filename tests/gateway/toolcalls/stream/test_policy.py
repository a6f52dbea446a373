"""What becomes of calls that are not as they should be: every choice of `Policy`, and that chunks never matter."""

import itertools
import re

from hypothesis import given
from hypothesis import strategies as st

from gateway.toolcalls.formats.registry import format_named, format_names
from gateway.toolcalls.parser import AssistantMessage, ToolCall, join_events, parse, parser_for, stream
from gateway.toolcalls.stream.output_events import CallArguments, CallClosed, CallStarted, Policy
from tests.cases import each_of
from tests.gateway.toolcalls.fakes import PLAIN, TOOLS, Numbered

KNOWN = '<tool_call>\n{"name": "get_time", "arguments": {"tz": "CET"}}\n</tool_call>'
UNKNOWN = '<tool_call>\n{"name": "no_such", "arguments": {"a": "</tool_call>"}}\n</tool_call>'
MALFORMED = '<tool_call>\n{"name": "get_time", "arguments": {"tz": ]}}\n</tool_call>'
NAMELESS = '<tool_call>\n{"arguments": {}}\n</tool_call>'
UNKNOWN_IS_CONTENT = Policy(unknown_tool="content")
MALFORMED_IS_DROPPED = Policy(malformed="drop")
TRUNCATED_IS_DROPPED = Policy(truncated="drop")
TEXT_AFTER_IS_DROPPED = Policy(text_after_call="drop")
TIME_IS_ANSWERED = Policy(answered=("get_time",))


def told(text: str, policy: Policy, name: str = "hermes") -> AssistantMessage:
    return parse(name, text, TOOLS, new_id=Numbered(), policy=policy)


def kinds(message: AssistantMessage) -> list[tuple[str, int | None]]:
    return [(problem.kind, problem.index) for problem in message.diagnostics]


def test_the_default_loses_nothing() -> None:
    assert Policy() == Policy("call", "content", "keep", "content")
    assert parse("hermes", UNKNOWN, TOOLS).tool_calls[0].name == "no_such"


def test_a_call_of_an_unknown_tool_is_its_own_text_where_the_policy_says_so() -> None:
    message = told(f"a\n{UNKNOWN} b\n{KNOWN}", UNKNOWN_IS_CONTENT)
    assert message.content == f"a\n{UNKNOWN} b"
    assert message.tool_calls == (ToolCall("call_0", "get_time", '{"tz": "CET"}'),)
    assert kinds(message) == [("malformed", None)]
    assert "offers no tool 'no_such'" in message.diagnostics[0].message


def test_a_call_whose_arguments_come_first_is_judged_by_its_name_all_the_same() -> None:
    text = '<tool_call>{"arguments": {"a": 1}, "name": "no_such"}</tool_call>'
    assert told(text, UNKNOWN_IS_CONTENT).content == text
    known = text.replace("no_such", "get_time")
    assert told(known, UNKNOWN_IS_CONTENT).tool_calls == (ToolCall("call_0", "get_time", '{"a": 1}'),)


def test_where_no_tool_is_offered_every_call_is_unknown() -> None:
    message = parse("hermes", KNOWN, (), policy=UNKNOWN_IS_CONTENT)
    assert (message.content, message.tool_calls) == (KNOWN, ())


def test_an_unknown_call_that_the_end_cuts_off_is_text_too() -> None:
    message = told(UNKNOWN[:40], UNKNOWN_IS_CONTENT)
    assert (message.content, message.tool_calls, kinds(message)) == (UNKNOWN[:40], (), [("truncated", None)])


def test_a_name_in_a_diagnostic_is_quoted_and_short() -> None:
    message = told(f'<tool_call>{{"name": "a\\n{"b" * 200}"}}</tool_call>', UNKNOWN_IS_CONTENT)
    assert "'a\\n" + "b" * 78 + "'" in message.diagnostics[0].message


def test_a_malformed_region_is_dropped_up_to_its_closing_marker() -> None:
    message = told(f"a {MALFORMED}b {NAMELESS}c\n{KNOWN}", MALFORMED_IS_DROPPED)
    assert message.content == "a b c"
    assert [call.name for call in message.tool_calls] == ["get_time", "get_time"]
    assert message.tool_calls[0].arguments == '{"tz": '
    assert kinds(message) == [("malformed", 0), ("malformed", None)]
    assert all("dropped" in problem.message for problem in message.diagnostics)


def test_a_malformed_region_without_its_closing_marker_is_dropped_up_to_the_next_region() -> None:
    message = told(f"<tool_call>nonsense {KNOWN}!", MALFORMED_IS_DROPPED)
    assert message.content == "!"
    assert [call.name for call in message.tool_calls] == ["get_time"]
    assert told("a<tool_call>nonsense <tool", MALFORMED_IS_DROPPED).content == "a"


def test_a_malformed_region_of_a_family_without_closing_markers_is_dropped_up_to_the_next_region() -> None:
    message = told('a[TOOL_CALLS]f[ARGS]{"a" 1} and more[TOOL_CALLS]g[ARGS]{}', MALFORMED_IS_DROPPED, "mistral")
    assert [call.name for call in message.tool_calls] == ["f", "g"]
    assert message.content == "a"
    assert kinds(message) == [("malformed", 0)]


def test_where_the_stream_ends_in_a_dropped_region_nothing_of_it_is_told() -> None:
    text = "a<tool_call>nonsense</tool_call>"
    for end in range(len("a<tool_call>n"), len(text) + 1):
        assert told(text[:end], MALFORMED_IS_DROPPED).content == "a"


def test_a_truncated_call_is_left_out_and_reported() -> None:
    whole = KNOWN + "\n" + KNOWN
    # From its last brace on, nothing of the second call is missing but its closing marker.
    for end in range(len(KNOWN), whole.rindex("}}") + 1):
        message = told(whole[:end], TRUNCATED_IS_DROPPED)
        assert [call.arguments for call in message.tool_calls] == ['{"tz": "CET"}']
    cut = told(whole[:-20], TRUNCATED_IS_DROPPED)
    assert (cut.content, kinds(cut)) == (None, [("truncated", None)])
    early = told(KNOWN[:15], TRUNCATED_IS_DROPPED)
    assert (early.content, early.tool_calls, kinds(early)) == (None, (), [("truncated", None)])


def test_a_malformed_call_is_only_its_text_where_calls_wait_to_be_whole() -> None:
    message = told(f"a {MALFORMED} b", TRUNCATED_IS_DROPPED)
    assert message.tool_calls == ()
    assert message.content == f"a {MALFORMED} b"
    assert kinds(message) == [("malformed", None)]


def closed_by(name: str, text: str, policy: Policy) -> tuple[list[tuple[str, str, str]], AssistantMessage]:
    """The name, the arguments and the flaw of each call that was closed, and the message."""
    stream_parser = parser_for(format_named(name), PLAIN, TOOLS, new_id=Numbered(), policy=policy)
    events = stream_parser.feed(PLAIN.spell(text)) + stream_parser.close()
    closed = [event for event in events if isinstance(event, CallClosed)]
    return [(call.name, call.arguments, call.flaw) for call in closed], join_events(events)


def test_a_call_that_can_not_be_read_is_closed_with_its_flaw_where_it_gets_an_answer() -> None:
    calls, message = closed_by("hermes", f"a {MALFORMED} b {KNOWN} c", TIME_IS_ANSWERED)
    wrong = f"a tool call breaks its format at character {len('a ') + MALFORMED.index(']')}"
    assert calls == [
        ("get_time", '{"tz": null}', f"the call can't be read: {wrong}; call again, with valid JSON"),
        ("get_time", '{"tz": "CET"}', ""),
    ]
    assert message.content == "a  b  c"
    assert [(problem.kind, problem.message, problem.index) for problem in message.diagnostics] == [
        ("malformed", wrong, 0)
    ]


def test_other_calls_and_those_that_the_end_cuts_off_get_no_answer() -> None:
    unanswered = MALFORMED.replace("get_time", "get_weather")
    calls, message = closed_by("hermes", unanswered, TIME_IS_ANSWERED)
    assert (calls, message.content, kinds(message)) == ([], unanswered, [("malformed", 0)])
    calls, message = closed_by("hermes", KNOWN[:-30], TIME_IS_ANSWERED)
    assert (calls, message.content, kinds(message)) == ([], None, [("truncated", 0)])


def test_a_call_without_markers_of_its_own_is_left_out_up_to_the_message_behind_it() -> None:
    start, final = "<|start|>assistant", "<|channel|>final<|message|>Done."
    for end in ("<|call|>", ""):
        text = f'<|channel|>commentary to=functions.get_time<|message|>{{"tz": ]}} and so on{end}{start}{final}'
        calls, message = closed_by("harmony", text, TIME_IS_ANSWERED)
        assert [(name, arguments, bool(flaw)) for name, arguments, flaw in calls] == [
            ("get_time", '{"tz": null}', True)
        ]
        assert message.content == "Done."
    text = '<|channel|>commentary to=functions.get_time<|message|>{"tz": ]} and so on<|call|>Done.'
    assert closed_by("harmony", text, TIME_IS_ANSWERED)[1].content == "Done."
    calls, message = closed_by("llama_3", '{"name": "get_time", "parameters": {"tz": ]} [1] {}', TIME_IS_ANSWERED)
    assert (len(calls), message.content) == (1, None)


def test_text_behind_a_call_is_left_out_and_text_before_it_stays() -> None:
    message = told(f"a {KNOWN} b {KNOWN} c", TEXT_AFTER_IS_DROPPED)
    assert message.content == "a "
    assert len(message.tool_calls) == 2
    assert told("a b", TEXT_AFTER_IS_DROPPED).content == "a b"


policies = st.builds(
    Policy,
    st.sampled_from(["call", "content"]),
    st.sampled_from(["content", "drop"]),
    st.sampled_from(["keep", "drop"]),
    st.sampled_from(["content", "drop"]),
)
texts = st.lists(
    st.sampled_from([KNOWN, UNKNOWN, MALFORMED, NAMELESS, "<tool_call>", "</tool_call>", '{"name": "f"', "\n", "text"]),
    max_size=6,
).map("".join)


@given(texts, policies, st.lists(st.integers(0, 1000), max_size=8))
def test_no_policy_depends_on_how_the_text_was_cut(text: str, policy: Policy, cuts: list[int]) -> None:
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(places)]
    assert stream("hermes", pieces, TOOLS, new_id=Numbered(), policy=policy) == told(text, policy)


@given(texts, policies)
def test_every_policy_reports_what_it_does_not_tell(text: str, policy: Policy) -> None:
    usual, message = told(text, Policy()), told(text, policy)
    if not usual.diagnostics and policy.unknown_tool == "call" and policy.text_after_call == "content":
        assert message == usual
    assert len(message.diagnostics) >= bool(usual.diagnostics)


def test_a_call_waits_to_be_whole_only_where_a_cut_off_one_is_left_out() -> None:
    begun, end = PLAIN.spell(KNOWN.removesuffix("</tool_call>")), PLAIN.spell("</tool_call>")
    whole = [CallStarted, CallArguments, CallClosed]
    for policy, told_early in ((Policy(), whole[:2]), (TRUNCATED_IS_DROPPED, [])):
        stream_parser = parser_for(format_named("hermes"), PLAIN, TOOLS, policy=policy)
        before = stream_parser.feed(begun)
        assert [type(event) for event in before] == told_early
        assert [type(event) for event in before + stream_parser.feed(end)] == whole


def shaped(name: str, tool: str) -> str:
    """A call as the format's own shape has it."""
    words = {"TOOL": tool, "KEY": "tz", "VALUE": "CET"}
    return re.sub(r"\b(TOOL|KEY|VALUE)\b", lambda found: words[found[0]], format_named(name).shape)


every_format = each_of("name", format_names())


@every_format
def test_in_every_format_a_call_of_an_unknown_tool_is_its_own_text(name: str) -> None:
    unknown, known = shaped(name, "no_such"), shaped(name, "get_time")
    assert (told(unknown, UNKNOWN_IS_CONTENT, name).content, told(unknown, UNKNOWN_IS_CONTENT, name).tool_calls) == (
        unknown,
        (),
    )
    assert [call.name for call in told(known, UNKNOWN_IS_CONTENT, name).tool_calls] == ["get_time"]
    assert told(known, UNKNOWN_IS_CONTENT, name).content is None


@every_format
def test_in_every_format_a_call_that_is_cut_off_anywhere_is_left_out(name: str) -> None:
    known = shaped(name, "get_time")
    for end in range(1, len(known)):
        usual, message = told(known[:end], Policy(), name), told(known[:end], TRUNCATED_IS_DROPPED, name)
        assert message.tool_calls == (() if usual.diagnostics else usual.tool_calls)
        assert kinds(message) == [("truncated", None)] * len(usual.diagnostics)


@every_format
def test_in_every_format_text_behind_a_call_is_left_out(name: str) -> None:
    assert told(shaped(name, "get_time") + "after", TEXT_AFTER_IS_DROPPED, name).content is None
