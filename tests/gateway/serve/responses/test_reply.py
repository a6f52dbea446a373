"""Events of the agent in the shape of the Responses API: what streams, joined, is what comes whole."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from gateway.agent.events import AgentEvent, Finished, GenerationFinished, ToolFinished
from gateway.proxy.naming import ToolEntry
from gateway.serve.responses.response_reply import MadeCall, ResponseOptions, ResponseReply
from gateway.serve.responses.response_tools import RequestTools, read_tools
from gateway.toolcalls.stream.output_events import (
    CallArguments,
    CallClosed,
    CallStarted,
    Content,
    Diagnostic,
    Reasoning,
)

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
SAY = ToolEntry("up__say", "up", "say", {"name": "up__say", "inputSchema": {"type": "object"}})
ERASE = ToolEntry("up__erase", "up", "erase", {"name": "up__erase", "inputSchema": {"type": "object"}})
GIVEN: list[dict[str, Any]] = [
    {"type": "function", "name": "paint"},
    {"type": "custom", "name": "patch"},
    {"type": "namespace", "name": "files", "tools": [{"type": "function", "name": "read"}]},
    {"type": "mcp", "server_label": "up", "require_approval": {"always": {"tool_names": ["erase"]}}},
]
HEAD: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "completed_at": None,
    "error": None,
    "incomplete_details": None,
    "usage": None,
}
GENERATION = GenerationFinished(9, 5, 0, 0, 0, 0, None, 0.1, guessed=False)
QUESTION: dict[str, Any] = {"id": "mcpr_c", "server_label": "up", "name": "erase", "arguments": "{}"}


def tools() -> RequestTools:
    return read_tools(GIVEN, (SAY, ERASE), lambda: frozenset({"up"}))


def reply(*, made: Sequence[MadeCall] = (), lists: Sequence[str] = (), **options: Any) -> ResponseReply:
    return ResponseReply(HEAD, tools(), ResponseOptions(now=lambda: 2, **options), made=made, lists=lists)


@st.composite
def turns(draw: st.DrawFn) -> list[AgentEvent]:
    """What an agent may tell, in an order in which it may tell it."""
    events: list[AgentEvent] = []
    running: list[ToolFinished] = []
    index = 0
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["content", "reasoning", "call", "broken", "hidden", "end"]))
        if kind in ("content", "reasoning"):
            make = Content if kind == "content" else Reasoning
            events += [make(text) for text in draw(st.lists(st.text(" \nab", min_size=1, max_size=3), max_size=3))]
        elif kind in ("call", "broken"):
            name = draw(st.sampled_from(["paint", "patch", "files__read", "up__say", "up__erase", "codec_call_tool"]))
            arguments = json.dumps({"input": draw(st.text("ab\n", max_size=4))})
            cut = draw(st.integers(0, len(arguments)))
            pieces = filter(None, (arguments[:cut], arguments[cut:]))
            events += [CallStarted(index, f"c{index}", name), *(CallArguments(index, piece) for piece in pieces)]
            if kind == "call":
                events.append(CallClosed(index, f"c{index}", name, arguments, ()))
                if name not in tools().client and draw(st.booleans()):
                    running.append(finished(f"c{index}", name, is_error=draw(st.booleans())))
            else:
                events.append(Diagnostic("truncated", "the stream ended inside a call", index))
            index += 1
        elif kind == "hidden":
            running.append(finished(f"h{len(events)}", "paint", is_error=True))
        else:
            events += [*running, GENERATION]
            running = []
    reason = draw(st.sampled_from(["stop", "length", "tool_calls"]))
    return [*events, *running, Finished(reason, prompt_ids=20, cached_ids=7, completion_ids=9)]


def finished(call_id: str, name: str, *, is_error: bool) -> ToolFinished:
    return ToolFinished(call_id, name, "{}", "It is 42.", "shim", 0, 4, is_error=is_error, seconds=0.1)


def joined(events: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The items that were done, each put together from its own events."""
    begun: dict[int, dict[str, Any]] = {}
    for event in events:
        kind, index = event["type"].removeprefix("response."), event.get("output_index", -1)
        if kind == "output_item.added":
            assert index not in begun
            begun[index] = {"added": event["item"], "text": "", "done": False}
            continue
        if index < 0:
            continue
        item = begun[index]
        assert not item["done"], event
        assert event.get("item_id", item["added"]["id"]) == item["added"]["id"]
        if kind.endswith(".delta"):
            item["text"] += event["delta"]
        elif kind in DONE:
            assert event[DONE[kind]] == item["text"]
        elif kind == "output_item.done":
            item["done"] = True
            assert text_of(event["item"]) == item["text"]
            yield event["item"]
    assert all(item["done"] for item in begun.values())


DONE = {
    "output_text.done": "text",
    "reasoning_text.done": "text",
    "reasoning_summary_text.done": "text",
    "function_call_arguments.done": "arguments",
    "mcp_call_arguments.done": "arguments",
    "custom_tool_call_input.done": "input",
}


def text_of(item: dict[str, Any]) -> str:
    """What was streamed of an item."""
    match item["type"]:
        case "message":
            return item["content"][0]["text"]
        case "reasoning":
            return (item.get("content") or item["summary"])[0]["text"]
        case "function_call" | "mcp_call":
            return item["arguments"]
        case "custom_tool_call":
            return item["input"]
        case _:
            return ""


@given(turns(), st.booleans(), st.booleans(), st.booleans())
def test_stream_joined_is_the_whole_response(
    told: list[AgentEvent], summarized: bool, sealed: bool, begins: bool
) -> None:
    kept: list[dict[str, Any]] = []
    seal = (lambda text: f"sealed {text}") if sealed else None
    made = (
        [MadeCall(QUESTION, "gone", is_error=False), MadeCall(QUESTION, "error: no", is_error=True)] if begins else []
    )
    lists = ["up"] if begins else []
    told_by = reply(made=made, lists=lists, summarized=summarized, seal=seal, keep=kept.append)
    fed = [event for each in told for event in told_by.feed(each)]
    events: list[dict[str, Any]] = json.loads(json.dumps([*told_by.begin(), *fed]))
    whole = json.loads(json.dumps(told_by.completion()))

    for event in events:
        EVENT.validate_python(event, strict=True)
    Response.model_validate(whole, strict=True)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[-1]["type"] == f"response.{whole['status']}"
    assert events[-1]["response"] == whole == json.loads(json.dumps(kept[0]))
    done = sorted(joined(events), key=lambda item: [i["id"] for i in whole["output"]].index(item["id"]))
    assert done == whole["output"]
    texts = "".join(text_of(item) for item in done if item["type"] == "message")
    assert texts.strip() == "".join(event.text for event in told if isinstance(event, Content)).strip()
    thought = "".join(text_of(item) for item in done if item["type"] == "reasoning")
    assert thought.strip() == "".join(event.text for event in told if isinstance(event, Reasoning)).strip()
    closed = [event.id for event in told if isinstance(event, CallClosed) and ends_answer(event)]
    whole_calls = [item for item in done if is_call(item) and item.get("status") != "incomplete"]
    calls = [item.get("call_id") or item["id"].rpartition("_")[2] for item in whole_calls]
    assert calls == closed


def ends_answer(call: CallClosed) -> bool:
    return call.name in tools().client or tools().to_approve(call) is not None


def is_call(item: dict[str, Any]) -> bool:
    return item["type"] in ("function_call", "custom_tool_call", "mcp_approval_request")


@pytest.mark.parametrize(
    ("reason", "status"), [("stop", "completed"), ("tool_calls", "completed"), ("length", "incomplete")]
)
def test_how_an_answer_ends_is_its_status(reason: Any, status: str) -> None:
    told = reply()
    told.feed(Content("It"))
    told.feed(Finished(reason, prompt_ids=20, cached_ids=7, completion_ids=9))
    whole = told.completion()

    assert whole["status"] == whole["output"][0]["status"] == status
    assert whole["incomplete_details"] == ({"reason": "max_output_tokens"} if status == "incomplete" else None)
    assert whole["usage"]["input_tokens_details"] == {"cached_tokens": 7, "cache_write_tokens": 13}
    assert whole["usage"]["total_tokens"] == 29


def test_stream_that_breaks_ends_with_what_there_is_and_why() -> None:
    told = reply()
    told.begin()
    told.feed(Content("It"))
    (failed,) = told.fail(RuntimeError("secret"))

    EVENT.validate_python(failed, strict=True)
    assert failed["type"] == "response.failed"
    assert failed["response"]["status"] == "failed"
    assert failed["response"]["error"]["code"] == "server_error"
    assert "secret" not in json.dumps(failed)


def test_completion_before_the_end_is_a_fault_of_the_program() -> None:
    with pytest.raises(RuntimeError, match="before the answer was finished"):
        reply().completion()


@pytest.mark.parametrize("name", ["erase.all", "up__erase.all", "up__erase_all_0"])
def test_request_names_a_tool_by_its_own_name_its_public_name_or_its_alias(name: str) -> None:
    entry = ToolEntry("up__erase_all_0", "up", "erase.all", ERASE.definition, alias_of="up__erase.all")
    wish = {"type": "mcp", "server_label": "up", "require_approval": {"always": {"tool_names": [name]}}}
    found = read_tools([wish], (entry,), lambda: frozenset({"up"}))

    assert found.to_approve(CallClosed(0, "c", entry.name, "{}", ())) is not None
    assert found.public("up", name) == entry.name


@pytest.mark.parametrize("reverse", [False, True])
def test_approval_of_a_tool_is_not_for_another_one_whose_public_name_is_its_own_name(reverse: bool) -> None:
    one, other = (ToolEntry(f"up__{own}", "up", own, ERASE.definition) for own in ("erase", "up__erase"))
    found = read_tools([], (other, one) if reverse else (one, other), lambda: frozenset({"up"}))

    assert [found.public("up", each.tool) for each in (one, other)] == [one.name, other.name]


def test_renamed_tool_has_its_new_name_in_items() -> None:
    entry = ToolEntry("remove", "up", "erase", {**ERASE.definition, "name": "remove"}, renamed="remove")
    found = read_tools([{"type": "mcp", "server_label": "up"}], (entry,), lambda: frozenset({"up"}))

    assert [tool["name"] for tool in found.listed("up")] == ["remove"]
    assert found.origin("remove") == ("up", "remove")
    assert found.public("up", "remove") == "remove"
    assert found.public("up", "erase") is None


def test_sign_of_life_repeats_the_response_where_every_item_is_complete() -> None:
    """Clients take the response of this event for all there is: an item that is being written would be lost."""
    told = reply()
    told.feed(Content("Hello"))
    within = told.ping()
    told.feed(CallStarted(0, "c", "up__say"))
    call = told.ping()
    told.feed(CallClosed(0, "c", "up__say", "{}", ()))
    told.feed(ToolFinished("c", "up__say", "{}", "It is.", "shim", 0, 3, is_error=False, seconds=0.1))
    (whole,) = told.ping()

    assert (within, call) == ([], [])
    EVENT.validate_python(whole, strict=True)
    assert whole["type"] == "response.in_progress"
    assert [item["type"] for item in whole["response"]["output"]] == ["message", "mcp_call"]
