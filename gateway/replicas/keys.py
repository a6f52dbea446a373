"""The secret that replicas share, and what is sealed with keys derived from it.

Turns bytes into tokens that can be made and opened only with the secret, and back. Each purpose has a key of its own,
so that a token for one can't be used for another. No IO.
"""

import hashlib
import secrets
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES: Final = 32
_NONCE: Final = 12
_ID: Final = 4


def derived(secret: bytes, purpose: str, salt: bytes = b"", size: int = KEY_BYTES) -> bytes:
    """A key for one purpose (RFC 5869)."""
    return HKDF(SHA256(), size, salt, f"codec-gateway {purpose}".encode()).derive(secret)


@dataclass(frozen=True, slots=True)
class ReplicaKeys:
    """The secrets that are accepted; the first is used for anything new."""

    secrets: Sequence[bytes]
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
