"""Records in a store: they are sealed before they are stored, and one that does not open counts as missing.

Turns records into arguments of scripts, and results of scripts into records. Whoever can write to the store can move a
value, cut it, or link it to something else. That is noticed here: a value opens only under its own key, and says what
it follows.
"""

from itertools import pairwise
from typing import Any, Final, cast

from gateway.shared.interface import Kind, Record
from gateway.shared.keys import StoreKeys
from gateway.shared.packing import packed, unpacked


class Unreadable(Exception):
    """What the store gave was not made by a replica for this purpose."""


class RecordSeal:
    """Seals and opens the records of one kind."""

    def __init__(self, keys: StoreKeys, kind: Kind) -> None:
        self._keys = keys
        self._kind = kind
        self.place: Final = keys.plain_name(f"{kind}:")
        """The prefix of the keys that hold the totals of this kind."""

    def owner(self, owner: str) -> bytes:
        """An owner's name in the store."""
        return self._keys.names(self._kind, "owner", owner)[0].removeprefix(self.place)

    def names(self, owner: str, record: str) -> list[bytes]:
        """The keys under which a record may be stored."""
        return self._keys.names(self._kind, "record", owner, record)

    def aliases(self, owner: str, alias: str) -> list[bytes]:
        """The keys under which an alias may be stored."""
        return self._keys.names(self._kind, "alias", owner, alias)

    def sealed(self, owner: str, record: Record) -> tuple[list[bytes], bytes, bytes]:
        """The keys of a record and its aliases, its value, and the keys of what it follows."""
        (name, *_), aliases = self.names(owner, record.id), [self.aliases(owner, each)[0] for each in record.aliases]
        plain = packed([record.id, record.before, record.value])
        before = b"" if record.before is None else b" ".join(self.names(owner, record.before))
        return [name, *aliases], self._keys.seal(self._kind, owner, name, plain), before

    def opened(self, owner: str, found: Any, depth: int) -> list[Record]:
        """The records in a result of `FIND`, oldest first. Raises `Unreadable`."""
        if not isinstance(found, list) or len(cast("list[Any]", found)) % 2:
            raise Unreadable
        given = cast("list[Any]", found)
        records = [self._opened(owner, *pair) for pair in zip(given[::2], given[1::2], strict=True)]
        for last, before in pairwise(records):
            if last.before != before.id:
                raise Unreadable
        if records and len(records) < depth and records[-1].before is not None:
            raise Unreadable
        return records[::-1]

    def _opened(self, owner: str, name: object, value: object) -> Record:
        if not isinstance(name, bytes) or not isinstance(value, bytes):
            raise Unreadable
        plain = self._keys.opened(self._kind, owner, name, value)
        if plain is None:
            raise Unreadable
        record_id, before, kept = unpacked(plain)
        return Record(record_id, before, kept)
