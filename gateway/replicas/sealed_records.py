"""The secret that replicas share, what is sealed with its keys, and the records between two of them."""

import hashlib
import secrets
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

# Each purpose has a key of its own, so that a token for one can't be used for another.

KEY_BYTES: Final = 32
_NONCE: Final = 12
_ID: Final = 4


def derived(secret: bytes, purpose: str, salt: bytes = b"", size: int = KEY_BYTES) -> bytes:
    """A key for one purpose (RFC 5869)."""
    return HKDF(SHA256(), size, salt, f"codec-gateway {purpose}".encode()).derive(secret)


@dataclass(frozen=True, slots=True)
class ReplicaKeys:
    """The secrets that are accepted; the first is used for anything new."""

    secrets: Sequence[bytes] = field(repr=False)
    by_id: dict[bytes, bytes] = field(init=False, repr=False)
    """The secrets by their public ids."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_id", {_id_of(each): each for each in self.secrets})

    @property
    def current(self) -> tuple[bytes, bytes]:
        """The public id of the secret in use, and the secret."""
        return _id_of(self.secrets[0]), self.secrets[0]

    def seal(self, purpose: str, plain: bytes) -> str:
        """Seal bytes as a token of characters that a URL may hold."""
        key_id, secret = self.current
        nonce = secrets.token_bytes(_NONCE)
        sealed = ChaCha20Poly1305(derived(secret, purpose)).encrypt(nonce, plain, key_id)
        return urlsafe_b64encode(key_id + nonce + sealed).rstrip(b"=").decode()

    def opened(self, purpose: str, token: str) -> bytes | None:
        """The bytes in a token; None if it was sealed for another purpose or with another secret, or not at all."""
        try:
            held = b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except ValueError:
            return None
        key_id, nonce, sealed = held[:_ID], held[_ID : _ID + _NONCE], held[_ID + _NONCE :]
        secret = self.by_id.get(key_id)
        if secret is None or len(nonce) != _NONCE:
            return None
        try:
            return ChaCha20Poly1305(derived(secret, purpose)).decrypt(nonce, sealed, key_id)
        except InvalidTag:
            return None


def _id_of(secret: bytes) -> bytes:
    return hashlib.sha256(b"codec-gateway key " + secret).digest()[:_ID]


# Each side draws 32 random bytes and sends them first. The keys for both directions are derived from the secret and
# both draws, so nothing that was recorded can be replayed, and no clock is trusted. Records follow: four bytes of
# length, and the sealed record, whose number is its nonce. If a record is missing, doubled, moved or changed, it does
# not open, and the connection can't be used any more.

MAGIC: Final = b"codec-gateway replica 1\n"
ID_BYTES: Final = 4
RANDOM_BYTES: Final = 32
HELLO_BYTES: Final = len(MAGIC) + ID_BYTES + RANDOM_BYTES
MOST: Final = 1024 * 1024
"""Bytes of one record."""
_LENGTH: Final = 4


FULL: Final = b"codec-gateway full    1\n".ljust(HELLO_BYTES)
"""What a replica that can take no more connections sends instead of its greeting."""


class RecordFault(Exception):
    """The received bytes can't have been sent by a replica that has our secret."""


class NoRoom(RecordFault):
    """The other replica can take no more connections."""


@dataclass(frozen=True, slots=True)
class Hello:
    """What each side sends first."""

    key_id: bytes
    random: bytes

    @staticmethod
    def new(key_id: bytes) -> "Hello":
        """A greeting with fresh random bytes."""
        return Hello(key_id, secrets.token_bytes(RANDOM_BYTES))

    @staticmethod
    def read(data: bytes) -> "Hello":
        """A greeting from its bytes. Raises `RecordFault`."""
        if len(data) != HELLO_BYTES or not data.startswith(MAGIC):
            raise RecordFault("the first bytes are not the greeting of a replica")
        rest = data[len(MAGIC) :]
        return Hello(rest[:ID_BYTES], rest[ID_BYTES:])

    @property
    def bytes(self) -> bytes:
        """The greeting as it is sent."""
        return MAGIC + self.key_id + self.random


class Records:
    """One side of one connection."""

    def __init__(self, keys: ReplicaKeys, asked: Hello, answered: Hello, side: Literal["asks", "answers"]) -> None:
        """`asked`: the greeting of the side that opened the connection.

        Raises `RecordFault` for a secret that is not accepted.
        """
        secret = keys.by_id.get(asked.key_id)
        if secret is None:
            raise RecordFault("the greeting names a key that is not accepted here")
        both = derived(secret, "records", asked.random + answered.random, 2 * KEY_BYTES)
        first, second = ChaCha20Poly1305(both[:KEY_BYTES]), ChaCha20Poly1305(both[KEY_BYTES:])
        self._out, self._in = (first, second) if side == "asks" else (second, first)
        self._sent = self._read = 0
        self._waiting = bytearray()

    def seal(self, kind: bytes, data: bytes = b"") -> bytes:
        """A record as it is sent. `kind`: one byte."""
        sealed = self._out.encrypt(self._sent.to_bytes(12, "big"), kind + data, None)
        self._sent += 1
        return len(sealed).to_bytes(_LENGTH, "big") + sealed

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """The records that are now complete, each as its kind and data. Raises `RecordFault`."""
        self._waiting += data
        found: list[tuple[bytes, bytes]] = []
        while len(self._waiting) >= _LENGTH:
            size = int.from_bytes(self._waiting[:_LENGTH], "big")
            if not 17 <= size <= MOST:
                raise RecordFault(f"a record of {size} bytes, expected 17 to {MOST}")
            if len(self._waiting) < _LENGTH + size:
                break
            sealed = bytes(self._waiting[_LENGTH : _LENGTH + size])
            del self._waiting[: _LENGTH + size]
            try:
                plain = self._in.decrypt(self._read.to_bytes(12, "big"), sealed, None)
            except InvalidTag:
                raise RecordFault("a record that is not sealed with the common key, or is out of order") from None
            self._read += 1
            found.append((plain[:1], plain[1:]))
        return found
