"""Responses that clients may refer to by id: those of this replica, those left in the shared store, and their items."""

import asyncio
import json
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

from gateway.config import LimitsConfig
from gateway.errors import RequestInvalid
from gateway.shared import Shared, StoreBounds, StoreRecord
from gateway.shared.store_interface import packed, unpacked

# Answers that clients may refer to by id: whole responses, and their items.
#
# A response is kept with the items of its own request, and names the response that it follows. Bounded in time and in
# bytes: a response expires when it has not been used for `ttl` seconds; when the store is full, the least recently used
# responses of the principal with the most bytes are dropped. To anybody but its owner a response does not exist. No IO;
# the clock is given.

_RESPONSE_BYTES: Final = 1200
_ITEM_BYTES: Final = 250
"""Bytes that a response and an item take besides their JSON, measured."""


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """One answer, as JSON texts."""

    owner: str
    id: str
    before: str | None
    """Id of the response that it follows; None where it follows none."""
    head: bytes
    """The response without its output."""
    input: tuple[bytes, ...]
    """Items of its own request, each with an id."""
    output: tuple[bytes, ...]
    item_ids: tuple[str, ...]
    """Ids by which its items are found, those of its input first; "" for an item that can't be found by id."""

    @property
    def size(self) -> int:
        """Bytes that the response takes, roughly."""
        items = (*self.input, *self.output)
        texts = (self.id, self.head, *items, *self.item_ids)
        return _RESPONSE_BYTES + sum(map(len, texts)) + _ITEM_BYTES * len(items)

    def item(self, place: int) -> bytes:
        """One of its items, by its position in `item_ids`."""
        return self.input[place] if place < len(self.input) else self.output[place - len(self.input)]


def followed(get: Callable[[str], StoredResponse | None], response_id: str) -> tuple[list[StoredResponse], str | None]:
    """A response and all that it follows, oldest first; and the id of the one that is missing, None if none is."""
    found: list[StoredResponse] = []
    each: str | None = response_id
    while each is not None and (response := get(each)) is not None:
        found.append(response)
        each = response.before
    return found[::-1], each


@dataclass(slots=True)
class _Kept:
    response: StoredResponse
    until: float
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = self.response.size


class ResponseStore:
    """The responses of one gateway."""

    def __init__(self, most: int, ttl: float, share: float, clock: Callable[[], float]) -> None:
        """`most`: bytes in all; `share`: the part of them that one principal may fill, once there are several."""
        self._most = most
        self._ttl = ttl
        self._share = int(most * share)
        self._clock = clock
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        """By id; the least recently used first, which also expires first."""
        self._owned: dict[str, OrderedDict[str, None]] = {}
        """Ids of each owner's responses, in the same order."""
        self._items: dict[tuple[str, str], tuple[str, int]] = {}
        """Owner and id of an item, to the id of its response and its position there.

        The owner is part of the key, since some ids contain text of a model.
        """
        self._sizes: Counter[str] = Counter()

    @property
    def size(self) -> int:
        """Bytes that all responses take."""
        return self._sizes.total()

    def put(self, response: StoredResponse) -> None:
        """Keep a response. One that is larger than all that its owner may have is not kept."""
        self._expire()
        kept = _Kept(response, self._clock() + self._ttl)
        self._kept[response.id] = kept
        self._owned.setdefault(response.owner, OrderedDict())[response.id] = None
        self._sizes[response.owner] += kept.size
        for place, item_id in enumerate(response.item_ids):
            if item_id:
                self._items[response.owner, item_id] = (response.id, place)
        self._make_room(response.owner)

    def get(self, owner: str, response_id: str) -> StoredResponse | None:
        """A response of this owner, which counts as used; None where there is none."""
        self._expire()
        kept = self._kept.get(response_id)
        if kept is None or kept.response.owner != owner:
            return None
        self._use(kept)
        return kept.response

    def item(self, owner: str, item_id: str) -> bytes | None:
        """An item of one of this owner's responses, which counts as used; None where there is none."""
        found = self._items.get((owner, item_id))
        response = None if found is None else self.get(owner, found[0])
        return None if found is None or response is None else response.item(found[1])

    def chain(self, owner: str, response_id: str) -> list[StoredResponse] | None:
        """The response and all that it follows, oldest first; None where one of them is missing."""
        found, missing = followed(partial(self.get, owner), response_id)
        return found if missing is None else None

    def delete(self, owner: str, response_id: str) -> bool:
        """Delete a response of this owner; False where there is none."""
        if self.get(owner, response_id) is None:
            return False
        self._drop(response_id)
        return True

    def _use(self, kept: _Kept) -> None:
        kept.until = self._clock() + self._ttl
        self._kept.move_to_end(kept.response.id)
        self._owned[kept.response.owner].move_to_end(kept.response.id)

    def _expire(self) -> None:
        now = self._clock()
        while self._kept:
            response_id, kept = next(iter(self._kept.items()))
            if kept.until > now:
                break
            self._drop(response_id)

    def _make_room(self, owner: str) -> None:
        while len(self._sizes) > 1 and self._sizes[owner] > self._share:
            self._drop_oldest(owner)
        while self._sizes.total() > self._most:
            self._drop_oldest(max(self._sizes, key=lambda name: self._sizes[name]))

    def _drop_oldest(self, owner: str) -> None:
        self._drop(next(iter(self._owned[owner])))

    def _drop(self, response_id: str) -> None:
        kept = self._kept.pop(response_id)
        owner = kept.response.owner
        for item_id in kept.response.item_ids:
            if self._items.get((owner, item_id), ())[:1] == (response_id,):
                del self._items[owner, item_id]
        del self._owned[owner][response_id]
        self._sizes[owner] -= kept.size
        if not self._sizes[owner]:
            del self._sizes[owner], self._owned[owner]


# Stored responses of this replica, and those that a replica which is gone has left in the shared store.
#
# Each response that is kept here is also written to the shared store, after its answer. For what a request names and
# this replica lacks, the shared store is asked, in one step. What it returns is used for that request only, so that a
# response which one replica deletes does not survive in another.

_REFERENCES: Final = 16
"""Maximum number of items that the shared store is asked for, per request."""


class Stored(Protocol):
    """Stored responses and items that a request may refer to."""

    def chain(self, owner: str, response_id: str) -> list[StoredResponse] | None:
        """The response and all that it follows, oldest first; None where one of them is missing."""
        ...

    def item(self, owner: str, item_id: str) -> bytes | None:
        """An item of one of this owner's responses; None where there is none."""
        ...


class Responses:
    """All responses that this replica has access to."""

    def __init__(self, store: ResponseStore, shared: Shared | None, limits: LimitsConfig) -> None:
        """`store`: the responses of this replica."""
        self._store = store
        self._shared = shared
        self._bounds = StoreBounds.of(limits.responses_bytes, limits.principal_share, limits.responses_ttl)

    def put(self, response: StoredResponse) -> None:
        """Keep a response, here and for the other replicas."""
        self._store.put(response)
        if self._shared is not None:
            before = partial(self._before, response)
            self._shared.keep("response", response.owner, _record(response), self._bounds, before)

    async def get(self, owner: str, response_id: str) -> StoredResponse | None:
        """A response of this owner; None where there is none."""
        found = self._store.get(owner, response_id)
        if found is not None or self._shared is None:
            return found
        records = await self._shared.find("response", owner, response_id, self._bounds, depth=1)
        return _response(owner, records[0]) if records else None

    async def delete(self, owner: str, response_id: str) -> None:
        """Delete a response of this owner, here and in the shared store."""
        self._store.delete(owner, response_id)
        if self._shared is not None:
            await self._shared.drop("response", owner, response_id)

    async def having(self, owner: str, previous: str | None, items: Sequence[str]) -> Stored:
        """The responses that are here, and those of the named ones that the shared store has.

        `previous`: id of the response that a request follows; `items`: ids of items that it refers to.
        """
        if self._shared is None:
            return self._store
        missing = None if previous is None else followed(partial(self._store.get, owner), previous)[1]
        referred = [each for each in dict.fromkeys(items) if self._store.item(owner, each) is None][:_REFERENCES]
        if missing is None and not referred:
            return self._store
        asked = [self._shared.find_alias("response", owner, [each], self._bounds, depth=1) for each in referred]
        if missing is not None:
            asked.append(self._shared.find("response", owner, missing, self._bounds))
        found = await asyncio.gather(*asked)
        return _Both(self._store, owner, [_response(owner, each) for records in found for each in records])

    def _before(self, response: StoredResponse) -> list[StoreRecord]:
        if response.before is None:
            return []
        return [_record(each) for each in self._store.chain(response.owner, response.before) or ()]


class _Both:
    """The stored responses of this replica, and those that the shared store returned for one request."""

    def __init__(self, store: ResponseStore, owner: str, found: Sequence[StoredResponse]) -> None:
        self._store = store
        self._owner = owner
        self._found = {each.id: each for each in found}
        self._items = {name: (each, n) for each in found for n, name in enumerate(each.item_ids) if name}

    def chain(self, owner: str, response_id: str) -> list[StoredResponse] | None:
        """See `Stored.chain`."""

        def get(each: str) -> StoredResponse | None:
            return self._store.get(owner, each) or (self._found.get(each) if owner == self._owner else None)

        found, missing = followed(get, response_id)
        return found if missing is None else None

    def item(self, owner: str, item_id: str) -> bytes | None:
        """See `Stored.item`."""
        if (here := self._store.item(owner, item_id)) is not None or owner != self._owner:
            return here
        response, place = self._items.get(item_id, (None, 0))
        return None if response is None else response.item(place)


def _record(response: StoredResponse) -> StoreRecord:
    parts = [response.head, response.input, response.output, response.item_ids]
    return StoreRecord(response.id, response.before, packed(parts), tuple(each for each in response.item_ids if each))


def _response(owner: str, record: StoreRecord) -> StoredResponse:
    head, given, output, item_ids = unpacked(record.value)
    parts: Any = {"input": tuple(given), "output": tuple(output), "item_ids": tuple(item_ids)}
    return StoredResponse(owner=owner, id=record.id, before=record.before, head=head, **parts)


# `GET /v1/responses/{id}/input_items`: a page of the input items of a stored response.
#
# Source: OpenAI's API reference, "List input items".

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
