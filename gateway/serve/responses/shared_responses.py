"""Stored responses of this replica, and those that a replica which is gone has left in the shared store.

Each response that is kept here is also written to the shared store, after its answer. For what a request names and this
replica lacks, the shared store is asked, in one step. What it returns is used for that request only, so that a response
which one replica deletes does not survive in another.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, Protocol

from gateway.config import LimitsConfig
from gateway.serve.responses.store import ResponseStore, StoredResponse, followed
from gateway.shared import Bounds, Record, Shared
from gateway.shared.packing import packed, unpacked

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
        self._bounds = Bounds.of(limits.responses_bytes, limits.principal_share, limits.responses_ttl)

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

    def _before(self, response: StoredResponse) -> list[Record]:
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


def _record(response: StoredResponse) -> Record:
    parts = [response.head, response.input, response.output, response.item_ids]
    return Record(response.id, response.before, packed(parts), tuple(each for each in response.item_ids if each))


def _response(owner: str, record: Record) -> StoredResponse:
    head, given, output, item_ids = unpacked(record.value)
    parts: Any = {"input": tuple(given), "output": tuple(output), "item_ids": tuple(item_ids)}
    return StoredResponse(owner=owner, id=record.id, before=record.before, head=head, **parts)
