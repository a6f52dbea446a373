"""Ids of responses and of their items: each says which replica has what it names.

An id is a prefix and a name that the replicas tell an owner from (`gateway/replicas`). Turns a request's body into the
one id by which it is found out where the request belongs. No IO.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from gateway.serve.responses.items import REFERENCE

NewName = Callable[[], str]
"""Gives a new name for something that lives in this process."""

_APPROVAL: Final = "mcp_approval_response"
_OF_AN_ANSWER: Final = ("reasoning", "function_call", "custom_tool_call", "mcp_call", "mcp_approval_request")


def name_in(an_id: str) -> str:
    """The name in an id; "" where there is none."""
    return an_id.partition("_")[2].partition(".")[0]


def named_by(previous: object, given: object) -> str | None:
    """The id on which it hangs where a request can be answered; None: anywhere. `given`: its input.

    One id is enough: what a request refers to besides must live in the same place, or is told to be unknown there.
    """
    if isinstance(previous, str):
        return previous
    items = [cast(Mapping[str, Any], item) for item in _listed(given) if isinstance(item, Mapping)]
    referred = next((item["id"] for item in items if _is_reference(item)), None)
    return referred if isinstance(referred, str) else _approved(items)


def references(given: object) -> list[str]:
    """Ids of items that a request refers to. `given`: its input."""
    items = [cast(Mapping[str, Any], item) for item in _listed(given) if isinstance(item, Mapping)]
    return [item["id"] for item in items if _is_reference(item) and isinstance(item["id"], str)]


def _listed(given: object) -> Sequence[object]:
    return cast(Sequence[object], given) if isinstance(given, list | tuple) else ()


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
