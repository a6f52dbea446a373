"""Items of a request's input in their one form, the ids in them, and the calls that clients approve."""

from typing import Any

import pytest

from gateway.context.history.client_messages import LeftOut
from gateway.errors import RequestInvalid
from gateway.serve.responses.items import (
    LOST,
    ApprovedCalls,
    MadeCall,
    Named,
    Summary,
    approval_request_id,
    clean_item,
    name_in,
    named_by,
    packed_summary,
    tool_error,
    unpacked_summary,
)
from tests.cases import each_of

Json = dict[str, Any]
DONE = {"status": "completed"}


def said(role: str, *parts: Json) -> Json:
    return {"type": "message", "role": role, **DONE, "content": list(parts)}


def asked(text: str) -> Json:
    return {"type": "input_text", "text": text}


def answered(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


CALL = {"call_id": "c", "name": "look"}
MCP = {"type": "mcp_call", "server_label": "up", "name": "say", "arguments": "{}"}
ASKED = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "up", "name": "say", "arguments": "{}"}
ALLOWED = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
FOUND = {"type": "tool_search_output", **DONE}


@each_of(
    ("item", "form"),
    [
        ("hi", said("user", asked("hi"))),
        ({"role": "user", "content": "hi"}, said("user", asked("hi"))),
        ({"role": "system", "content": [asked("a"), asked("b")]}, said("system", asked("a"), asked("b"))),
        ({"type": "message", "role": "assistant", "content": "hi"}, said("assistant", answered("hi"))),
        ({"role": "user", "content": "hi", "id": "m"}, {**said("user", asked("hi")), "id": "m"}),
        ({"role": "user", "content": "hi", "id": ""}, said("user", asked("hi"))),
        ({"id": "m"}, {"type": "item_reference", "id": "m"}),
        ({"type": "reasoning"}, {"type": "reasoning", "summary": []}),
        (
            {"type": "reasoning", "summary": "a", "content": "b", "encrypted_content": "c"},
            {
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": "a"}],
                "content": [{"type": "reasoning_text", "text": "b"}],
                "encrypted_content": "c",
            },
        ),
        ({"type": "function_call", **CALL}, {"type": "function_call", **CALL, "arguments": "{}", **DONE}),
        (
            {"type": "function_call", "id": "f", "name": "look", "arguments": '{"a":1}', "namespace": "n"},
            {"type": "function_call", "call_id": "f", "name": "look", "arguments": '{"a":1}', "namespace": "n", **DONE}
            | {"id": "f"},
        ),
        (
            {"type": "custom_tool_call", "tool_call_id": "c", "name": "look", "input": "x"},
            {"type": "custom_tool_call", **CALL, "input": "x", **DONE},
        ),
        (
            {"type": "function_call_output", "call_id": "c", "output": "x"},
            {"type": "function_call_output", "call_id": "c", "output": "x", **DONE},
        ),
        (
            {"type": "custom_tool_call_output", "call_id": "c", "output": [asked("x")]},
            {"type": "custom_tool_call_output", "call_id": "c", "output": [asked("x")], **DONE},
        ),
        (MCP, {**MCP, **DONE}),
        (
            {**MCP, "output": "x", "approval_request_id": "mcpr_1"},
            {**MCP, "output": "x", "approval_request_id": "mcpr_1", **DONE},
        ),
        ({**MCP, "error": {"message": "no"}}, {**MCP, "error": tool_error("no"), "status": "failed"}),
        ({**MCP, "error": "no"}, {**MCP, "error": tool_error("no"), "status": "failed"}),
        ({**MCP, "error": 5}, {**MCP, "error": tool_error("error: the call failed"), "status": "failed"}),
        (ASKED, ASKED),
        (ALLOWED, ALLOWED),
        ({**ALLOWED, "approve": False, "reason": "no"}, {**ALLOWED, "approve": False, "reason": "no"}),
        (
            {"type": "mcp_list_tools", "server_label": "up", "tools": [{"name": "made up"}]},
            {"type": "mcp_list_tools", "server_label": "up", "tools": []},
        ),
        (
            {"type": "additional_tools", "tools": [{"name": "a"}, 5]},
            {"type": "additional_tools", "role": "developer", "tools": [{"name": "a"}]},
        ),
        ({"type": "additional_tools", "tools": 5}, {"type": "additional_tools", "role": "developer", "tools": []}),
        (
            {"type": "tool_search_call", "call_id": "c", "arguments": "{}"},
            {"type": "tool_search_call", "call_id": None, "execution": "server", "arguments": "{}", **DONE},
        ),
        (
            {"type": "tool_search_output", "execution": "client", "call_id": "c", "tools": [{"name": "a"}]},
            {**FOUND, "call_id": "c", "execution": "client", "tools": [{"name": "a"}]},
        ),
        (
            {"type": "tool_search_output", "execution": "client"},
            {**FOUND, "call_id": "", "execution": "client", "tools": []},
        ),
        ({"type": "compaction", "encrypted_content": "x"}, {"type": "compaction", "encrypted_content": "x"}),
        ({"type": "compaction_summary", "encrypted_content": 5}, {"type": "compaction", "encrypted_content": ""}),
        ({"type": "compaction_trigger"}, {"type": "compaction_trigger"}),
    ],
)
def test_item_has_one_form_however_it_was_written(item: Any, form: Json) -> None:
    left_out = LeftOut()

    assert clean_item(item, "input[0]", left_out) == form
    assert clean_item(form, "input[0]", LeftOut()) == form


@each_of(
    ("item", "param"),
    [
        (5, "input[0]"),
        ({}, "input[0].type"),
        ({"type": 5}, "input[0].type"),
        ({"role": "wizard"}, "input[0].role"),
        ({"type": "function_call", "name": "look"}, "input[0].call_id"),
        ({"type": "function_call", "call_id": "c"}, "input[0].name"),
        ({"type": "function_call", **CALL, "namespace": 5}, "input[0].namespace"),
        ({"type": "reasoning", "encrypted_content": 5}, "input[0].encrypted_content"),
        ({**ALLOWED, "approve": 1}, "input[0].approve"),
        ({**ALLOWED, "reason": 1}, "input[0].reason"),
        ({**MCP, "approval_request_id": 5}, "input[0].approval_request_id"),
    ],
)
def test_item_that_can_not_be_read_is_named_by_its_place(item: Any, param: str) -> None:
    with pytest.raises(RequestInvalid) as refused:
        clean_item(item, "input[0]", LeftOut())

    assert refused.value.param == param
    assert refused.value.message.startswith(f"{param} ")


def test_item_of_an_unknown_type_is_left_out_and_a_field_without_effect_named() -> None:
    left_out = LeftOut()

    assert clean_item({"type": "web_search_call", "id": "w"}, "input[0]", left_out) is None
    assert clean_item({"role": "user", "content": "hi", "id": "m", "status": "x", "zeal": 1}, "input[0]", left_out)
    assert left_out.names == ("web_search_call", "message.zeal")


def test_summary_that_was_packed_is_read_again_and_what_others_wrote_is_none() -> None:
    summary = Summary("So far.", ["look"], ["Be brief."], [{"name": "look"}])

    assert unpacked_summary(packed_summary(summary)) == summary
    for other in ("", "somebody else's", "codec1.summary.", "codec1.summary.e30=", packed_summary(Summary("", [], []))):
        assert unpacked_summary(other) is None


@pytest.mark.parametrize(
    ("an_id", "name"), [("resp_n.rest_x", "n"), ("resp_n", "n"), ("mcpr_a.b", "a"), ("n", ""), ("", "")]
)
def test_name_is_the_part_of_an_id_behind_its_prefix(an_id: str, name: str) -> None:
    assert name_in(an_id) == name


OTHER = {**ALLOWED, "approval_request_id": "mcpr_2"}


@each_of(
    ("previous", "given", "named"),
    [
        (None, "hi", Named(None, [])),
        (None, [{"role": "user", "id": "m"}, "hi"], Named(None, [])),
        ("resp_1", [{"id": "m"}], Named("resp_1", ["m"])),
        (5, [{"id": "m"}, {"type": "item_reference", "id": "n"}, {"id": 5}], Named("m", ["m", "n"])),
        (None, [ALLOWED], Named("mcpr_1", [])),
        (None, [ALLOWED, OTHER], Named("mcpr_2", [])),
        (None, [OTHER, {**ALLOWED, "approve": False}], Named("mcpr_2", [])),
        (None, [ALLOWED, {"role": "assistant", "content": "hi"}], Named(None, [])),
        (None, [ALLOWED, MCP], Named(None, [])),
        (None, [MCP, ALLOWED], Named("mcpr_1", [])),
        (None, [{**ALLOWED, "approval_request_id": 5}], Named(None, [])),
    ],
)
def test_one_id_decides_where_a_request_is_answered(previous: object, given: object, named: Named) -> None:
    assert named_by(previous, given) == named


def test_id_of_an_approval_request_holds_its_name_and_a_signature_of_the_whole_call() -> None:
    made = approval_request_id(lambda *signed: "+".join(signed), "c", "n", {**ASKED, "arguments": "[]"})

    assert made == "mcpr_n.n+c+up+say+[]_c"


def request(number: int, arguments: str = "") -> Json:
    return {"id": f"mcpr_{number}", "arguments": arguments}


def test_approval_is_good_for_one_call_of_its_owner_whose_result_is_then_known() -> None:
    calls = ApprovedCalls()
    calls.ask("ann", "mcpr_1")
    open_to = calls.is_open("ann", request(1)), calls.is_open("eve", request(1)), calls.is_open("ann", request(2))
    calls.begin("ann", request(1))
    lost = calls.made(request(1))
    calls.note(MadeCall(request(1), "done", is_error=False))

    assert open_to == (True, False, False)
    assert not calls.is_open("ann", request(1))
    assert lost == MadeCall(request(1), LOST, is_error=True)
    assert calls.made(request(1)) == MadeCall(request(1), "done", is_error=False)
    assert calls.made(request(2)) is None


def test_1000_approval_requests_of_one_client_are_open_and_the_oldest_is_dropped_first() -> None:
    calls = ApprovedCalls()
    calls.ask("eve", "mcpr_0")
    for number in range(1001):
        calls.ask("ann", f"mcpr_{number}")

    assert [calls.is_open("ann", request(number)) for number in (0, 1, 1000)] == [False, True, True]
    assert calls.is_open("eve", request(0))


def test_50000_approval_requests_are_open_in_all_and_who_asked_longest_ago_loses_the_oldest() -> None:
    calls = ApprovedCalls()
    for owner in range(50):
        for number in range(1000):
            calls.ask(str(owner), f"mcpr_{number}")
    all_open = calls.is_open("0", request(0))
    calls.begin("0", request(0))
    calls.ask("0", "mcpr_0")
    before = calls.is_open("1", request(0))
    calls.ask("new", "mcpr_0")

    assert (all_open, before) == (True, True)
    assert [calls.is_open("1", request(number)) for number in (0, 1)] == [False, True]
    assert calls.is_open("0", request(0))
    assert calls.is_open("new", request(0))


@pytest.mark.parametrize(("most", "kept"), [(3 * 540, [1, 2, 3]), (3 * 540 - 1, [2, 3])])
def test_results_are_kept_up_to_a_bound_of_bytes_and_the_oldest_dropped_first(most: int, kept: list[int]) -> None:
    calls = ApprovedCalls(most)
    for number in (1, 2, 3):
        # 500 bytes, and 4 for each of 10 characters; the second note takes the place of the first.
        calls.note(MadeCall(request(number, "12345"), "abc", is_error=False))
        calls.note(MadeCall(request(number, "12345"), "abcde", is_error=False))

    assert [number for number in (1, 2, 3) if calls.made(request(number)) is not None] == kept
