"""Ids of responses and of their items: each says which replica has what it names.

An id is a prefix and a name from which the replicas can tell its owner (`gateway/replicas`). Finds in a request's body
the one id that decides which replica answers the request. No IO.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from gateway.serve.responses.items import REFERENCE

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
