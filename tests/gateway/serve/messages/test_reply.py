"""Events of the agent in the shape of Anthropic's API: a stream, joined, is the whole, and its package reads both."""

import json
from typing import Any

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from anthropic.types.beta import BetaMessage, BetaRawMessageStreamEvent
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from gateway.agent.events import AgentEvent, Finished, GenerationFinished, ToolFinished
from gateway.context.memory import RequestFigures
from gateway.engine.interface import Timings
from gateway.errors import EngineUnavailable
from gateway.serve.messages.message_reply import MessageOptions, MessagesReply, form_of, written
from gateway.toolcalls.stream.output_events import (
    CallArguments,
    CallClosed,
    CallStarted,
    Content,
    Diagnostic,
    Reasoning,
)
from tests.cases import each_of

TIMINGS = Timings(prompt_n=30, cache_n=70, generated_n=5, prompt_seconds=0.1, generate_seconds=0.2)
GENERATED = GenerationFinished(100, 5, 4, 0, 11, 70, TIMINGS, 0.25, guessed=False)
RAN = ToolFinished("c0", "up__say", '{"n": 1e3}', "It is 42.", "leaf", 4, 0, is_error=False, seconds=0.01)
DONE = Finished("stop", prompt_ids=200, cached_ids=70, completion_ids=9, reasoning_ids=4)
EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
BETA_EVENT: TypeAdapter[Any] = TypeAdapter(BetaRawMessageStreamEvent)


def call(index: int, *fragments: str, whole: bool = True) -> list[AgentEvent]:
    arguments = [CallArguments(index, fragment) for fragment in fragments]
    closed = CallClosed(index, f"call_{index}", "paint", "".join(fragments), ())
    broken = Diagnostic("truncated", "the stream ended inside a call", index)
    return [CallStarted(index, f"call_{index}", "paint"), *arguments, closed if whole else broken]


def reply(
    options: MessageOptions | None = None, *events: AgentEvent, **more: Any
) -> tuple[list[dict[str, Any]], MessagesReply]:
    made = MessagesReply("model", 130, options or MessageOptions(thinking="shown"), **more)
    chunks = [*made.begin(), *[chunk for event in events for chunk in made.feed(event)]]
    return json.loads(json.dumps(chunks)), made


def whole(made: MessagesReply) -> dict[str, Any]:
    return json.loads(written(made.completion()))


def joined(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """The message of a stream, as a client joins it. Blocks come one after the other, each between its two ends."""
    first, *rest = chunks
    assert first["type"] == "message_start"
    message: dict[str, Any] = first["message"]
    pieces: list[str] | None = None
    for chunk in rest:
        match chunk["type"]:
            case "content_block_start":
                assert pieces is None
                assert chunk["index"] == len(message["content"])
                message["content"].append(chunk["content_block"])
                pieces = []
            case "content_block_delta":
                assert pieces is not None
                assert chunk["index"] == len(message["content"]) - 1
                for key, value in chunk["delta"].items():
                    if key == "partial_json":
                        pieces.append(value)
                    elif key != "type":
                        message["content"][-1][key] += value
            case "content_block_stop":
                assert pieces is not None
                if pieces:
                    message["content"][-1]["input"] = json.loads("".join(pieces))
                pieces = None
            case "message_delta":
                assert pieces is None
                message |= {**chunk["delta"], "usage": chunk["usage"], "codec": chunk["codec"]}
    assert [chunk["type"] for chunk in rest[-2:]] == ["message_delta", "message_stop"]
    return message


WORDS = st.text(min_size=1, max_size=5)
OBJECTS = st.dictionaries(st.text(max_size=3), st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS)


@st.composite
def answers(draw: st.DrawFn) -> list[AgentEvent]:
    """What an agent may emit: parts in any order, calls with arguments cut anywhere, some of them broken off."""
    events: list[AgentEvent] = []
    calls = 0
    for kind in draw(st.lists(st.sampled_from(["say", "think", "call", "break", "ran", "note"]), max_size=8)):
        match kind:
            case "say":
                events += [Content(text) for text in draw(st.lists(WORDS, min_size=1, max_size=3))]
            case "think":
                events += [Reasoning(text) for text in draw(st.lists(WORDS, min_size=1, max_size=3))]
            case "ran":
                events.append(RAN)
            case "note":
                events += [GENERATED, RequestFigures(100, 70, 70, 70), Diagnostic("malformed", "x")]
            case _:
                text = json.dumps(draw(OBJECTS))
                at = draw(st.integers(0, len(text)))
                events += call(calls, *filter(None, [text[:at], text[at:]]), whole=kind == "call")
                calls += 1
    reason = draw(st.sampled_from(["stop", "length", "tool_calls"]))
    stop = draw(st.none() | st.just("###")) if reason == "stop" else None
    return [*events, GENERATED, Finished(reason, 200, draw(st.integers(0, 200)), 9, stop=stop)]


MANNERS = st.builds(
    MessageOptions,
    thinking=st.sampled_from(["shown", "omitted", "hidden"]),
    ran=st.booleans(),
    marked=st.booleans(),
    ignored=st.lists(st.text(max_size=5), max_size=2),
)


@given(answers(), MANNERS)
def test_events_joined_are_the_message_and_the_package_reads_both(
    events: list[AgentEvent], options: MessageOptions
) -> None:
    chunks, made = reply(options, *events)
    message = whole(made)

    assert joined(chunks) == message
    for chunk in chunks:
        BETA_EVENT.validate_python(chunk, strict=True)
        if not options.ran:
            EVENT.validate_python(chunk, strict=True)
    BetaMessage.model_validate(message, strict=True)
    if not options.ran:
        Message.model_validate(message, strict=True)


@given(answers())
def test_arguments_piece_by_piece_say_the_same_of_every_call_that_is_whole(events: list[AgentEvent]) -> None:
    whole_calls = [event for event in events if not (isinstance(event, Diagnostic) and event.index is not None)]
    broken = {event.index for event in events if isinstance(event, Diagnostic)} - {None}
    whole_calls = [e for e in whole_calls if getattr(e, "index", None) not in broken or isinstance(e, Diagnostic)]

    chunks, made = reply(MessageOptions(thinking="shown", eager=lambda name: True), *whole_calls)

    assert joined(chunks) == whole(made)


def test_call_that_breaks_off_before_a_limit_is_never_seen_unless_its_pieces_were_asked_for() -> None:
    chunks, made = reply(None, Content("So."), *call(0, '{"a": [1', whole=False), DONE)
    eager, made_eager = reply(
        MessageOptions(eager=lambda name: name == "paint"), *call(0, '{"a": [1', whole=False), DONE
    )

    assert [block["type"] for block in whole(made)["content"]] == ["text"]
    assert "paint" not in str(chunks)
    assert whole(made)["codec"]["diagnostics"][0]["kind"] == "truncated"
    # A stream can't take back what it has shown; its block ends, and the message says why.
    assert [chunk["type"] for chunk in eager[1:4]] == [
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
    ]
    assert whole(made_eager)["content"] == []


@each_of("text", ["1000", "1000.0", "1e3", "1e999", "-0.0", "9" * 5000, '"\\u00e9\\/"', "[1,  2]"])
def test_arguments_keep_the_form_in_which_the_model_wrote_them(text: str) -> None:
    arguments = f'{{"n":{text}}}'
    chunks, made = reply(None, *call(0, arguments), DONE)

    assert f'"input":{arguments}' in written(made.completion()).decode()
    assert [c["delta"]["partial_json"] for c in chunks if c.get("delta", {}).get("partial_json")] == [arguments]


@pytest.mark.parametrize(
    ("finished", "room", "told"),
    [
        (DONE, 9, ("end_turn", None)),
        (Finished("stop", 1, 0, 1, stop="##"), 9, ("stop_sequence", "##")),
        (Finished("tool_calls", 1, 0, 1), 9, ("tool_use", None)),
        (Finished("length", 1, 0, 1), 9, ("max_tokens", None)),
        (Finished("length", 1, 0, 1), 0, ("model_context_window_exceeded", None)),
    ],
)
def test_end_is_told_with_its_reason(finished: Finished, room: int, told: tuple[str, str | None]) -> None:
    chunks, made = reply(None, finished, room=lambda: room)

    assert (whole(made)["stop_reason"], whole(made)["stop_sequence"]) == told
    assert chunks[-2]["delta"] == {"stop_reason": told[0], "stop_sequence": told[1]}


def test_usage_is_what_was_processed_and_what_was_found() -> None:
    plain, marked = (whole(reply(MessageOptions(marked=m), DONE)[1])["usage"] for m in (False, True))
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")

    assert [plain[name] for name in names] == [130, 0, 70, 9]
    assert [marked[name] for name in names] == [0, 130, 70, 9]
    assert plain["output_tokens_details"] == {"thinking_tokens": 4}


def test_calls_of_the_gateway_are_seen_by_who_asked_for_them() -> None:
    servers = {"up__say": "up"}
    _, shown = reply(MessageOptions(ran=True), RAN, Content("So."), DONE, server_of=servers.get)
    _, hidden = reply(MessageOptions(), RAN, Content("So."), DONE)

    use, result, _ = whole(shown)["content"]
    assert use == {"type": "mcp_tool_use", "id": "c0", "name": "up__say", "input": {"n": 1000.0}, "server_name": "up"}
    assert result["tool_use_id"] == "c0"
    assert result["content"] == [{"type": "text", "text": "It is 42."}]
    assert [block["type"] for block in whole(hidden)["content"]] == ["text"]
    assert whole(hidden)["codec"]["tool_results"][0]["text"] == "It is 42."


def test_stream_that_breaks_ends_with_an_error_that_names_its_request() -> None:
    _, made = reply(None, Content("So"), request_id="req_1")

    assert made.fail(EngineUnavailable("gone")) == [
        {"type": "error", "error": {"type": "overloaded_error", "message": "gone"}, "request_id": "req_1"}
    ]


def test_events_are_named() -> None:
    assert form_of("req_1").events([{"type": "ping"}]) == b'event: ping\ndata: {"type":"ping"}\n\n'


def test_what_a_model_wrote_is_never_taken_for_arguments() -> None:
    _, made = reply(None, Content('"0.", "0"'), *call(0, '{"a": "0."}'), *call(1, "{}"), DONE)

    assert [block.get("input", block.get("text")) for block in whole(made)["content"]] == [
        '"0.", "0"',
        {"a": "0."},
        {},
    ]


def test_completion_before_the_end_is_a_fault_of_the_program() -> None:
    with pytest.raises(RuntimeError, match="before the answer was finished"):
        reply(None, Content("So"))[1].completion()


@pytest.mark.parametrize("is_error", [False, True])
def test_search_for_tools_is_shown_with_what_it_found_or_as_an_error(is_error: bool) -> None:
    searched = ToolFinished("c0", "search", "{}", "", "shim", 0, 0, is_error=is_error, seconds=0.1, found=("a", "b"))
    _, made = reply(MessageOptions(search="search"), searched, DONE)

    found = whole(made)["content"][1]
    assert found["tool_use_id"].endswith("c0")
    assert found["content"] == (
        {"type": "tool_search_tool_result_error", "error_code": "invalid_tool_input"}
        if is_error
        else {
            "type": "tool_search_tool_search_result",
            "tool_references": [{"type": "tool_reference", "tool_name": name} for name in ("a", "b")],
        }
    )
