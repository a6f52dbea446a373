"""Items of a request's input in canonical form, their ids, and the calls that clients approve."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple, cast

from pydantic import Field, TypeAdapter

from gateway.context.history.client_messages import (
    LeftOut,
    arguments_text,
    parts_of,
    text_of_result,
    text_of_result_part,
    texts_of_parts,
)
from gateway.errors import RequestInvalid
from gateway.escape import cut_text

# Items of a request's input, checked and converted to the canonical form in which they are read, stored and listed.
#
# Short forms are expanded, and unknown fields are dropped. Items of unknown types, such as calls that OpenAI's servers
# run, are left out, and the answer names them: clients repeat their histories. Source: OpenAI's API reference, "Create
# a response", `input`, and "List input items".

Item = dict[str, Any]

REFERENCE: Final = "item_reference"
ADDITIONAL_TOOLS: Final = "additional_tools"
FOUND: Final = "tool_search_output"
SUMMARY: Final = "compaction"
COMPACT: Final = "compaction_trigger"
_NAMES: Final = frozenset({"id", "tool_call_id", "status", "role"})
"""Fields of items that say which one it is, and what is known of it here."""
_SHOWN: Final = 64


class ItemPlace:
    """The place of an item in the request, for error messages."""

    def __init__(self, where: str, left_out: LeftOut | None = None) -> None:
        """`left_out`: takes the types of parts that the model does not read."""
        self.where = where
        self.left_out = left_out or LeftOut()

    def error(self, words: str, field: str = "") -> RequestInvalid:
        """Return an error about the item, or about one of its fields."""
        place = f"{self.where}.{field}" if field else self.where
        return RequestInvalid(f"{place} {words}", param=place)

    def text(self, item: Mapping[str, Any], field: str) -> str:
        """Return a field that must be a string. Raises `RequestInvalid`."""
        value = item.get(field)
        if not isinstance(value, str):
            raise self.error(f"is {_repr(value)}; expected a string", field)
        return value

    def texts(self, value: object, field: str, role: str = "assistant") -> list[str]:
        """Return the texts of a content: a string, or a list of text parts. Raises `RequestInvalid`."""
        where = f"{self.where}.{field}"
        return [*texts_of_parts(role, parts_of(value, where), where, self.left_out)]

    def call_id(self, item: Mapping[str, Any]) -> str:
        """Return the id of a call; some clients write it where chats have it, or only as the item's. Raises."""
        found = next((key for key in ("call_id", "tool_call_id", "id") if item.get(key) is not None), "call_id")
        return self.text(item, found)


def clean_item(item: object, where: str, left_out: LeftOut) -> Item | None:
    """An item in its canonical form; None for one to leave out. Raises `RequestInvalid` that names the place.

    `left_out`: takes the types of items and parts that the model does not read.
    """
    place = ItemPlace(where, left_out)
    if isinstance(item, str):
        return user_message(item)
    if not isinstance(item, dict):
        raise place.error("must be an object")
    fields = cast("dict[str, Any]", item)
    kind = fields.get("type") or ("message" if "role" in fields else REFERENCE if "id" in fields else None)
    if not isinstance(kind, str):
        raise place.error(f"is {_repr(kind)}; expected a string", "type")
    read = _READERS.get(kind)
    if read is None:
        left_out.add(kind)
        return None
    cleaned = {"type": kind, **read(fields, place)}
    left_out.add_fields(kind, fields, cleaned.keys() | _NAMES)
    given = fields.get("id")
    return {**cleaned, "id": given} if isinstance(given, str) and given else cleaned


def _read_message(item: Mapping[str, Any], place: ItemPlace) -> Item:
    role = item.get("role")
    if role not in ("user", "system", "developer", "assistant"):
        raise place.error(f"is {_repr(role)}; expected user, system, developer or assistant", "role")
    texts = place.texts(item.get("content"), "content", role)
    return {"role": role, "status": "completed", "content": [text_part(role, text) for text in texts]}


def user_message(text: str) -> Item:
    """An input that is a plain text, as an item."""
    return {"type": "message", "role": "user", "status": "completed", "content": [text_part("user", text)]}


def text_part(role: str, text: str) -> Item:
    """A text part of a message by this role."""
    if role != "assistant":
        return {"type": "input_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _read_reasoning(item: Mapping[str, Any], place: ItemPlace) -> Item:
    summary = place.texts(item.get("summary") or [], "summary")
    content = place.texts(item.get("content") or [], "content")
    sealed = item.get("encrypted_content")
    if sealed is not None and not isinstance(sealed, str):
        raise place.error("must be a string", "encrypted_content")
    cleaned: Item = {"summary": [{"type": "summary_text", "text": text} for text in summary]}
    if content:
        cleaned["content"] = [{"type": "reasoning_text", "text": text} for text in content]
    return {**cleaned, "encrypted_content": sealed} if sealed else cleaned


def _read_call(item: Mapping[str, Any], place: ItemPlace) -> Item:
    names = {"call_id": place.call_id(item), "name": place.text(item, "name")}
    arguments = arguments_text(item.get("arguments"))
    return {**names, "arguments": arguments, **_namespace(item, place), "status": "completed"}


def _read_custom(item: Mapping[str, Any], place: ItemPlace) -> Item:
    names = {"call_id": place.call_id(item), "name": place.text(item, "name")}
    names["input"] = text_of_result(item.get("input"), place.left_out)
    return {**names, **_namespace(item, place), "status": "completed"}


def _namespace(item: Mapping[str, Any], place: ItemPlace) -> Item:
    return {} if item.get("namespace") is None else {"namespace": place.text(item, "namespace")}


def _read_output(item: Mapping[str, Any], place: ItemPlace) -> Item:
    output: object = item.get("output")
    if isinstance(output, list):
        parts = (text_of_result_part(part, place.left_out) for part in cast("list[object]", output))
        output = [{"type": "input_text", "text": text} for text in parts]
    else:
        output = text_of_result(output, place.left_out)
    return {"call_id": place.call_id(item), "output": output, "status": "completed"}


def _read_reference(item: Mapping[str, Any], place: ItemPlace) -> Item:
    return {"id": place.text(item, "id")}


def _read_mcp(item: Mapping[str, Any], place: ItemPlace) -> Item:
    cleaned: Item = {name: place.text(item, name) for name in ("server_label", "name")}
    cleaned["arguments"] = arguments_text(item.get("arguments"))
    if item.get("output") is not None:
        cleaned["output"] = text_of_result(item["output"], place.left_out)
    if item.get("approval_request_id") is not None:
        cleaned["approval_request_id"] = place.text(item, "approval_request_id")
    error: object = item.get("error")
    if error is not None:
        cleaned["error"] = tool_error(_error_text(error))
    return {**cleaned, "status": "completed" if error is None else "failed"}


def tool_error(text: str) -> Item:
    """The `error` of a call that the gateway ran."""
    return {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}], "message": text}


def _error_text(error: object) -> str:
    message = cast("Mapping[str, Any]", error).get("message") if isinstance(error, Mapping) else error
    return message if isinstance(message, str) else "error: the call failed"


def _read_request(item: Mapping[str, Any], place: ItemPlace) -> Item:
    return {name: place.text(item, name) for name in ("id", "server_label", "name", "arguments")}


def _read_response(item: Mapping[str, Any], place: ItemPlace) -> Item:
    if not isinstance(item.get("approve"), bool):
        raise place.error("must be true or false", "approve")
    reason = {} if item.get("reason") is None else {"reason": place.text(item, "reason")}
    asked = place.text(item, "approval_request_id")
    return {"approval_request_id": asked, "approve": item["approve"], **reason}


def _read_list(item: Mapping[str, Any], place: ItemPlace) -> Item:
    # It matters only that the client was shown the list; what tools there are, the client can't say.
    no_tools: list[Item] = []
    return {"server_label": place.text(item, "server_label"), "tools": no_tools}


def _read_tools(item: Mapping[str, Any], place: ItemPlace) -> Item:
    given: object = item.get("tools")
    tools = cast("list[object]", given) if isinstance(given, list) else []
    return {"role": "developer", "tools": [tool for tool in tools if isinstance(tool, dict)]}


def _read_search(item: Mapping[str, Any], place: ItemPlace) -> Item:
    return {**_search_fields(item, place), "arguments": arguments_text(item.get("arguments"))}


def _read_found(item: Mapping[str, Any], place: ItemPlace) -> Item:
    return {**_search_fields(item, place), "tools": _read_tools(item, place)["tools"]}


def _search_fields(item: Mapping[str, Any], place: ItemPlace) -> Item:
    by_client = item.get("execution") == "client"
    known = any(isinstance(item.get(key), str) for key in ("call_id", "tool_call_id", "id"))
    named = {"call_id": (place.call_id(item) if known else "") if by_client else None}
    return {**named, "execution": "client" if by_client else "server", "status": "completed"}


def _read_summary(item: Mapping[str, Any], place: ItemPlace) -> Item:
    packed: object = item.get("encrypted_content")
    return {"type": SUMMARY, "encrypted_content": packed if isinstance(packed, str) else ""}


def _read_trigger(item: Mapping[str, Any], place: ItemPlace) -> Item:
    return {}


def _repr(value: object) -> str:
    return cut_text(repr(value), _SHOWN)


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any], ItemPlace], Item]]] = {
    "message": _read_message,
    "reasoning": _read_reasoning,
    "function_call": _read_call,
    "function_call_output": _read_output,
    "custom_tool_call": _read_custom,
    "custom_tool_call_output": _read_output,
    REFERENCE: _read_reference,
    ADDITIONAL_TOOLS: _read_tools,
    "tool_search_call": _read_search,
    FOUND: _read_found,
    SUMMARY: _read_summary,
    "compaction_summary": _read_summary,
    COMPACT: _read_trigger,
    "mcp_call": _read_mcp,
    "mcp_list_tools": _read_list,
    "mcp_approval_request": _read_request,
    "mcp_approval_response": _read_response,
}


# A summary of a conversation in an item, which clients keep and send back without looking into it.
#
# It is written so that any gateway can read it, also after a restart: its holder could send the same words in a message
# of the user's, so nothing is gained by forging one.

_MARK: Final = "codec1.summary."


_Words = Annotated[list[str], Field(max_length=10_000, fail_fast=True)]
_NO_TOOLS: Final = list[Item]()


class Summary(NamedTuple):
    """What an item holds of a summary."""

    text: str
    found: _Words
    """Names of tools that are defined behind it."""
    system: _Words
    """Words of the system's that stand in front of it."""
    tools: Annotated[list[Item], Field(max_length=10_000, fail_fast=True)] = _NO_TOOLS
    """Definitions that other items brought, which a client may drop: the model has read them."""


_SUMMARY: Final = TypeAdapter(Summary)


def packed_summary(summary: Summary) -> str:
    """The `encrypted_content` of a summary."""
    return _MARK + urlsafe_b64encode(json.dumps(summary).encode()).decode()


def unpacked_summary(packed: str) -> Summary | None:
    """The summary in an `encrypted_content`; None where another server wrote it, or where it holds no text."""
    if not packed.startswith(_MARK):
        return None
    try:
        read = _SUMMARY.validate_json(urlsafe_b64decode(packed.removeprefix(_MARK)))
    except ValueError:
        return None
    return read if read.text else None


# Ids of responses and of their items: each says which replica has what it names.
#
# An id is a prefix and a name from which the replicas can tell its owner (`gateway/replicas`). Finds in a request's
# body the one id that decides which replica answers the request. No IO.

NewName = Callable[[], str]
"""Returns a new name for something that lives in this process."""

_APPROVAL: Final = "mcp_approval_response"
_OF_AN_ANSWER: Final = ("reasoning", "function_call", "custom_tool_call", "mcp_call", "mcp_approval_request")


def name_in(an_id: str) -> str:
    """The name in an id; "" where it has none."""
    return an_id.partition("_")[2].partition(".")[0]


@dataclass(frozen=True, slots=True)
class Named:
    """The ids of earlier answers that a request names."""

    routing_id: str | None
    """The id that decides where the request is answered; None: anywhere.

    One is enough: anything else that the request refers to must live in the same place, or is reported as unknown.
    """
    items: Sequence[str]
    """Ids of the items that it refers to."""


def named_by(previous: object, given: object) -> Named:
    """The ids that a request names. `previous`: the response that it follows; `given`: its input."""
    listed = cast("Sequence[object]", given) if isinstance(given, list | tuple) else ()
    items = [cast("dict[str, Any]", item) for item in listed if isinstance(item, dict)]
    referred = [item["id"] for item in items if _is_reference(item) and isinstance(item["id"], str)]
    routing_id = previous if isinstance(previous, str) else next(iter(referred), None) or _approved(items)
    return Named(routing_id, referred)


def _is_reference(item: Mapping[str, Any]) -> bool:
    kind = item.get("type") or (None if "role" in item else REFERENCE)
    return kind == REFERENCE and "id" in item


def _approved(items: Sequence[Mapping[str, Any]]) -> str | None:
    """The approval request that the client approves after the last answer: only there does an approval cause a call."""
    for item in reversed(items):
        if item.get("type") in _OF_AN_ANSWER or item.get("role") == "assistant":
            return None
        approval_id = item.get("approval_request_id")
        if item.get("type") == _APPROVAL and item.get("approve") is True and isinstance(approval_id, str):
            return approval_id
    return None


# Calls of the gateway's tools that clients approve: the approval request, and the result of each call that was made.
#
# An approval request is good for one call. A client may send its approval again, because its connection broke or
# because it wants another answer. The call is not made again then; its first result is used, or an error if that is no
# longer known. Bounded: the oldest approval requests of a client, and the oldest results, are dropped first. No IO.

APPROVAL: Final = "mcpr_"
"""Prefix of the id of an approval request."""
LOST: Final = "error: this call has already been made, and its result is no longer known"
EXPIRED: Final = (
    "error: this call was not made now: either it has already been made and its result is no longer known, or it was "
    "asked for too long ago"
)
_OPEN: Final = 1000
"""Approval requests of one client that may be unanswered."""
_OPEN_IN_ALL: Final = 50_000
_BYTES: Final = 8_000_000
_NOTE_BYTES: Final = 500
"""Bytes that a result takes besides its texts."""

Sign = Callable[[str, str, str, str, str], str]


def approval_request_id(sign: Sign, call_id: str, name: str, approval_request: Item) -> str:
    """The id of a call's approval request. `name`: from `NewName`; says which replica asked.

    The id contains a signature of the call, so that exactly the call is made that was asked about, even if the client
    has changed the request.
    """
    signed = sign(
        name, call_id, approval_request["server_label"], approval_request["name"], approval_request["arguments"]
    )
    return f"{APPROVAL}{name}.{signed}_{call_id}"


@dataclass(frozen=True, slots=True)
class MadeCall:
    """An approved call that has been made, before the model continues."""

    approval_request: Item
    text: str
    is_error: bool


class ApprovedCalls:
    """The approved calls that this process has made."""

    def __init__(self, most: int = _BYTES) -> None:
        """`most`: bytes of all results together, roughly."""
        self._most = most
        self._size = 0
        self._made: OrderedDict[str, MadeCall] = OrderedDict()
        """By the ids of their approval requests, which are signed for their owners."""
        self._open: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()
        """By owner, the ids of the approval requests whose calls have not been made."""
        self._number_open = 0

    def ask(self, owner: str, approval_request_id: str) -> None:
        """Note an approval request that is shown to its owner."""
        own = self._open.setdefault(owner, OrderedDict())
        self._open.move_to_end(owner)
        own[approval_request_id] = None
        self._number_open += 1
        if len(own) > _OPEN:
            self._close(owner, next(iter(own)))
        while self._number_open > _OPEN_IN_ALL:
            # Of whoever has asked for nothing for longest.
            oldest = next(iter(self._open))
            self._close(oldest, next(iter(self._open[oldest])))

    def is_open(self, owner: str, approval_request: Item) -> bool:
        """Whether the call may still be made once it is approved."""
        return approval_request["id"] in self._open.get(owner, ())

    def made(self, approval_request: Item) -> MadeCall | None:
        """The result of a call; None where it has not been made."""
        return self._made.get(approval_request["id"])

    def begin(self, owner: str, approval_request: Item) -> None:
        """Note that a call is about to be made. Unless its result is noted later, it counts as lost."""
        self._close(owner, approval_request["id"])
        self.note(MadeCall(approval_request, LOST, is_error=True))

    def note(self, made: MadeCall) -> None:
        """Note the result of a call."""
        self._drop(made.approval_request["id"])
        self._made[made.approval_request["id"]] = made
        self._size += _size(made)
        while self._size > self._most:
            self._drop(next(iter(self._made)))

    def _close(self, owner: str, approval_request_id: str) -> None:
        own = self._open[owner]
        del own[approval_request_id]
        self._number_open -= 1
        if not own:
            del self._open[owner]

    def _drop(self, approval_request_id: str) -> None:
        dropped = self._made.pop(approval_request_id, None)
        self._size -= 0 if dropped is None else _size(dropped)


def _size(made: MadeCall) -> int:
    return _NOTE_BYTES + 4 * (len(made.text) + len(made.approval_request["arguments"]))
