"""Answers that clients may refer to by id: whole responses, and their items.

A response is kept with the items of its own request, and names the response that it follows. Bounded in time and in
bytes: a response expires when it has not been used for `ttl` seconds; when the store is full, the least recently used
responses of the principal with the most bytes are dropped. To anybody but its owner a response does not exist. No IO;
the clock is given.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

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
