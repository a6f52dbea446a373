"""The items of a request: those of the stored responses that it follows, and its own, with references resolved.

Knows nothing of messages: it returns items in their canonical form, each with its place in the request.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from gateway.context.history.client_messages import MOST_MESSAGES, LeftOut, checked_call, count_calls, in_todays_form
from gateway.errors import RequestInvalid
from gateway.escape import escape_text
from gateway.serve.responses.items import (
    REFERENCE,
    SUMMARY,
    Item,
    NewName,
    Summary,
    clean_item,
    unpacked_summary,
    user_message,
)
from gateway.serve.responses.response_request import NotStored, ResponsesRequest
from gateway.serve.responses.response_store import Stored, StoredResponse

# Messages in the shape of chats among a request's items: their calls and results become items of their own.
#
# Clients that speak both APIs keep one history and send it to either, so an assistant's message may hold `tool_calls`,
# and a result may be a message of the role `tool`. What is no such message stays as it is. Source: OpenAI's API
# reference, "Create chat completion", `messages`.


def as_items(given: Sequence[object]) -> Iterator[tuple[str, object]]:
    """Yield the items of an input, each with its place in it. Raises `RequestInvalid` for a call without a name."""
    for number, each in enumerate(in_todays_form(given)):
        where = f"input[{number}]"
        message: Mapping[str, Any] = cast("Mapping[str, Any]", each) if isinstance(each, Mapping) else {}
        of_chat = message.get("type", "message") == "message"
        if of_chat and message.get("role") == "tool":
            yield where, {"type": "function_call_output", **_call_id(message), "output": message.get("content")}
        elif of_chat and message.get("role") == "assistant" and message.get("tool_calls"):
            yield from ((where, item) for item in _of_answer(message, where))
        else:
            yield where, each


def _call_id(message: Mapping[str, Any]) -> dict[str, Any]:
    given: object = message.get("tool_call_id")
    return {"call_id": str(given) if isinstance(given, int) else given}


def _of_answer(message: Mapping[str, Any], where: str) -> Iterator[dict[str, Any]]:
    if isinstance(thought := message.get("reasoning_content"), str):
        yield {"type": "reasoning", "content": [{"type": "reasoning_text", "text": thought}]}
    if message.get("content"):
        yield {"type": "message", "role": "assistant", "content": message["content"]}
    calls: object = message["tool_calls"]
    for call in cast("list[object]", calls) if isinstance(calls, list) else [calls]:
        checked = checked_call(call, f"{where}.tool_calls")
        yield {"type": "function_call", "call_id": checked.get("id"), **checked["function"]}


_SHOWN: Final = 100
_PREFIXES: Final = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "tool_search_call": "tsc",
    "tool_search_output": "tso",
    "compaction": "cmp",
    "mcp_call": "mcp",
    "mcp_list_tools": "mcpl",
    "mcp_approval_response": "mcpa",
}


@dataclass(slots=True)
class Gathered:
    """The items of one request."""

    earlier: list[Item] = field(default_factory=list[Item])
    """Items of the responses that it follows."""
    own: list[tuple[str, Item]] = field(default_factory=list[tuple[str, Item]])
    """Its own items, each with its place in the request."""
    left_out: LeftOut = field(default_factory=lambda: LeftOut("input."))

    def tools_in(self, kind: str) -> list[dict[str, Any]]:
        """The tools that its items of a type add to those of the request."""
        return [tool for _, item in self.placed if item["type"] == kind for tool in item["tools"]]

    @property
    def summary(self) -> Summary | None:
        """The summary that stands for all that precedes it; None: there is none, or none that can be read."""
        packed = (item["encrypted_content"] for _, item in reversed(self.placed) if item["type"] == SUMMARY)
        return next(filter(None, map(unpacked_summary, packed)), None)

    @property
    def placed(self) -> list[tuple[str, Item]]:
        """All items with their places, in order."""
        return [*(("previous_response_id", item) for item in self.earlier), *self.own]


class _Loader:
    """Reads stored items: for one request no more bytes than a request may send itself."""

    def __init__(self, most: int) -> None:
        self._left = most

    def load(self, items: Sequence[bytes], where: str) -> list[Item]:
        """Parse stored items. Raises `RequestInvalid` for too many bytes, before parsing any."""
        self._left -= sum(map(len, items))
        if self._left < 0:
            words = (
                f"{where}: the stored items have more bytes than a request may have (limits.body_bytes): refer to fewer"
            )
            raise RequestInvalid(words, param=where)
        return [json.loads(item) for item in items]


def gather(request: ResponsesRequest, store: Stored, owner: str, most: int) -> Gathered:
    """Gather the items of a request.

    Args:
        most: maximum bytes of stored items: one may be referred to many times, and a chain of responses may be long.

    Raises:
        RequestInvalid: names the invalid item.
        NotStored: what the request refers to is not kept for this owner.
    """
    loader = _Loader(most)
    before = request.previous_response_id
    earlier = [] if before is None else loader.load(_earlier(before, store, owner), "previous_response_id")
    found = Gathered(earlier)
    if isinstance(request.input, str):
        found.own.append(("input[0]", user_message(request.input)))
    given = _listed(request.input)
    if len(found.earlier) + len(found.own) + sum(1 + count_calls(each) for each in given) > MOST_MESSAGES:
        raise RequestInvalid(f"input: the conversation has more than {MOST_MESSAGES} items: shorten it", param="input")
    for where, each in as_items(given):
        item = clean_item(each, where, found.left_out)
        if item is None:
            continue
        if item["type"] == REFERENCE:
            (item,) = loader.load([_resolved(item["id"], where, store, owner)], where)
        found.own.append((where, item))
    if not found.own and not found.earlier:
        unread = f" besides those that can't be read ({', '.join(found.left_out.names)})" if given else ""
        raise RequestInvalid(f"input: expected a text, or a list of at least one item{unread}", param="input")
    return found


def kept(response: dict[str, Any], before: str | None, gathered: Gathered, owner: str, name: NewName) -> StoredResponse:
    """A response in the form in which it is stored. `name` makes ids for input items without one."""
    own: list[Item] = []
    input_ids: list[str] = []
    for _, item in gathered.own:
        given = "id" in item
        own.append(item if given else {**item, "id": f"{_PREFIXES.get(item['type'], 'item')}_{name()}"})
        # By an id that the client chose itself, or referred to, the item can't be found in this response.
        input_ids.append("" if given else own[-1]["id"])
    output: list[Item] = response["output"]
    return StoredResponse(
        owner=owner,
        id=response["id"],
        before=before,
        head=_json({key: value for key, value in response.items() if key != "output"}),
        input=tuple(map(_json, own)),
        output=tuple(map(_json, output)),
        item_ids=(*input_ids, *(item["id"] for item in output)),
    )


def shown(stored: StoredResponse) -> dict[str, Any]:
    """A stored response as it was sent."""
    return {**json.loads(stored.head), "output": [json.loads(item) for item in stored.output]}


def _listed(given: object) -> Sequence[object]:
    """The listed items of an input; none where the input is a text. Raises `RequestInvalid`."""
    if isinstance(given, str):
        return ()
    if isinstance(given, Mapping):
        return [cast("Mapping[str, Any]", given)]
    if isinstance(given, list | tuple):
        return cast("Sequence[object]", given)
    raise RequestInvalid("input: expected a text, or a list of items", param="input")


def _earlier(response_id: str, store: Stored, owner: str) -> list[bytes]:
    chain = store.chain(owner, response_id)
    if chain is None:
        raise NotStored(
            f"there is no stored response {escape_text(response_id, _SHOWN)!r}, or one that it follows is missing: "
            "it may have expired; send the conversation's items instead",
            "previous_response_not_found",
            "previous_response_id",
        )
    items = [item for each in chain for item in (*each.input, *each.output)]
    # A chain that is summed up again and again must not grow for ever: a summary stands for all that precedes it.
    last = next((n for n in range(len(items) - 1, -1, -1) if _is_summary(items[n])), 0)
    return items[last:]


def _is_summary(item: bytes) -> bool:
    if b'"compaction"' not in item:
        return False
    read = json.loads(item)
    return read["type"] == SUMMARY and unpacked_summary(read["encrypted_content"]) is not None


def _resolved(item_id: str, where: str, store: Stored, owner: str) -> bytes:
    found = store.item(owner, item_id)
    if found is None:
        raise NotStored(
            f"{where}: there is no stored item {escape_text(item_id, _SHOWN)!r}: it may have expired; "
            "send the item itself",
            "item_not_found",
            where,
        )
    return found


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
