"""The bytes between two replicas: records that can be written and read only with their common secret, and in order.

Each side draws 32 random bytes and sends them first. The keys for both directions are derived from the secret and both
draws, so nothing that was recorded can be replayed, and no clock is trusted. Records follow: four bytes of length, and
the sealed record, whose number is its nonce. If a record is missing, doubled, moved or changed, it does not open, and
the connection can't be used any more. Sans-IO.
"""

import secrets
from dataclasses import dataclass
from typing import Final, Literal

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from gateway.replicas.keys import KEY_BYTES, ReplicaKeys, derived

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
