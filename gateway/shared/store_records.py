"""Names and records for a store that others can read: neither reveals anything."""

import secrets
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise
from typing import Any, Final, cast

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from gateway.replicas.sealed_records import derived
from gateway.shared.store_interface import StoreKind, StoreRecord, packed, unpacked

# Neither names nor values reveal anything, and only a replica can make one. When the secret is replaced, what was made
# with the previous one is still found and opened.

_FORMAT: Final = b"\x04"
"""The format of values, and of what the packages write into them. A value of another format counts as missing."""
_NONCE: Final = 12
_DIGEST: Final = 18


@dataclass(frozen=True, slots=True)
class StoreKeys:
    """The secrets that all replicas share, for one store."""

    secrets: Sequence[bytes] = field(repr=False)
    """The first is used for anything new; the others are still accepted."""
    prefix: str
    _naming: Sequence[bytes] = field(init=False, repr=False)
    _sealing: Sequence[ChaCha20Poly1305] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_naming", [derived(each, "store names") for each in self.secrets])
        sealing = [ChaCha20Poly1305(derived(each, "store values")) for each in self.secrets]
        object.__setattr__(self, "_sealing", sealing)

    def names(self, purpose: str, *parts: str | bytes) -> list[bytes]:
        """The keys under which something may be stored; new values are stored under the first."""
        said = _joined(purpose, *parts)
        digests = [blake2b(said, key=key, digest_size=_DIGEST).digest() for key in self._naming]
        return [f"{self.prefix}{purpose}:{urlsafe_b64encode(digest).decode()}".encode() for digest in digests]

    def plain_name(self, what: str) -> bytes:
        """The key of something that is not secret."""
        return f"{self.prefix}{what}".encode()

    def seal(self, purpose: str, owner: str, name: bytes, plain: bytes) -> bytes:
        """Seal a value for one key and one principal."""
        nonce = secrets.token_bytes(_NONCE)
        return _FORMAT + nonce + self._sealing[0].encrypt(nonce, plain, _joined(purpose, owner, name))

    def opened(self, purpose: str, owner: str, name: bytes, value: bytes) -> bytes | None:
        """The bytes that were sealed; None if they were not, or not for this purpose, principal and key."""
        nonce, sealed = value[1 : 1 + _NONCE], value[1 + _NONCE :]
        if value[:1] != _FORMAT or len(nonce) != _NONCE:
            return None
        bound = _joined(purpose, owner, name)
        for sealing in self._sealing:
            try:
                return sealing.decrypt(nonce, sealed, bound)
            except InvalidTag:
                continue
        return None


def _joined(*parts: str | bytes) -> bytes:
    encoded = [part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass") for part in parts]
    # Lengths first: no part can move into its neighbour.
    return b"".join([b"%d:%b" % (len(part), part) for part in encoded])


# Whoever can write to the store can move a value, cut it, or link it to something else. That is noticed here: a value
# opens only under its own key, and says what it follows. One that does not open counts as missing.


class Unreadable(Exception):
    """What the store gave was not made by a replica for this purpose."""


class RecordSeal:
    """Seals and opens the records of one kind."""

    def __init__(self, keys: StoreKeys, kind: StoreKind) -> None:
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

    def sealed(self, owner: str, record: StoreRecord) -> tuple[list[bytes], bytes, bytes]:
        """The keys of a record and its aliases, its value, and the keys of what it follows."""
        (name, *_), aliases = self.names(owner, record.id), [self.aliases(owner, each)[0] for each in record.aliases]
        plain = packed([record.id, record.before, record.value])
        before = b"" if record.before is None else b" ".join(self.names(owner, record.before))
        return [name, *aliases], self._keys.seal(self._kind, owner, name, plain), before

    def opened(self, owner: str, found: Any, depth: int) -> list[StoreRecord]:
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

    def _opened(self, owner: str, name: object, value: object) -> StoreRecord:
        if not isinstance(name, bytes) or not isinstance(value, bytes):
            raise Unreadable
        plain = self._keys.opened(self._kind, owner, name, value)
        if plain is None:
            raise Unreadable
        record_id, before, kept = unpacked(plain)
        return StoreRecord(record_id, before, kept)
