"""`GET /v1/responses/{id}/input_items`: a page of the input items of a stored response.

Source: OpenAI's API reference, "List input items".
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from gateway.errors import RequestInvalid
from gateway.serve.responses.store import StoredResponse

_MOST: Final = 100
_DEFAULT: Final = "20"


def page_of(stored: StoredResponse, query: Mapping[str, str]) -> dict[str, Any]:
    """One page of the items, the newest first unless `order` is `asc`. Raises `RequestInvalid`."""
    order, limit, after = query.get("order", "desc"), query.get("limit", _DEFAULT), query.get("after")
    if order not in ("asc", "desc"):
        raise RequestInvalid("order: expected asc or desc", param="order")
    if not limit.isascii() or not limit.isdigit() or len(limit) > 3 or not 1 <= int(limit) <= _MOST:
        raise RequestInvalid(f"limit: expected a number from 1 to {_MOST}", param="limit")
    items: list[dict[str, Any]] = [json.loads(item) for item in stored.input]
    if order == "desc":
        items.reverse()
    if after is not None:
        items = items[_place(items, after) + 1 :]
    page = items[: int(limit)]
    ends = (page[0]["id"], page[-1]["id"]) if page else ("", "")
    has_more = len(items) > len(page)
    return {"object": "list", "data": page, "first_id": ends[0], "last_id": ends[1], "has_more": has_more}


def _place(items: list[dict[str, Any]], after: str) -> int:
    place = next((number for number, item in enumerate(items) if item["id"] == after), None)
    if place is None:
        raise RequestInvalid("after: the response has no input item with this id", param="after")
    return place
