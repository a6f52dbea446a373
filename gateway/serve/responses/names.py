"""Ids of responses and of their items: each says which replica has what it names.

An id is a prefix and a name that the replicas tell an owner from (`gateway/replicas`). Turns a request's body into the
one id by which it is found out where the request belongs. No IO.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from gateway.serve.responses.items import REFERENCE

NewName = Callable[[], str]
"""Gives a new name for something that lives in this process."""

_APPROVAL: Final = "mcp_approval_response"
_OF_AN_ANSWER: Final = ("reasoning", "function_call", "custom_tool_call", "mcp_call", "mcp_approval_request")


def name_in(an_id: str) -> str:
    """The name in an id; "" where there is none."""
    return an_id.partition("_")[2].partition(".")[0]


@dataclass(frozen=True, slots=True)
class Named:
    """The ids of earlier answers that a request names."""

    place: str | None
    """The one on which it hangs where the request can be answered; None: anywhere.

    One is enough: what a request refers to besides must live in the same place, or is told to be unknown there.
    """
    items: Sequence[str]
    """Those of items that it refers to."""


def named_by(previous: object, given: object) -> Named:
    """What a request names. `previous`: the response that it follows; `given`: its input."""
    listed = cast("Sequence[object]", given) if isinstance(given, list | tuple) else ()
    items = [cast("dict[str, Any]", item) for item in listed if isinstance(item, dict)]
    referred = [item["id"] for item in items if _is_reference(item) and isinstance(item["id"], str)]
    place = previous if isinstance(previous, str) else next(iter(referred), None) or _approved(items)
    return Named(place, referred)


def _is_reference(item: Mapping[str, Any]) -> bool:
    kind = item.get("type") or (None if "role" in item else REFERENCE)
    return kind == REFERENCE and "id" in item


def _approved(items: Sequence[Mapping[str, Any]]) -> str | None:
    """The question that is answered with a yes behind the last answer: only there a call is made for it."""
    for item in reversed(items):
        if item.get("type") in _OF_AN_ANSWER or item.get("role") == "assistant":
            return None
        question = item.get("approval_request_id")
        if item.get("type") == _APPROVAL and item.get("approve") is True and isinstance(question, str):
            return question
    return None
