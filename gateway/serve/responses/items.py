"""Items of a request's input, checked and converted to the canonical form in which they are read, stored and listed.

Short forms are expanded, and unknown fields are dropped. Items of unknown types, such as calls that OpenAI's servers
run, are left out, and the answer names them: clients repeat their histories. Source: OpenAI's API reference, "Create a
response", `input`, and "List input items".
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from gateway.context.history.client_messages import arguments_text
from gateway.context.history.contents import LeftOut, parts_of, text_of_result, text_of_result_part, texts_of_parts
from gateway.errors import RequestInvalid
from gateway.observe.escape import cut_text

Item = dict[str, Any]

REFERENCE: Final = "item_reference"
ADDITIONAL_TOOLS: Final = "additional_tools"
_SHOWN: Final = 64


class Place:
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
    place = Place(where, left_out)
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
    given = fields.get("id")
    return {**cleaned, "id": given} if isinstance(given, str) and given else cleaned


def _read_message(item: Mapping[str, Any], place: Place) -> Item:
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


def _read_reasoning(item: Mapping[str, Any], place: Place) -> Item:
    summary = place.texts(item.get("summary") or [], "summary")
    content = place.texts(item.get("content") or [], "content")
    sealed = item.get("encrypted_content")
    if sealed is not None and not isinstance(sealed, str):
        raise place.error("must be a string", "encrypted_content")
    cleaned: Item = {"summary": [{"type": "summary_text", "text": text} for text in summary]}
    if content:
        cleaned["content"] = [{"type": "reasoning_text", "text": text} for text in content]
    return {**cleaned, "encrypted_content": sealed} if sealed else cleaned


def _read_call(item: Mapping[str, Any], place: Place) -> Item:
    names = {"call_id": place.call_id(item), "name": place.text(item, "name")}
    arguments = arguments_text(item.get("arguments"))
    return {**names, "arguments": arguments, **_namespace(item, place), "status": "completed"}


def _read_custom(item: Mapping[str, Any], place: Place) -> Item:
    names = {"call_id": place.call_id(item), "name": place.text(item, "name")}
    names["input"] = text_of_result(item.get("input"), place.left_out)
    return {**names, **_namespace(item, place), "status": "completed"}


def _namespace(item: Mapping[str, Any], place: Place) -> Item:
    return {} if item.get("namespace") is None else {"namespace": place.text(item, "namespace")}


def _read_output(item: Mapping[str, Any], place: Place) -> Item:
    output: object = item.get("output")
    if isinstance(output, list):
        parts = (text_of_result_part(part, place.left_out) for part in cast("list[object]", output))
        output = [{"type": "input_text", "text": text} for text in parts]
    else:
        output = text_of_result(output, place.left_out)
    return {"call_id": place.call_id(item), "output": output, "status": "completed"}


def _read_reference(item: Mapping[str, Any], place: Place) -> Item:
    return {"id": place.text(item, "id")}


def _read_mcp(item: Mapping[str, Any], place: Place) -> Item:
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


def _read_request(item: Mapping[str, Any], place: Place) -> Item:
    return {name: place.text(item, name) for name in ("id", "server_label", "name", "arguments")}


def _read_response(item: Mapping[str, Any], place: Place) -> Item:
    if not isinstance(item.get("approve"), bool):
        raise place.error("must be true or false", "approve")
    reason = {} if item.get("reason") is None else {"reason": place.text(item, "reason")}
    asked = place.text(item, "approval_request_id")
    return {"approval_request_id": asked, "approve": item["approve"], **reason}


def _read_list(item: Mapping[str, Any], place: Place) -> Item:
    # It matters only that the client was shown the list; what tools there are, the client can't say.
    no_tools: list[Item] = []
    return {"server_label": place.text(item, "server_label"), "tools": no_tools}


def _read_tools(item: Mapping[str, Any], place: Place) -> Item:
    given: object = item.get("tools")
    tools = cast("list[object]", given) if isinstance(given, list) else []
    return {"role": "developer", "tools": [tool for tool in tools if isinstance(tool, dict)]}


def _repr(value: object) -> str:
    return cut_text(repr(value), _SHOWN)


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any], Place], Item]]] = {
    "message": _read_message,
    "reasoning": _read_reasoning,
    "function_call": _read_call,
    "function_call_output": _read_output,
    "custom_tool_call": _read_custom,
    "custom_tool_call_output": _read_output,
    REFERENCE: _read_reference,
    ADDITIONAL_TOOLS: _read_tools,
    "mcp_call": _read_mcp,
    "mcp_list_tools": _read_list,
    "mcp_approval_request": _read_request,
    "mcp_approval_response": _read_response,
}
