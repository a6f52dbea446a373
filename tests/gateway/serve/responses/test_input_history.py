"""The items of a request: what it sends itself, what it refers to, and those of the responses that it follows."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from gateway.context.history.client_messages import MOST_MESSAGES
from gateway.errors import RequestInvalid
from gateway.serve.responses.input_history import Gathered, as_items, gather, kept, shown
from gateway.serve.responses.items import Summary, packed_summary, user_message
from gateway.serve.responses.response_request import NotStored, ResponsesRequest
from gateway.serve.responses.response_store import StoredResponse

Json = dict[str, Any]
SUMMARY = {"type": "compaction", "encrypted_content": packed_summary(Summary("So far.", [], []))}
FOREIGN = {"type": "compaction", "encrypted_content": "somebody else's"}


def written(*items: Json) -> tuple[bytes, ...]:
    return tuple(json.dumps(item).encode() for item in items)


def stored(given: Sequence[Json], output: Sequence[Json] = ()) -> StoredResponse:
    return StoredResponse("ann", "resp_1", None, b"{}", written(*given), written(*output), ())


class Store:
    """One chain of responses, `resp_1`, and one item, `msg_1`, that are kept for Ann."""

    def __init__(self, *chain: StoredResponse) -> None:
        self._chain = chain

    def chain(self, owner: str, response_id: str) -> Any:
        return self._chain if (owner, response_id) == ("ann", "resp_1") else None

    def item(self, owner: str, item_id: str) -> bytes | None:
        return json.dumps(user_message("kept")).encode() if (owner, item_id) == ("ann", "msg_1") else None


def gathered(*chain: StoredResponse, most: int = 10_000, owner: str = "ann", **fields: Any) -> Gathered:
    request = ResponsesRequest.model_validate(fields)
    return gather(request, Store(*chain), owner, most)  # pyright: ignore[reportArgumentType]


def test_text_is_one_item_of_the_user_and_one_object_a_list_of_it() -> None:
    assert gathered(input="hi").placed == [("input[0]", user_message("hi"))]
    assert gathered(input={"role": "user", "content": "hi"}).placed == [("input[0]", user_message("hi"))]
    assert gathered(input=["a", "b"]).placed == [("input[0]", user_message("a")), ("input[1]", user_message("b"))]


def test_messages_in_the_shape_of_chats_become_items_with_their_place() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    answer = {"role": "assistant", "content": "Well,", "reasoning_content": "Hm.", "tool_calls": [call]}
    results = [{"role": "tool", "tool_call_id": each, "content": "42"} for each in ("c", 7, None)]
    plain = {"role": "assistant", "content": "Done."}
    item = {"type": "reasoning", "role": "tool"}

    assert list(as_items([answer, *results, plain, item, 5])) == [
        ("input[0]", {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm."}]}),
        ("input[0]", {"type": "message", "role": "assistant", "content": "Well,"}),
        ("input[0]", {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}),
        *(
            (f"input[{number}]", {"type": "function_call_output", "call_id": call_id, "output": "42"})
            for number, call_id in enumerate(("c", "7", None), 1)
        ),
        ("input[4]", plain),
        ("input[5]", item),
        ("input[6]", 5),
    ]


def test_call_in_the_shape_of_chats_without_anything_beside_it_is_one_item() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}

    assert [item for _, item in as_items([{"role": "assistant", "content": "", "tool_calls": call}])] == [
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    ]


def test_items_of_the_responses_before_stand_in_front_of_its_own() -> None:
    chain = [stored([user_message("a")], [user_message("b")]), stored([user_message("c")])]
    found = gathered(*chain, previous_response_id="resp_1", input="d")

    assert found.earlier == [user_message(text) for text in "abc"]
    assert [where for where, _ in found.placed] == ["previous_response_id"] * 3 + ["input[0]"]


@pytest.mark.parametrize(
    ("items", "left"),
    [(["a", SUMMARY, "b"], [SUMMARY, "b"]), (["a", FOREIGN], ["a", FOREIGN]), (["a", SUMMARY], [SUMMARY])],
)
def test_summary_among_stored_items_stands_for_all_before_it(items: list[Any], left: list[Any]) -> None:
    def form(each: Any) -> Json:
        return user_message(each) if isinstance(each, str) else each

    found = gathered(stored([form(each) for each in items]), previous_response_id="resp_1", input="z")

    assert found.earlier == [form(each) for each in left]
    assert found.summary == (Summary("So far.", [], []) if SUMMARY in items else None)


def test_item_that_is_referred_to_is_found_for_its_owner_alone() -> None:
    assert gathered(input=[{"id": "msg_1"}]).own == [("input[0]", user_message("kept"))]
    for owner, given in (("eve", "msg_1"), ("ann", "msg_2")):
        with pytest.raises(NotStored, match=f"there is no stored item '{given}'") as refused:
            gathered(input=["a", {"id": given}], owner=owner)
        assert refused.value.param == "input[1]"


@pytest.mark.parametrize(("owner", "given"), [("eve", "resp_1"), ("ann", "resp_2")])
def test_response_that_is_not_kept_for_its_owner_is_named(owner: str, given: str) -> None:
    with pytest.raises(NotStored, match=f"there is no stored response '{given}'") as refused:
        gathered(stored([user_message("a")]), previous_response_id=given, input="b", owner=owner)
    assert refused.value.param == "previous_response_id"


def test_stored_items_of_one_request_have_a_bound_of_bytes() -> None:
    size = len(json.dumps(user_message("kept")).encode())

    assert len(gathered(input=[{"id": "msg_1"}] * 3, most=3 * size).own) == 3
    with pytest.raises(RequestInvalid, match="more bytes than a request may have") as refused:
        gathered(input=[{"id": "msg_1"}] * 3, most=3 * size - 1)
    assert refused.value.param == "input[2]"


def test_items_of_a_conversation_are_bounded_in_number() -> None:
    chain = stored([user_message("a")] * 10)

    assert len(gathered(chain, previous_response_id="resp_1", input=["b"] * (MOST_MESSAGES - 10), most=10**7).own)
    with pytest.raises(RequestInvalid, match=f"more than {MOST_MESSAGES} items"):
        gathered(chain, previous_response_id="resp_1", input=["b"] * (MOST_MESSAGES - 9), most=10**7)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "input: expected a text, or a list of at least one item"),
        ([{"type": "web_search_call"}], "at least one item besides those that can't be read (input.web_search_call)"),
        (5, "input: expected a text, or a list of items"),
    ],
)
def test_request_without_an_item_that_can_be_read_is_refused(given: Any, words: str) -> None:
    with pytest.raises(RequestInvalid) as refused:
        gathered(input=given)
    assert str(refused.value).endswith(words)
    assert refused.value.param == "input"


def test_response_is_stored_with_ids_for_its_items_and_shown_as_it_was_sent() -> None:
    names = iter("xyz")
    found = Gathered()
    found.own = [("input[0]", user_message("a")), ("input[1]", {**user_message("b"), "id": "mine"})]
    found.own.append(("input[2]", {"type": "compaction_trigger"}))
    response = {"id": "resp_2", "status": "completed", "output": [{"id": "msg_9", "type": "message"}]}
    record = kept(response, "resp_1", found, "ann", lambda: next(names))

    assert (record.owner, record.id, record.before) == ("ann", "resp_2", "resp_1")
    assert [json.loads(each)["id"] for each in record.input] == ["msg_x", "mine", "item_y"]
    assert list(record.item_ids) == ["msg_x", "", "item_y", "msg_9"]
    assert shown(record) == response


def test_tools_that_items_add_are_those_of_their_type() -> None:
    found = Gathered([{"type": "additional_tools", "tools": [{"name": "a"}]}])
    found.own = [("input[0]", {"type": "tool_search_output", "tools": [{"name": "b"}]})]

    assert found.tools_in("additional_tools") == [{"name": "a"}]
    assert found.tools_in("tool_search_output") == [{"name": "b"}]
